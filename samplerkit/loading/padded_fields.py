"""Sequences of unlike lengths in one field of the samples of a batch: found, and padded into one array."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, final

import numpy as np
import torch
from torch.utils.data import default_collate

from samplerkit.errors import DatasetError
from samplerkit.order.typing import Ids

Naming = Callable[[int], str]
"""Names the sample at a place of the batch, in errors."""


class Padded(NamedTuple):
    """A padded field that has no key: of a tuple, or the sample itself.

    Args:
        values: of shape (samples, longest, ...).
        mask: of shape (samples, longest): True where a value is no padding.
    """

    values: torch.Tensor
    mask: torch.Tensor


@final
@dataclass(frozen=True, eq=False)
class SequenceField:
    """The sequences of one field, one a sample.

    Args:
        path: of the field.
        items: all tensors, or all arrays; of one shape but for the first dimension.
        lengths: of each, int64 of shape (samples,).
    """

    path: str
    items: list[Any]
    lengths: Ids

    def truncated(self, longest: int) -> SequenceField:
        """Cuts off what is longer."""
        if not (self.lengths > longest).any():
            return self
        items = [item[:longest] for item in self.items]
        return SequenceField(self.path, items, np.minimum(self.lengths, longest))

    def padded(self, length: int, value: float) -> Padded:
        """Pads all to one length.

        Args:
            length: at least that of each.
            value: what is padded with.
        """
        first, shape = self.items[0], (len(self.items), length, *self.items[0].shape[1:])
        if isinstance(first, torch.Tensor):
            values = first.new_full(shape, value)
            for place, item in enumerate(self.items):
                values[place, : item.shape[0]] = item
        else:
            array = np.full(shape, value, dtype=first.dtype)
            for place, item in enumerate(self.items):
                array[place, : item.shape[0]] = item
            values = torch.from_numpy(array)
        ends = torch.from_numpy(self.lengths).to(values.device)
        return Padded(values, torch.arange(length, device=values.device) < ends[:, None])


def is_sequence(item: Any) -> bool:
    """Tells whether a field holds a sequence: a tensor or an array that is no scalar, or a list of numbers.

    Example:
        >>> [is_sequence(item) for item in ([1, 2], [], torch.zeros(3), 7, "text", ["a"], torch.tensor(1))]
        [True, True, True, False, False, False, False]
    """
    if isinstance(item, torch.Tensor | np.ndarray):
        return item.ndim > 0 and (isinstance(item, torch.Tensor) or item.dtype.kind in "biuf")
    if not isinstance(item, list):
        return False
    while isinstance(item, list) and item:
        item = item[0]
    return item == [] or isinstance(item, int | float | np.number | np.bool_)


def field_of(path: str, items: list[Any], named: Naming) -> SequenceField:
    """Makes the sequences of a field alike: tensors of one type, or arrays of one.

    Lists become int64, float or bool as torch makes them.

    Raises:
        DatasetError: a sample has no sequence there, or one of another shape.
    """
    if all(isinstance(item, torch.Tensor) for item in items):
        made = items
    else:
        made = [_array(path, place, item, named) for place, item in enumerate(items)]
        # What has no entries has no type of its own.
        typed = [array.dtype for array in made if array.size] or [made[0].dtype]
        made = [array.astype(np.result_type(*typed), copy=False) for array in made]
    trails = [tuple(item.shape[1:]) if item.ndim else None for item in made]
    # A list without entries fits any shape.
    expected = next(
        (trail for item, trail in zip(made, trails, strict=True) if len(item.shape) and item.shape[0]),
        trails[0],
    )
    for place, (item, trail) in enumerate(zip(made, trails, strict=True)):
        if trail == expected and trail is not None:
            continue
        if trail == () and not item.shape[0] and expected is not None:
            made[place] = item.reshape(0, *expected)
            continue
        raise DatasetError(
            f"{named(place)}{_at(path)}",
            f"must be a sequence, of shape {('length', *expected) if expected else '(length,)'}",
            tuple(item.shape),
            mend="let all samples have one shape but for the first dimension",
        )
    return SequenceField(path, made, np.array([item.shape[0] for item in made], dtype=np.int64))


def _array(path: str, place: int, item: Any, named: Naming) -> np.ndarray[Any, Any]:
    try:
        array = np.asarray(item)
    except (TypeError, ValueError, RuntimeError):  # rows of unlike lengths, a tensor on a device
        array = np.asarray(None)
    if array.dtype.kind not in "biuf":
        raise DatasetError(
            f"{named(place)}{_at(path)}",
            "must be a sequence of numbers",
            item,
            mend="name the fields to pad, PadCollate(fields=[...]), or to pack, PackCollate(...)",
        )
    if isinstance(item, list) and array.dtype.kind == "f":
        array = array.astype(np.float32 if torch.get_default_dtype() == torch.float32 else np.float64)
    return array


def _at(path: str) -> str:
    return f", field {path}" if path else ""


@final
@final
class SampleNames:
    """Names samples by their ids, or by their places in the batch where these are not known."""

    def __init__(self, ids: Ids | None) -> None:
        self._ids = ids

    def __call__(self, place: int) -> str:
        return (
            f"the sample at place {place} of a batch" if self._ids is None else f"sample {self._ids[place]}"
        )


def require_alike(path: str, items: list[Any], is_alike: Any, named: Naming) -> None:
    """Refuses samples that differ in structure from the first one of their batch.

    Raises:
        DatasetError: one does.
    """
    for place, item in enumerate(items):
        if not is_alike(item):
            raise DatasetError(
                f"{named(place)}{f', field {path}' if path else ''}",
                "has another structure than the first sample of its batch",
                sample_words(item),
                mend="let all samples have the same fields",
            )


def collated_by_torch(path: str, items: list[Any]) -> Any:
    """Makes a batch of a field that holds no sequences.

    Raises:
        DatasetError: torch cannot.
    """
    try:
        return default_collate(items)
    except (TypeError, RuntimeError, ValueError) as error:
        raise DatasetError(
            f"field {path}" if path else "samples",
            f"cannot be made a batch by torch ({error})",
            items[0],
            mend="name it among fields= if it is a sequence to pad, or leave it out of the samples",
        ) from None


def sample_words(sample: Any) -> str:
    """Says in a few words what a sample is."""
    if isinstance(sample, Mapping):
        return f"the keys {[*map(str, sample)]}"
    return f"{len(sample)} fields" if isinstance(sample, tuple) else f"a {type(sample).__name__}"
