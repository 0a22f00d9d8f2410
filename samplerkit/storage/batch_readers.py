"""How a dataset of anyone's is read: in batches or one by one, in threads, with passes or gaps."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from operator import is_
from typing import Any

from torch.utils.data import ConcatDataset, Dataset, StackDataset, Subset

from samplerkit.errors import DatasetError


def batch_reader(dataset: Any) -> Any:
    """Returns what reads whole batches in a dataset: itself, or what a torch `Subset` of it asks.

    Returns:
        None where samples are read one by one, by torch's wrappers too.

    Example:
        >>> from torch.utils.data import Subset
        >>> batch_reader(Subset([1, 2, 3], [0, 2])) is None
        True
    """
    method = getattr(type(dataset), "__getitems__", None)
    if method is not None and method is getattr(Subset, "__getitems__", None):
        return batch_reader(dataset.dataset)
    if method is not None and method is getattr(StackDataset, "__getitems__", None):
        stacked = dataset.datasets
        parts = stacked.values() if isinstance(stacked, dict) else stacked
        return dataset if any(batch_reader(part) is not None for part in parts) else None
    return dataset if callable(getattr(dataset, "__getitems__", None)) else None


def reads_singly(dataset: Any) -> bool:
    """Returns whether a dataset reads one sample by its id: one that reads batches need not.

    Example:
        >>> reads_singly([1, 2]), reads_singly(Dataset())
        (True, False)
    """
    return getattr(type(dataset), "__getitem__", None) not in (None, Dataset.__getitem__)


TOLD = ("passes", "epochs")
"""What a dataset may want to know of each sample, in the order in which it is reported."""


def wanted(dataset: Any) -> tuple[str, ...]:
    """Returns what a dataset wants to know of each sample, which its `__getitems__` is given behind the ids.

    Args:
        dataset: with `wants_passes = True` it is given the passes over their sources, with
            `wants_epochs = True` the epochs of these, with both first the passes.

    Raises:
        DatasetError: it has no `__getitems__` that could be given them.

    Example:
        >>> class Rings:
        ...     wants_epochs = True
        ...     def __getitems__(self, ids, epochs):
        ...         return [*zip(ids.tolist(), epochs.tolist())]
        >>> wanted(Rings()), wanted([1, 2])
        (('epochs',), ())
    """
    # Of the dataset itself: what wraps it, as torch's `Subset`, would not hand them on.
    names = tuple(name for name in TOLD if getattr(dataset, f"wants_{name}", False) is True)
    if names and not callable(getattr(dataset, "__getitems__", None)):
        raise DatasetError(
            "dataset",
            f"has wants_{names[0]} and reads no batches",
            dataset,
            hint=f"write __getitems__(self, ids, {', '.join(names)})",
        )
    return names


def only_sample(batch: Any) -> Any:
    """Returns the sample of a batch of one: of columns, its row of each.

    Example:
        >>> only_sample(["a"]), only_sample({"x": [1], "y": [2]})
        ('a', {'x': 1, 'y': 2})
    """
    return {name: column[0] for name, column in batch.items()} if isinstance(batch, Mapping) else batch[0]


def present_reader(dataset: Any) -> Callable[..., Any] | None:
    """Returns what reads a batch of a dataset that leaves samples out by itself; None for any other one."""
    # Of the class: a wrapper that passes on what it does not know would be passed by.
    return dataset.read_present if hasattr(type(dataset), "read_present") else None


def copied_by_thread(dataset: Any, copies: ExitStack) -> Any:
    """Returns what one of several threads reads: the dataset, unless it or a part of it asks for copies.

    Args:
        dataset: one with a method `copy_for_thread` gives a copy for the thread that calls it. torch's
            wrappers of such a dataset are copied around it.
        copies: closes the copies that can be closed.

    Example:
        >>> from torch.utils.data import Subset
        >>> class Cursor(list):
        ...     def copy_for_thread(self):
        ...         return Cursor(self)
        >>> shared = Subset(Cursor("abc"), [2, 0])
        >>> own = copied_by_thread(shared, ExitStack())
        >>> own[0], own.dataset is shared.dataset, copied_by_thread([1], ExitStack())
        ('c', False, [1])
    """
    if callable(make := getattr(dataset, "copy_for_thread", None)):
        made = make()
        if callable(close := getattr(made, "close", None)):
            copies.callback(close)
        return made

    def copied(part: Any) -> Any:
        return copied_by_thread(part, copies)

    if hasattr(type(dataset), "with_parts"):  # a tree of ours
        return dataset.with_parts(copied)
    if not isinstance(dataset, Subset | ConcatDataset | StackDataset):
        return dataset
    name = "dataset" if isinstance(dataset, Subset) else "datasets"
    held = getattr(dataset, name)
    own = copied(held) if name == "dataset" else changed_parts(copied, held)
    if own is held:
        return dataset
    around = copy.copy(dataset)
    setattr(around, name, own)
    return around


def changed_parts(change: Callable[[Any], Any], held: Any) -> Any:
    """Returns what a function makes of each dataset in a list, a tuple or a mapping.

    Returns:
        What was given, where the function changes none.

    Example:
        >>> changed_parts(lambda part: part, one := {"a": [1]}) is one
        True
    """
    if isinstance(held, Mapping):
        named = {name: change(part) for name, part in held.items()}
        return held if all(named[name] is part for name, part in held.items()) else named
    made = [change(part) for part in held]
    return held if all(map(is_, made, held)) else type(held)(made)
