"""Batches of packs: documents side by side in rows of one length, with what keeps them apart in attention."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, Final, final

import numpy as np
import torch

from samplerkit.batches.measure import Measure
from samplerkit.batches.plan import BatchPlan
from samplerkit.batches.segments import Segments
from samplerkit.errors import ArgumentTypeError, ArgumentValueError, DatasetError
from samplerkit.loading.limits import require_packs_within
from samplerkit.loading.padded_fields import (
    SampleNames,
    SequenceField,
    collated_by_torch,
    field_of,
    is_sequence,
    require_alike,
)
from samplerkit.order.intervals import numbers_in
from samplerkit.order.typing import Ids

_MADE = ("position_ids", "segment_ids", "cu_seqlens", "max_seqlen")


@final
class PackCollate:
    """Makes a batch of packs: what a `Loader` takes for `PackBatches` where no `collate_fn` is said.

    A sample is a sequence of tokens (a tensor, an array, a list of numbers), or a dict that holds one.
    The batch is a dict of

    - `input_ids`, int64 of shape (packs, seq_len): parts of documents side by side, then padding;
    - `position_ids`, int64 of that shape: from 0 on in each part, 0 for padding;
    - `segment_ids`, int32 of that shape: 1, 2, ... for the parts of a pack, 0 for padding;
    - `cu_seqlens`, int32: where each part begins in the batch laid flat and, last, where it ends. Padding is
      a part of its own, so that no token sees any;
    - `max_seqlen`, a number: the longest of these parts;
    - each other field of the samples: packed in the same way where it is as long as the tokens, and else
      made a batch by torch, one entry a part.

    It knows the limit of a loader's packs: one above it is an error that names the samples whose lengths are
    not what was said.

    Args:
        field: the key of the tokens in dicts; None for `input_ids`, or else the only field with a sequence.
        value: what is padded with: a number, or one by field; 0 where nothing is said.
        plan: of any epoch, from `recipe.plan(sampler, dataset)`: for a plain DataLoader. A `Loader` knows it.

    Raises:
        ArgumentTypeError: an argument has the wrong type.
        ArgumentValueError: the plan has no packs.

    Example:
        >>> import samplerkit as sk
        >>> documents = [[5, 6, 7], [8], [1, 2]]
        >>> plan = sk.PackBatches(5, lengths=[3, 1, 2]).plan(sk.RandomSampler(seed=7), 3)
        >>> batch = PackCollate(plan=plan)([documents[0], documents[1]])
        >>> batch["input_ids"].tolist(), batch["segment_ids"].tolist(), batch["cu_seqlens"].tolist()
        ([[5, 6, 7, 8, 0]], [[1, 1, 1, 2, 0]], [0, 3, 4, 5])
    """

    def __init__(
        self,
        field: str | None = None,
        *,
        value: float | Mapping[str, float] = 0,
        plan: BatchPlan | None = None,
    ) -> None:
        if field is not None and not isinstance(field, str):
            raise ArgumentTypeError("field", "must be the key of the tokens in a sample", field)
        for number in value.values() if isinstance(value, Mapping) else (value,):
            if not isinstance(number, int | float | np.number):
                raise ArgumentTypeError("value", "must be a number, or one by field", number)
        if plan is not None and not isinstance(plan, BatchPlan):
            raise ArgumentTypeError("plan", "must be a plan", plan, mend="say recipe.plan(sampler, dataset)")
        self.field: Final = field
        self.value: Final = value
        self._measure = None if plan is None else _packing(plan.measure)

    def measured_by(self, measure: Measure) -> PackCollate:
        """Gives one that knows the lengths and the limit of a run's packs: what a loader does.

        Args:
            measure: of a plan.

        Raises:
            ArgumentValueError: it has no packs.
        """
        known = copy.copy(self)
        known._measure = _packing(measure)
        return known

    def __call__(self, samples: list[Any]) -> dict[str, Any]:
        return self.collated(samples)

    def collated(
        self, samples: list[Any], ids: Ids | None = None, segments: Segments | None = None
    ) -> dict[str, Any]:
        """Makes a batch of parts of samples.

        Args:
            samples: the parts, at least one.
            ids: of their samples, for errors; None where they are not known.
            segments: what they are; None where they are whole and make one pack.

        Raises:
            DatasetError: samples hold no tokens, differ in structure, or are longer than was said.
            ArgumentValueError: it is not known how long a pack is.
        """
        if self._measure is None:
            raise ArgumentValueError(
                "plan",
                "is not known, and so neither how long a pack is",
                mend="give batches=PackBatches(...) to the loader, or plan= to PackCollate",
            )
        name, fields, others = self._fields(samples, ids)
        tokens = fields[name]
        if segments is None:
            nothing = np.zeros_like(tokens.lengths)
            segments = Segments(nothing, tokens.lengths, nothing, np.ones(nothing.size, dtype=bool))
        seq_len, multiple = self._measure.pack or 0, self._measure.multiple
        taken = -(-tokens.lengths // multiple) * multiple
        require_packs_within(self._measure, segments, tokens.lengths, taken, ids)
        first = np.searchsorted(segments.rows, segments.rows)
        before = np.cumsum(taken) - taken
        begins = segments.rows * seq_len + before - before[first]
        shape = (int(segments.rows[-1]) + 1, seq_len)
        places = numbers_in(begins, tokens.lengths)
        positions = np.zeros(shape, dtype=np.int64)
        positions.reshape(-1)[places] = numbers_in(np.zeros_like(begins), tokens.lengths)
        parts = np.zeros(shape, dtype=np.int32)
        parts.reshape(-1)[places] = np.repeat(np.arange(1, first.size + 1) - first, tokens.lengths)
        bounds = np.unique(
            np.concatenate([begins, begins + tokens.lengths, np.arange(shape[0] + 1) * seq_len])
        )
        at = torch.from_numpy(places)
        packed = {key: self._packed(key, field, at, shape) for key, field in fields.items()}
        return {
            "input_ids": packed.pop(name),
            "position_ids": torch.from_numpy(positions),
            "segment_ids": torch.from_numpy(parts),
            "cu_seqlens": torch.from_numpy(bounds.astype(np.int32)),
            "max_seqlen": int(np.diff(bounds).max()),
            **packed,
            **others,
        }

    def _fields(
        self, samples: list[Any], ids: Ids | None
    ) -> tuple[str, dict[str, SequenceField], dict[str, Any]]:
        """Gives the key of the tokens, what is packed as they are, and the other fields."""
        named = SampleNames(ids)
        first = samples[0]
        if not isinstance(first, Mapping):
            return "", {"": field_of("", list(samples), named)}, {}
        require_alike("", samples, lambda one: isinstance(one, Mapping) and one.keys() == first.keys(), named)
        name = self._name(first)
        fields = {name: field_of(name, [sample[name] for sample in samples], named)}
        others: dict[str, Any] = {}
        for key in first:
            if key in _MADE or (key == "input_ids" and key != name):
                mend = "leave it out of the samples, or call it otherwise"
                raise DatasetError(f"field {key}", "has the name of what packs are made of", first, mend=mend)
            if key == name:
                continue
            items = [sample[key] for sample in samples]
            lengths = [len(item) if is_sequence(item) else -1 for item in items]
            if lengths == fields[name].lengths.tolist():
                fields[key] = field_of(key, items, named)
            else:
                others[key] = collated_by_torch(key, items)
        return name, fields, others

    def _name(self, sample: Mapping[str, Any]) -> str:
        """Finds which field holds the tokens."""
        found = [key for key, item in sample.items() if is_sequence(item)]
        name = self.field or ("input_ids" if "input_ids" in found else None)
        if name is None and len(found) == 1:
            name = found[0]
        if name not in found:
            raise DatasetError(
                "samples",
                f"hold {len(found)} sequences, of which the tokens are to be named"
                if self.field is None
                else f"hold no sequence {self.field}",
                [*sample],
                mend='name them: PackCollate("text")',
            )
        return str(name)

    def _packed(
        self, key: str, field: SequenceField, places: torch.Tensor, shape: tuple[int, int]
    ) -> torch.Tensor:
        """Puts the sequences of a field at places of rows that hold padding else."""
        tensors = isinstance(field.items[0], torch.Tensor)
        flat = torch.cat(field.items) if tensors else torch.from_numpy(_widened(np.concatenate(field.items)))
        if not flat.dtype.is_floating_point and flat.dtype is not torch.bool:
            flat = flat.long()
        value = self.value.get(key, 0) if isinstance(self.value, Mapping) else self.value
        rows = flat.new_full((shape[0] * shape[1], *flat.shape[1:]), value)
        rows[places.to(flat.device)] = flat
        return rows.reshape(*shape, *flat.shape[1:])


def _packing(measure: Measure) -> Measure:
    if measure.pack is None:
        raise ArgumentValueError(
            "plan", "is of batches that are no packs", measure, mend="use PackBatches, or PadCollate"
        )
    return measure


def _widened(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Gives integers that torch can reckon with: it has few operations on unsigned ones."""
    return array.astype(np.int64) if array.dtype.kind in "iu" else array
