"""The tree that a batch is: its leaves are what can be on a device, everything else holds or passes."""

import copy
import dataclasses
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from typing import Any

import torch
from torch.nn.utils.rnn import PackedSequence

_PLAIN = (type(None), str, bytes, int, float, complex, type)


def map_leaves(function: Callable[[Any], Any], batch: Any) -> Any:
    """Applies a function to the leaves of a batch.

    Leaves are tensors, `PackedSequence`s, and objects whose class has a method `to`. Named tuples, tuples,
    lists, mappings and dataclasses are walked, and keep their class; of a mapping also the default factory,
    of a dataclass also the fields that its constructor does not take. Everything else passes: None, strings,
    numbers, numpy arrays. What holds no leaf that changed is the same object as before.

    Args:
        function: receives a leaf, returns what replaces it.
        batch: any object.

    Example:
        >>> batch = {"image": torch.zeros(2), "name": "cat", "boxes": [torch.ones(1), None]}
        >>> map_leaves(lambda tensor: tensor + 1, batch)
        {'image': tensor([1., 1.]), 'name': 'cat', 'boxes': [tensor([2.]), None]}
    """
    if isinstance(batch, _PLAIN):
        return batch
    if callable(getattr(type(batch), "to", None)):
        return function(batch)
    parts = {key: (part, map_leaves(function, part)) for key, part in _parts(batch)}
    changes = {key: new for key, (old, new) in parts.items() if new is not old}
    return _changed(batch, changes) if changes else batch


def leaves(batch: Any) -> list[Any]:
    """Returns the leaves of a batch, from left to right."""
    collected: list[Any] = []

    def collect(leaf: Any) -> Any:
        collected.append(leaf)
        return leaf

    map_leaves(collect, batch)
    return collected


def storages(leaf: Any) -> Iterator[Any]:
    """Yields what of a leaf has `record_stream`: the leaf itself, or the tensors in its attributes."""
    if callable(getattr(type(leaf), "record_stream", None)):
        yield leaf
        return
    # An object that refers to itself ends here, as it is asked for its attributes once.
    parts = leaf if isinstance(leaf, PackedSequence) else getattr(leaf, "__dict__", {}).values()
    yield from (part for part in leaves([*parts]) if isinstance(part, torch.Tensor))


def is_opaque(leaf: Any) -> bool:
    """Whether a leaf may hold tensors that `storages` does not find."""
    return not (isinstance(leaf, PackedSequence) or callable(getattr(type(leaf), "record_stream", None)))


def _parts(batch: Any) -> Iterator[tuple[Any, Any]]:
    """What a batch holds, by field, place or key; nothing where it is not walked."""
    if dataclasses.is_dataclass(batch):
        # A field without a value is one that the constructor leaves out and that was not set yet.
        names = [field.name for field in dataclasses.fields(batch) if hasattr(batch, field.name)]
        yield from ((name, getattr(batch, name)) for name in names)
    elif isinstance(batch, tuple | list):
        yield from enumerate(batch)
    elif isinstance(batch, Mapping):
        yield from batch.items()


def _changed(batch: Any, changes: dict[Any, Any]) -> Any:
    """The same with other parts. Where it can, it is a copy, which runs no constructor."""
    kind: Any = type(batch)
    is_dataclass = dataclasses.is_dataclass(batch)
    if isinstance(batch, tuple) and not is_dataclass:
        items = [changes.get(place, item) for place, item in enumerate(batch)]
        try:
            rebuilt = tuple.__new__(kind, items)
        except TypeError:  # one of C, as `torch.return_types`
            return kind(items)
        if hasattr(batch, "__dict__"):
            vars(rebuilt).update(vars(batch))
        return rebuilt
    if not (is_dataclass or isinstance(batch, list | MutableMapping)):
        return kind({**batch, **changes})
    new: Any = copy.copy(batch)
    for key, value in changes.items():
        if is_dataclass:
            object.__setattr__(new, key, value)  # also where its class is frozen
        else:
            new[key] = value
    return new
