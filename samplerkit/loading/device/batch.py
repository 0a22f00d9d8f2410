"""The tree that a batch is: its leaves are what can be on a device, everything else holds or passes."""

from __future__ import annotations

import copy
import dataclasses
import inspect
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
        function: gets a leaf, gives what stands in its place.
        batch: any object.

    Example:
        >>> batch = {"image": torch.zeros(2), "name": "cat", "boxes": [torch.ones(1), None]}
        >>> map_leaves(lambda tensor: tensor + 1, batch)
        {'image': tensor([1., 1.]), 'name': 'cat', 'boxes': [tensor([2.]), None]}
    """
    if is_leaf(batch):
        return function(batch)
    if isinstance(batch, _PLAIN):
        return batch
    if dataclasses.is_dataclass(batch):
        return _map_dataclass(function, batch)
    if isinstance(batch, tuple | list):
        items = [map_leaves(function, item) for item in batch]
        changed = any(new is not old for new, old in zip(items, batch, strict=True))
        return _sequence_like(batch, items) if changed else batch
    if isinstance(batch, Mapping):
        found = {key: (value, map_leaves(function, value)) for key, value in batch.items()}
        changes = {key: new for key, (old, new) in found.items() if new is not old}
        return _mapping_like(batch, changes) if changes else batch
    return batch


def is_leaf(item: Any) -> bool:
    """Whether something can be moved to a device as a whole."""
    return isinstance(item, torch.Tensor | PackedSequence) or (
        not isinstance(item, _PLAIN) and callable(getattr(type(item), "to", None))
    )


def leaves(batch: Any) -> list[Any]:
    """Gives the leaves of a batch, from left to right."""
    found: list[Any] = []

    def note(leaf: Any) -> Any:
        found.append(leaf)
        return leaf

    map_leaves(note, batch)
    return found


def storages(leaf: Any) -> Iterator[Any]:
    """Gives what of a leaf has `record_stream`: the leaf itself, or the tensors in its attributes."""
    if callable(getattr(type(leaf), "record_stream", None)):
        yield leaf
    elif isinstance(leaf, PackedSequence):
        yield from (part for part in leaf if isinstance(part, torch.Tensor))
    else:
        # An object that refers to itself ends here, as it is asked for its attributes once.
        for attribute in vars(leaf).values() if hasattr(leaf, "__dict__") else ():
            yield from (part for part in leaves(attribute) if isinstance(part, torch.Tensor))


def is_opaque(leaf: Any) -> bool:
    """Whether a leaf may hold tensors that `storages` does not find."""
    return not (isinstance(leaf, PackedSequence) or callable(getattr(type(leaf), "record_stream", None)))


def move(leaf: Any, device: torch.device, *, non_blocking: bool) -> Any:
    """Moves a leaf to a device; objects whose `to` knows no `non_blocking` are moved without."""
    if isinstance(leaf, torch.Tensor | PackedSequence) or _takes_non_blocking(leaf.to):
        return leaf.to(device, non_blocking=non_blocking)
    return leaf.to(device)


def _takes_non_blocking(to: Callable[..., Any]) -> bool:
    try:
        parameters = inspect.signature(to).parameters
    except (TypeError, ValueError):
        return False
    return "non_blocking" in parameters or any(
        parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()
    )


def _map_dataclass(function: Callable[[Any], Any], batch: Any) -> Any:
    # A field without a value is one that the constructor leaves out and that was not set yet.
    names = [field.name for field in dataclasses.fields(batch) if hasattr(batch, field.name)]
    found = {name: map_leaves(function, getattr(batch, name)) for name in names}
    changes = {name: value for name, value in found.items() if value is not getattr(batch, name)}
    if not changes:
        return batch
    # A copy runs no constructor, and so takes fields with init=False and frozen classes alike.
    new = copy.copy(batch)
    for name, value in changes.items():
        object.__setattr__(new, name, value)
    return new


def _sequence_like(old: tuple[Any, ...] | list[Any], items: list[Any]) -> Any:
    kind = type(old)
    if kind is list:
        return items
    if isinstance(old, list):
        new = copy.copy(old)
        new[:] = items
        return new
    if kind is tuple:
        return tuple(items)
    make = getattr(kind, "_make", None)
    return make(items) if callable(make) else kind(items)


def _mapping_like(old: Mapping[Any, Any], changes: dict[Any, Any]) -> Any:
    if isinstance(old, MutableMapping):
        new = copy.copy(old)
        new.update(changes)
        return new
    made: Any = type(old)
    return made({**old, **changes})
