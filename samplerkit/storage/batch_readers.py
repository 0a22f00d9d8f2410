"""How any map-style dataset is read: in batches or by sample, with passes and epochs, and by threads."""

import copy
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from operator import is_
from typing import Any

from torch.utils.data import ConcatDataset, Dataset, StackDataset, Subset

from samplerkit.errors import DatasetError


def batch_reader(dataset: Any) -> Any:
    """Returns the object that reads whole batches: the dataset itself, or the dataset in a torch `Subset`.

    Returns:
        None if samples are read one by one, even inside torch's wrappers.

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


def has_getitem(dataset: Any) -> bool:
    """Returns whether a dataset has `__getitem__`, which a dataset with `__getitems__` may lack.

    Example:
        >>> has_getitem([1, 2]), has_getitem(Dataset())
        (True, False)
    """
    return getattr(type(dataset), "__getitem__", None) not in (None, Dataset.__getitem__)


def read_args(dataset: Any) -> tuple[str, ...]:
    """Returns the names of the arguments that a dataset requests for its `__getitems__`, after the ids.

    Args:
        dataset: with `wants_passes = True` it receives for each sample the pass over its source, with
            `wants_epochs = True` the epoch of its source, and with both first the passes.

    Raises:
        DatasetError: the dataset has no `__getitems__`.

    Example:
        >>> class Rings:
        ...     wants_epochs = True
        ...     def __getitems__(self, ids, epochs):
        ...         return [*zip(ids.tolist(), epochs.tolist())]
        >>> read_args(Rings()), read_args([1, 2])
        (('epochs',), ())
    """
    # Only the dataset itself: a wrapper such as torch's `Subset` would not pass them on.
    names = tuple(name for name in ("passes", "epochs") if getattr(dataset, f"wants_{name}", False) is True)
    if names and not callable(getattr(dataset, "__getitems__", None)):
        raise DatasetError(
            "dataset",
            f"sets wants_{names[0]}, but has no __getitems__",
            dataset,
            hint=f"write __getitems__(self, ids, {', '.join(names)})",
        )
    return names


def only_sample(batch: Any) -> Any:
    """Returns the sample in a batch of one; of a dict of columns, a dict of their first rows.

    Example:
        >>> only_sample(["a"]), only_sample({"x": [1], "y": [2]})
        ('a', {'x': 1, 'y': 2})
    """
    return {name: column[0] for name, column in batch.items()} if isinstance(batch, Mapping) else batch[0]


def present_reader(dataset: Any) -> Callable[..., Any] | None:
    """Returns the `read_present` of a dataset that skips missing samples; None for other datasets."""
    # Looked up on the class: a wrapper that forwards unknown attributes would be bypassed.
    return dataset.read_present if hasattr(type(dataset), "read_present") else None


def copy_by_thread(dataset: Any, copies: ExitStack) -> Any:
    """Returns the dataset that a reading thread uses: a copy if it or a part of it has `copy_for_thread`.

    Args:
        dataset: its method `copy_for_thread`, if any, returns a copy for the calling thread. torch's wrappers
            of such a dataset are copied with it.
        copies: receives the `close` methods of the copies.

    Example:
        >>> from torch.utils.data import Subset
        >>> class Cursor(list):
        ...     def copy_for_thread(self):
        ...         return Cursor(self)
        >>> shared = Subset(Cursor("abc"), [2, 0])
        >>> own = copy_by_thread(shared, ExitStack())
        >>> own[0], own.dataset is shared.dataset, copy_by_thread([1], ExitStack())
        ('c', False, [1])
    """
    if callable(make := getattr(dataset, "copy_for_thread", None)):
        clone = make()
        if callable(close := getattr(clone, "close", None)):
            copies.callback(close)
        return clone

    def copied(part: Any) -> Any:
        return copy_by_thread(part, copies)

    if hasattr(type(dataset), "with_parts"):  # a TreeDataset
        return dataset.with_parts(copied)
    if not isinstance(dataset, Subset | ConcatDataset | StackDataset):
        return dataset
    name = "dataset" if isinstance(dataset, Subset) else "datasets"
    parts = getattr(dataset, name)
    own = copied(parts) if name == "dataset" else map_parts(copied, parts)
    if own is parts:
        return dataset
    wrapper = copy.copy(dataset)
    setattr(wrapper, name, own)
    return wrapper


def map_parts(change: Callable[[Any], Any], parts: Any) -> Any:
    """Applies a function to each dataset in a list, a tuple or a mapping.

    Returns:
        The changed container, or the given one if the function changes no dataset.

    Example:
        >>> map_parts(lambda part: part, one := {"a": [1]}) is one
        True
    """
    if isinstance(parts, Mapping):
        by_name = {name: change(part) for name, part in parts.items()}
        return parts if all(by_name[name] is part for name, part in parts.items()) else by_name
    changed = [change(part) for part in parts]
    return parts if all(map(is_, changed, parts)) else type(parts)(changed)
