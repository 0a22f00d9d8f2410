"""Batches of sequences of different lengths: padded, with masks, and checked against their plan's limit."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final, Literal, final, get_args

import numpy as np

from samplerkit.batches.plan import BatchPlan, Measure
from samplerkit.batches.segments import Segments
from samplerkit.errors import ArgumentTypeError, ArgumentValueError, DatasetError
from samplerkit.loading.collate.sample_fields import (
    Padded,
    PlannedCollate,
    SequenceField,
    above_limit,
    collated_by_torch,
    field_of,
    is_sequence,
    require_alike,
    sample_words,
)
from samplerkit.order import arguments
from samplerkit.order.typing import Ids

PadTo = Literal["longest", "bucket"]
"""To what the sequences of a batch are padded."""


@final
class PadCollate(PlannedCollate):
    """Makes a batch of samples that hold sequences of different lengths: padded tensors, and masks.

    A sample is a sequence, or holds some in dicts, tuples and named tuples, also nested. A sequence is a
    tensor or an array that is no scalar, or a list of numbers; what else a sample holds goes through torch's
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
        ArgumentValueError: `pad_to` is not known, or the plan has no buckets to pad to.
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
        self.length_multiple: Final = (
            None if length_multiple is None else arguments.positive("length_multiple", length_multiple)
        )
        super().__init__(value, plan)

    def collated(self, samples: Any, ids: Ids | None = None, segments: Segments | None = None) -> Any:
        """Makes a batch of samples, all of one structure; arguments are those of `SampleCollate.collated`.

        Raises:
            DatasetError: samples differ in structure or shape, or the batch is above its limit.
            ArgumentValueError: `fields` names what no sample has, or there are no buckets to pad to.
        """
        found: dict[str, SequenceField] = {}
        tree = self._found("", list(samples), ids, found)
        for path in self.fields or ():
            if path not in found:
                hint = f"they have {sample_words(samples[0])}"
                raise ArgumentValueError("fields", "names nothing that the samples have", path, hint=hint)
        if self.pad_to == "bucket" and self._measure is None:
            hint = "give batches= to the loader, or plan= to PadCollate"
            raise ArgumentValueError("pad_to", "needs a plan, which has buckets", self.pad_to, hint=hint)
        return self._padded(tree, self._lengths(found, ids))

    def _found(self, path: str, items: list[Any], ids: Ids | None, found: dict[str, SequenceField]) -> Any:
        """Gives the structure of a sample, with a `SequenceField` in place of what is padded."""
        first, below = items[0], f"{path}." if path else ""
        if isinstance(first, Mapping):
            keys = first.keys()
            require_alike(path, items, lambda item: isinstance(item, Mapping) and item.keys() == keys, ids)
            columns = {key: [item[key] for item in items] for key in first}
            return {key: self._found(f"{below}{key}", columns[key], ids, found) for key in first}
        if isinstance(first, tuple):
            size = len(first)
            require_alike(path, items, lambda item: isinstance(item, tuple) and len(item) == size, ids)
            rows = enumerate(zip(*items, strict=True))
            return _like(first, [self._found(f"{below}{at}", [*row], ids, found) for at, row in rows])
        if path in self.fields if self.fields is not None else is_sequence(first):
            field = field_of(path, items, ids)
            longest = None if self._measure is None else self._measure.longest
            found[path] = field if longest is None else field.truncated(longest)
            return found[path]
        return collated_by_torch(path, items)

    def _lengths(self, found: dict[str, SequenceField], ids: Ids | None) -> dict[str, int]:
        """Gives what each field is padded to, and checks the batch against its limit."""
        longest = {path: int(field.lengths.max()) for path, field in found.items()}
        measure = self._measure
        if measure is None or measure.lengths is None or measure.keys is not None:
            return {path: self._rounded(length) for path, length in longest.items()}
        counted = [found[path] for path in self.fields or found][: 2 if measure.lengths.are_pairs else 1]
        if len(counted) <= measure.lengths.are_pairs:
            problem = "names fewer fields than a sample has lengths"
            hint = "let lengths and fields be of the same sequences"
            raise ArgumentValueError("fields", problem, [field.path for field in counted], hint=hint)
        shape = np.array([longest[field.path] for field in counted])
        if self.pad_to == "bucket" and measure.upper is not None:
            shape = measure.upper(shape)
            longest = {path: max(length, int(shape[0])) for path, length in longest.items()}
        padded = {path: self._rounded(length) for path, length in longest.items()}
        if measure.padded is not None:  # else the limit is of lengths that are not rounded
            shape = np.array([padded[field.path] for field in counted], dtype=np.int64)
        _require_within(measure, counted, shape, ids)
        return padded

    def _rounded(self, length: int) -> int:
        if self._measure is not None and self._measure.padded is not None and self.length_multiple is None:
            # One length at a time, also where a sample has a pair of them.
            return int(self._measure.rounded(np.array([length]))[0])
        multiple = self.length_multiple or 1
        return -(-length // multiple) * multiple

    def _padded(self, tree: Any, lengths: dict[str, int]) -> Any:
        if isinstance(tree, SequenceField):
            made = tree.padded(lengths[tree.path], self._padding_of(tree.path))
            return made if self.masks is None or tree.path in self.masks else made.values
        if isinstance(tree, tuple):
            return _like(tree, [self._padded(part, lengths) for part in tree])
        if not isinstance(tree, dict):
            return tree
        batch: dict[Any, Any] = {}
        for key, part in tree.items():
            batch[key] = made = self._padded(part, lengths)
            if isinstance(part, SequenceField) and isinstance(made, Padded):
                batch[key] = made.values
                name = f"{key}_mask" if self.masks is None else self.masks[part.path]
                if name in tree or name in batch:
                    problem = "would take the place of a field of the samples"
                    hint = "give another key, or masks={} for no masks"
                    raise ArgumentValueError("masks", problem, name, hint=hint)
                batch[name] = made.mask
        return batch

    def _fitting(self, measure: Measure) -> Measure:
        if self.pad_to == "bucket" and measure.upper is None:
            problem = "has no buckets to pad to: these batches have none"
            hint = 'use BucketBatches, or say pad_to="longest" and a larger length_multiple'
            raise ArgumentValueError("pad_to", problem, self.pad_to, hint=hint)
        return measure


def _require_within(measure: Measure, fields: list[SequenceField], shape: Ids, ids: Ids | None) -> None:
    """Refuses a batch whose fields, padded to these lengths, are above the limit of its plan."""
    count = len(fields[0].lengths)
    if measure.most is None or count <= int(measure.most(shape[None, :] if len(shape) > 1 else shape)[0]):
        return
    of = " and ".join(field.path for field in fields if field.path) or "the samples"
    problem = f"a batch of {'x'.join(map(str, (count, *shape.tolist())))} ({of}) is above its limit"
    lengths = np.stack([field.lengths for field in fields], axis=1)
    given = lengths if ids is None else measure.counted(ids).reshape(lengths.shape)
    if ids is None or (lengths > given).any():
        raise above_limit(problem, np.arange(count), ids, lengths, given)
    hint = "say length_multiple= to the recipe in place of PadCollate"
    raise DatasetError("length_multiple", problem, shape.tolist(), hint=hint)


def _like(first: Any, parts: list[Any]) -> Any:
    """A tuple of the parts, named as another one is."""
    return first._make(parts) if hasattr(first, "_make") else tuple(parts)


def _names(fields: Any) -> tuple[str, ...]:
    if isinstance(fields, str | bytes) or not isinstance(fields, Collection):
        raise ArgumentTypeError("fields", "must be a list of names", fields, hint='say ["text"]')
    for field in fields:
        if not isinstance(field, str):
            raise ArgumentTypeError("fields", "must be names, with dots between the parts", field)
    return tuple(fields)
