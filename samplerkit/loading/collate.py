"""Collate functions for sequences of different lengths: padded, with masks, or packed, with their borders."""

from collections.abc import Collection, Mapping
from typing import Any, Final, Literal, final, get_args

import numpy as np
import torch

from samplerkit.batches.plan import BatchPlan, Measure
from samplerkit.batches.segments import Segments
from samplerkit.errors import ArgumentTypeError, ArgumentValueError, DatasetError
from samplerkit.loading.sample_fields import (
    Padded,
    PlannedCollate,
    SequenceField,
    above_limit,
    collated_by_torch,
    describe_sample,
    field_of,
    is_sequence,
    keys_of,
    require_alike,
    rows_of,
)
from samplerkit.order import arguments
from samplerkit.order.intervals import numbers_in
from samplerkit.order.typing import Ids

PadTo = Literal["longest", "bucket"]
"""The length to which the sequences of a batch are padded."""


@final
class PadCollate(PlannedCollate):
    """Makes a batch of samples that hold sequences of different lengths: padded tensors, and masks.

    A sample is a sequence, or holds some in dicts, tuples and named tuples, also nested. A sequence is a
    tensor or an array that is not a scalar, or a list of numbers; all else goes through torch's
    `default_collate`. A field is named by its keys and places, with dots between: `text`, `source.ids`, `0`.

    A padded field in a dict keeps its key; its boolean mask, True where there is no padding, is added as
    `KEY_mask`. In a tuple, or where the sample itself is the sequence, it becomes the named tuple
    (values, mask).

    As the `collate_fn` of a `Loader` with `batches`, it knows their limit: a batch above it is an error that
    names the samples that are longer than their given lengths. With `long="truncate"` it cuts off the rest.

    Args:
        pad_to: `longest` of the batch, or the upper end of its `bucket`, so that few shapes occur.
        fields: which to pad; None for all that hold sequences. The lengths of the plan are those of the first
            one, pairs those of the first two.
        value: what is padded with: a number, or one by field; 0 by default.
        masks: the keys of masks, by field: `{"input_ids": "attention_mask"}`. Other fields then have none.
        length_multiple: to a multiple of it lengths are rounded up; None for that of the plan, or 1.
        plan: of any epoch, from `recipe.plan(sampler, dataset)`: for a plain DataLoader. A `Loader` knows it.

    Raises:
        ArgumentTypeError: an argument has the wrong type.
        ArgumentValueError: `pad_to` is not known; or, at the first batch, the plan has no buckets to pad to.
        ArgumentRangeError: `length_multiple` is not positive.

    Example:
        >>> batch = PadCollate()([{"text": [5, 6, 7], "label": 0}, {"text": [8], "label": 1}])
        >>> batch["text"].tolist(), batch["text_mask"].tolist(), batch["label"].tolist()
        ([[5, 6, 7], [8, 0, 0]], [[True, True, True], [True, False, False]], [0, 1])
    """

    def __init__(
        self,
        pad_to: PadTo = "longest",
        *,
        fields: Collection[str] | None = None,
        value: float | Mapping[str, float] = 0,
        masks: Mapping[str, str] | None = None,
        length_multiple: int | None = None,
        plan: BatchPlan | None = None,
    ) -> None:
        self.pad_to: Final[str] = arguments.choice("pad_to", pad_to, get_args(PadTo))
        self.fields: Final = None if fields is None else _names(fields)
        if masks is not None and not isinstance(masks, Mapping):
            raise ArgumentTypeError("masks", "must be a mapping from a field to the key of its mask", masks)
        self.masks: Final = masks
        self.length_multiple: Final = arguments.limit("length_multiple", length_multiple)
        super().__init__(value, plan)

    def collated(self, samples: Any, ids: Ids | None = None, segments: Segments | None = None) -> Any:
        """Makes a batch of samples, all of one structure; arguments are those of `SampleCollate.collated`.

        Raises:
            DatasetError: samples differ in structure or shape, or the batch is above its limit.
            ArgumentValueError: `fields` names what no sample has, `value` is none of a field's type, or there
                are no buckets to pad to.
        """
        fields: dict[str, SequenceField] = {}
        samples = rows_of(samples, None if ids is None else ids.size)
        tree = self._tree("", samples, ids, fields)
        for path in self.fields or ():
            if path not in fields:
                hint = f"they have {describe_sample(samples[0])}"
                raise ArgumentValueError("fields", "names nothing that the samples have", path, hint=hint)
        if self.pad_to == "bucket" and self._measure.upper is None:
            hint = "use BucketBatches, with plan= for a plain DataLoader, or a larger length_multiple"
            raise ArgumentValueError("pad_to", "needs batches that have buckets", self.pad_to, hint=hint)
        return self._padded(tree, self._lengths(fields, ids))

    def _tree(self, path: str, items: list[Any], ids: Ids | None, fields: dict[str, SequenceField]) -> Any:
        """Returns the structure of a sample, with a `SequenceField` in place of each padded field."""
        first, prefix = items[0], f"{path}." if path else ""
        if isinstance(first, Mapping | tuple):
            require_alike(path, items, ids)
            parts = {
                key: self._tree(f"{prefix}{key}", [item[key] for item in items], ids, fields)
                for key in keys_of(first)
            }
            return parts if isinstance(first, Mapping) else _tuple_like(first, [*parts.values()])
        if path in self.fields if self.fields is not None else is_sequence(first):
            fields[path] = field_of(path, items, ids, self._measure.longest)
            return fields[path]
        return collated_by_torch(path, items)

    def _lengths(self, fields: dict[str, SequenceField], ids: Ids | None) -> dict[str, int]:
        """Returns the padded length of each field, and checks the batch against its limit."""
        longest = {path: int(field.lengths.max()) for path, field in fields.items()}
        measure = self._measure
        if measure.lengths is None:
            return {path: self._rounded(length) for path, length in longest.items()}
        counted = [fields[path] for path in self.fields or fields][: 2 if measure.lengths.are_pairs else 1]
        if len(counted) <= measure.lengths.are_pairs:
            problem = "names fewer fields than a sample has lengths"
            hint = "give lengths of the sequences in fields"
            raise ArgumentValueError("fields", problem, [field.path for field in counted], hint=hint)
        shape = np.array([longest[field.path] for field in counted])
        if self.pad_to == "bucket" and measure.upper is not None:
            shape = measure.upper(shape)
            longest = {path: max(length, int(shape[0])) for path, length in longest.items()}
        padded = {path: self._rounded(length) for path, length in longest.items()}
        if measure.padded is not None:  # else the limit is of lengths that are not rounded
            shape = np.array([padded[field.path] for field in counted], dtype=np.int64)
        _require_padded(measure, counted, shape, ids)
        return padded

    def _rounded(self, length: int) -> int:
        if self.length_multiple is None:
            # One length at a time, also where a sample has a pair of them.
            return int(self._measure.rounded(np.array([length]))[0])
        return -(-length // self.length_multiple) * self.length_multiple

    def _padded(self, tree: Any, lengths: dict[str, int]) -> Any:
        if isinstance(tree, SequenceField):
            padded = tree.padded(lengths[tree.path], self._padding_of(tree.path, tree.dtype))
            return padded if self.masks is None or tree.path in self.masks else padded.values
        if isinstance(tree, tuple):
            return _tuple_like(tree, [self._padded(part, lengths) for part in tree])
        if not isinstance(tree, dict):
            return tree
        batch: dict[Any, Any] = {}
        for key, part in tree.items():
            batch[key] = padded = self._padded(part, lengths)
            if isinstance(part, SequenceField) and isinstance(padded, Padded):
                batch[key] = padded.values
                name = f"{key}_mask" if self.masks is None else self.masks[part.path]
                if name in tree or name in batch:
                    problem = "would overwrite a field of the samples"
                    hint = "give another key, or masks={} for no masks"
                    raise ArgumentValueError("masks", problem, name, hint=hint)
                batch[name] = padded.mask
        return batch


def _require_padded(measure: Measure, fields: list[SequenceField], shape: Ids, ids: Ids | None) -> None:
    """Refuses a batch whose fields, padded to these lengths, are above the limit of its plan."""
    count = len(fields[0].lengths)
    if measure.cap is None or count <= int(measure.cap(shape[None, :] if len(shape) > 1 else shape)[0]):
        return
    of = " and ".join(field.path for field in fields if field.path) or "the samples"
    problem = f"a batch of {'x'.join(map(str, (count, *shape.tolist())))} ({of}) is above its limit"
    lengths = np.stack([field.lengths for field in fields], axis=1)
    given = np.zeros_like(lengths) if ids is None else measure.counted(ids).reshape(lengths.shape)
    raise above_limit(problem, np.arange(count), ids, lengths, given)


def _tuple_like(first: Any, parts: list[Any]) -> Any:
    """A tuple of the parts, named as another one is."""
    return first._make(parts) if hasattr(first, "_make") else tuple(parts)


def _names(fields: Any) -> tuple[str, ...]:
    names = tuple(fields) if arguments.is_iterable(fields) and not isinstance(fields, str) else (fields, None)
    if not all(isinstance(name, str) for name in names):
        raise ArgumentTypeError("fields", "must be a list of names", fields, hint='use ["source.ids"]')
    return names


_OUTPUT_KEYS = ("position_ids", "segment_ids", "cu_seqlens", "max_seqlen")


@final
class PackCollate(PlannedCollate):
    """Makes a batch of packs: the default `collate_fn` of a `Loader` with `PackBatches`.

    A sample is a sequence of tokens (a tensor, an array, a list of numbers), or a dict that holds one.
    The batch is a dict of

    - `input_ids`, int64 of shape (packs, seq_len): parts of documents, then padding;
    - `position_ids`, int64 of that shape: from 0 on in each part, 0 for padding;
    - `segment_ids`, int32 of that shape: 1, 2, ... for the parts of a pack, 0 for padding;
    - `cu_seqlens`, int32: where each part begins in the flattened batch and, last, where it ends. Padding is
        a separate part, so that no token attends to it;
    - `max_seqlen`, a number: the longest of these parts;
    - each other field of the samples: packed in the same way where it is as long as the tokens, and else
      made a batch by torch, one entry a part.

    It knows the limit of a loader's packs: one above it is an error that names the samples that are
    longer than their given lengths.

    Args:
        field: the key of the tokens in dicts.
        value: what is padded with: a number, or one by field; 0 by default.
        plan: of any epoch, from `recipe.plan(sampler, dataset)`: for a plain DataLoader. A `Loader` knows it.

    Raises:
        ArgumentTypeError: an argument has the wrong type.
        ArgumentValueError: at the first batch: the plan has no packs.

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
        field: str = "input_ids",
        *,
        value: float | Mapping[str, float] = 0,
        plan: BatchPlan | None = None,
    ) -> None:
        self.field: Final = arguments.text("field", field)
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
            ArgumentValueError: it is not known how long a pack is, or `value` is none of a field's type.
        """
        seq_len, multiple = self._measure.pack, self._measure.multiple
        if seq_len is None:
            hint = "give batches=PackBatches(...) to the loader, or plan= of it to PackCollate"
            raise ArgumentValueError("plan", "must be one of packs, which have a length", hint=hint)
        fields, others = self._fields(rows_of(samples, None if ids is None else ids.size), ids)
        name, tokens = next(iter(fields.items()))
        if segments is None:
            zeros = np.zeros_like(tokens.lengths)
            segments = Segments(zeros, tokens.lengths, zeros, np.ones(zeros.size, dtype=bool))
        rounded = -(-tokens.lengths // multiple) * multiple
        _require_packed(seq_len, segments, tokens.lengths, rounded, ids)
        first = np.searchsorted(segments.rows, segments.rows)
        before = np.cumsum(rounded) - rounded
        begins = segments.rows * seq_len + before - before[first]
        shape = (int(segments.rows[-1]) + 1, seq_len)
        places = numbers_in(begins, tokens.lengths)
        positions = np.zeros(shape, dtype=np.int64)
        positions.reshape(-1)[places] = numbers_in(np.zeros_like(begins), tokens.lengths)
        parts = np.zeros(shape, dtype=np.int32)
        parts.reshape(-1)[places] = np.repeat(np.arange(1, first.size + 1) - first, tokens.lengths)
        borders = [begins, begins + tokens.lengths, np.arange(shape[0] + 1) * seq_len]
        bounds = np.unique(np.concatenate(borders))
        at = torch.from_numpy(places)
        packed = {key: self._packed(field, at, shape) for key, field in fields.items()}
        return {
            # Empty lists have no type.
            "input_ids": packed.pop(name) if places.size else packed.pop(name).long(),
            "position_ids": torch.from_numpy(positions),
            "segment_ids": torch.from_numpy(parts),
            "cu_seqlens": torch.from_numpy(bounds.astype(np.int32)),
            "max_seqlen": int(np.diff(bounds).max()),
            **packed,
            **others,
        }

    def _fields(self, samples: list[Any], ids: Ids | None) -> tuple[dict[str, SequenceField], dict[str, Any]]:
        """Returns the tokens, with the fields that are packed in the same way, and the other fields."""
        first = samples[0]
        if not isinstance(first, Mapping):
            return {"": field_of("", samples, ids)}, {}
        require_alike("", samples, ids)
        name = self.field
        if not is_sequence(first.get(name)):
            hint = 'name the tokens: PackCollate("text")'
            raise DatasetError("samples", f"hold no sequence {name}", [*first], hint=hint)
        fields = {name: field_of(name, [sample[name] for sample in samples], ids)}
        others: dict[str, Any] = {}
        for key in first:
            if key in _OUTPUT_KEYS or (key == "input_ids" and key != name):
                problem = "has the name of a field that packs have"
                hint = "leave it out of the samples, or rename it"
                raise DatasetError(f"field {key}", problem, first, hint=hint)
            if key == name:
                continue
            items = [sample[key] for sample in samples]
            lengths = [len(item) if is_sequence(item) else -1 for item in items]
            if lengths == fields[name].lengths.tolist():
                fields[key] = field_of(key, items, ids)
            else:
                others[key] = collated_by_torch(key, items)
        return fields, others

    def _packed(self, field: SequenceField, places: torch.Tensor, shape: tuple[int, int]) -> torch.Tensor:
        """Copies the sequences of a field to their places in padded rows."""
        entries = field.joined(field.items)
        if not entries.dtype.is_floating_point and entries.dtype is not torch.bool:
            entries = entries.long()
        value = self._padding_of(field.path, entries.dtype)
        rows = entries.new_full((shape[0] * shape[1], *entries.shape[1:]), value)
        rows[places.to(entries.device)] = entries
        return rows.reshape(*shape, *entries.shape[1:])


def _require_packed(limit: int, segments: Segments, lengths: Ids, rounded: Ids, ids: Ids | None) -> None:
    """Refuses a pack whose parts, of these lengths rounded up, exceed it."""
    sums = np.bincount(segments.rows, weights=rounded).astype(np.int64)
    above = np.flatnonzero(sums > limit)
    if not above.size:
        return
    parts = np.flatnonzero(segments.rows == above[0])
    problem = f"a pack of {int(sums[above[0]])} tokens is above its limit of {limit}"
    # Up to its end, a part is as long as the document before it and itself.
    starts = segments.starts[parts]
    given = starts + segments.lengths[parts] if ids is not None else np.zeros_like(parts)
    raise above_limit(problem, parts, ids, (starts + lengths[parts])[:, None], given[:, None])
