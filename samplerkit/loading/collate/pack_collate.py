"""Batches of packs: documents side by side in rows of one length, with what keeps them apart in attention."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, final

import numpy as np
import torch

from samplerkit.batches.plan import BatchPlan, Measure
from samplerkit.batches.segments import Segments
from samplerkit.errors import ArgumentTypeError, ArgumentValueError, DatasetError
from samplerkit.loading.collate.sample_fields import (
    PlannedCollate,
    SequenceField,
    above_limit,
    collated_by_torch,
    field_of,
    is_sequence,
    require_alike,
)
from samplerkit.order.intervals import numbers_in
from samplerkit.order.typing import Ids

_MADE = ("position_ids", "segment_ids", "cu_seqlens", "max_seqlen")


@final
class PackCollate(PlannedCollate):
    """Makes a batch of packs: the default `collate_fn` of a `Loader` with `PackBatches`.

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

    It knows the limit of a loader's packs: one above it is an error that names the samples that are
    longer than their given lengths.

    Args:
        field: the key of the tokens in dicts; None for `input_ids`, or else the only field with a sequence.
        value: what is padded with: a number, or one by field; 0 by default.
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
        self.field: Final = field
        super().__init__(value, plan)

    def collated(
        self, samples: Any, ids: Ids | None = None, segments: Segments | None = None
    ) -> dict[str, Any]:
        """Makes a batch of parts of samples.

        Args:
            samples: the parts, at least one.
            ids: of their samples, for errors; None where they are not known.
            segments: what they are; None where they are whole and make one pack.

        Raises:
            DatasetError: samples hold no tokens, differ in structure, or are longer than their given lengths.
            ArgumentValueError: it is not known how long a pack is.
        """
        if self._measure is None:
            hint = "give batches=PackBatches(...) to the loader, or plan= to PackCollate"
            raise ArgumentValueError("plan", "is not known, and so neither how long a pack is", hint=hint)
        name, fields, others = self._fields(samples, ids)
        tokens = fields[name]
        if segments is None:
            nothing = np.zeros_like(tokens.lengths)
            segments = Segments(nothing, tokens.lengths, nothing, np.ones(nothing.size, dtype=bool))
        seq_len, multiple = self._measure.pack or 0, self._measure.multiple
        taken = -(-tokens.lengths // multiple) * multiple
        _require_within(seq_len, segments, tokens.lengths, taken, ids)
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
        first = samples[0]
        if not isinstance(first, Mapping):
            return "", {"": field_of("", list(samples), ids)}, {}
        require_alike("", samples, lambda one: isinstance(one, Mapping) and one.keys() == first.keys(), ids)
        name = self._name(first)
        fields = {name: field_of(name, [sample[name] for sample in samples], ids)}
        others: dict[str, Any] = {}
        for key in first:
            if key in _MADE or (key == "input_ids" and key != name):
                hint = "leave it out of the samples, or call it otherwise"
                raise DatasetError(f"field {key}", "has the name of what packs are made of", first, hint=hint)
            if key == name:
                continue
            items = [sample[key] for sample in samples]
            lengths = [len(item) if is_sequence(item) else -1 for item in items]
            if lengths == fields[name].lengths.tolist():
                fields[key] = field_of(key, items, ids)
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
            several = f"hold {len(found)} sequences, of which the tokens are to be named"
            problem = several if self.field is None else f"hold no sequence {self.field}"
            raise DatasetError("samples", problem, [*sample], hint='name them: PackCollate("text")')
        return str(name)

    def _fitting(self, measure: Measure) -> Measure:
        if measure.pack is None:
            hint = "use PackBatches, or PadCollate"
            raise ArgumentValueError("plan", "is of batches that are no packs", measure, hint=hint)
        return measure

    def _packed(
        self, key: str, field: SequenceField, places: torch.Tensor, shape: tuple[int, int]
    ) -> torch.Tensor:
        """Puts the sequences of a field at places of rows that hold padding else."""
        tensors = isinstance(field.items[0], torch.Tensor)
        flat = torch.cat(field.items) if tensors else torch.from_numpy(_widened(np.concatenate(field.items)))
        if not flat.dtype.is_floating_point and flat.dtype is not torch.bool:
            flat = flat.long()
        rows = flat.new_full((shape[0] * shape[1], *flat.shape[1:]), self._padding_of(key))
        rows[places.to(flat.device)] = flat
        return rows.reshape(*shape, *flat.shape[1:])


def _require_within(limit: int, segments: Segments, lengths: Ids, taken: Ids, ids: Ids | None) -> None:
    """Refuses a pack that its parts, of these lengths, do not fit into as they are rounded up."""
    sums = np.bincount(segments.rows, weights=taken).astype(np.int64)
    above = np.flatnonzero(sums > limit)
    if not above.size:
        return
    parts = np.flatnonzero(segments.rows == above[0])
    problem = f"a pack of {int(sums[above[0]])} tokens is above its limit of {limit}"
    given, starts = segments.lengths[parts, None], segments.starts[parts]
    raise above_limit(
        problem, parts, None if ids is None else ids[parts], lengths[parts, None], given, starts
    )


def _widened(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Gives signed integers: torch has few operations on unsigned ones."""
    return array.astype(np.int64) if array.dtype.kind in "iu" else array
