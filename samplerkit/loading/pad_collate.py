"""Batches of sequences of unlike lengths: padded, with masks, and held against the limit of their plan."""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping
from typing import Any, Final, Literal, final, get_args

import numpy as np

from samplerkit.batches.measure import Measure
from samplerkit.batches.plan import BatchPlan
from samplerkit.errors import ArgumentTypeError, ArgumentValueError
from samplerkit.loading.limits import require_within
from samplerkit.loading.padded_fields import (
    Naming,
    Padded,
    SampleNames,
    SequenceField,
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
class PadCollate:
    """Makes a batch of samples that hold sequences of unlike lengths: padded tensors, and masks.

    A sample is a sequence, or holds some in dicts, tuples and named tuples, also nested. A sequence is a
    tensor or an array that is no scalar, or a list of numbers; what else a sample holds goes through torch's
    `default_collate`. A field is named by its keys and places, with dots between: `text`, `source.ids`, `0`.

    A padded field in a dict keeps its key, and its boolean mask, True where no padding is, stands beside it
    as `KEY_mask`. In a tuple, or where the sample itself is the sequence, it becomes the named tuple
    (values, mask).

    As the `collate_fn` of a `Loader` with `batches`, it knows their limit: a batch above it is an error that
    names the samples whose lengths are not what was said. With `long="truncate"` it cuts off what is above.

    Args:
        pad_to: `longest` of the batch, or the upper end of its `bucket`, so that few shapes occur.
        fields: which to pad; None for all that hold sequences. The lengths of the plan are those of the first
            one, pairs those of the first two.
        value: what is padded with: a number, or one by field; 0 where nothing is said.
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
        self.value: Final = value if isinstance(value, Mapping) else _number("value", value)
        for field, one in value.items() if isinstance(value, Mapping) else ():
            _number(f"value[{field!r}]", one)
        if masks is not None and not isinstance(masks, Mapping):
            raise ArgumentTypeError("masks", "must be a mapping from a field to the key of its mask", masks)
        self.masks: Final = masks
        self.length_multiple: Final = (
            None if length_multiple is None else arguments.positive("length_multiple", length_multiple)
        )
        if plan is not None and not isinstance(plan, BatchPlan):
            raise ArgumentTypeError("plan", "must be a plan", plan, mend="say recipe.plan(sampler, dataset)")
        self._measure: Measure | None = None
        if plan is not None:
            self._measure = self._fitting(plan.measure)

    def measured_by(self, measure: Measure) -> PadCollate:
        """Gives one that knows the lengths and the limit of a run's batches: what a loader does.

        Args:
            measure: of a plan.

        Raises:
            ArgumentValueError: there are no buckets to pad to.
        """
        known = copy.copy(self)
        known._measure = self._fitting(measure)
        return known

    def __call__(self, samples: list[Any]) -> Any:
        return self.collated(samples)

    def collated(self, samples: list[Any], ids: Ids | None = None) -> Any:
        """Makes a batch of samples.

        Args:
            samples: at least one, all of one structure.
            ids: theirs, int64 of shape (samples,), for errors; None where they are not known.

        Raises:
            DatasetError: samples differ in structure or shape, or the batch is above its limit.
            ArgumentValueError: `fields` names what no sample has, or there are no buckets to pad to.
        """
        named = SampleNames(ids)
        found: dict[str, SequenceField] = {}
        tree = self._found("", list(samples), named, found)
        for path in self.fields or ():
            if path not in found:
                raise ArgumentValueError(
                    "fields",
                    "names nothing that the samples have",
                    path,
                    mend=f"they have {sample_words(samples[0])}",
                )
        if self.pad_to == "bucket" and self._measure is None:
            raise ArgumentValueError(
                "pad_to",
                "needs a plan, which has buckets",
                self.pad_to,
                mend="give batches= to the loader, or plan= to PadCollate",
            )
        lengths = self._lengths(found, ids)
        return self._padded(tree, lengths)

    def _found(self, path: str, items: list[Any], named: Naming, found: dict[str, SequenceField]) -> Any:
        """Gives the structure of a sample, with a `SequenceField` in place of what is padded."""
        first = items[0]
        if isinstance(first, Mapping):
            require_alike(
                path, items, lambda item: isinstance(item, Mapping) and item.keys() == first.keys(), named
            )
            return {
                key: self._found(_below(path, key), [item[key] for item in items], named, found)
                for key in first
            }
        if isinstance(first, tuple):
            size = len(first)
            require_alike(path, items, lambda item: isinstance(item, tuple) and len(item) == size, named)
            parts = [
                self._found(_below(path, place), list(column), named, found)
                for place, column in enumerate(zip(*items, strict=True))
            ]
            return first._make(parts) if hasattr(first, "_make") else tuple(parts)  # a named tuple
        if path in self.fields if self.fields is not None else is_sequence(first):
            field = field_of(path, items, named)
            longest = None if self._measure is None else self._measure.longest
            found[path] = field if longest is None else field.truncated(longest)
            return found[path]
        return collated_by_torch(path, items)

    def _lengths(self, found: dict[str, SequenceField], ids: Ids | None) -> dict[str, int]:
        """Gives what each field is padded to, and holds the batch against its limit."""
        longest = {path: int(field.lengths.max()) for path, field in found.items()}
        measure = self._measure
        if measure is None or measure.lengths is None or measure.keys is not None:
            return {path: self._rounded(length) for path, length in longest.items()}
        said = [found[path] for path in self.fields or found][: 2 if measure.lengths.are_pairs else 1]
        if len(said) <= measure.lengths.are_pairs:
            raise ArgumentValueError(
                "fields",
                "names fewer fields than a sample has lengths",
                [field.path for field in said],
                mend="let lengths and fields speak of the same sequences",
            )
        lengths = np.stack([field.lengths for field in said], axis=1)
        longest_of_said = lengths.max(axis=0)
        if self.pad_to == "bucket" and measure.upper is not None:
            longest_of_said = measure.upper(longest_of_said)
            longest = {path: max(length, int(longest_of_said[0])) for path, length in longest.items()}
        padded = {path: self._rounded(length) for path, length in longest.items()}
        if measure.padded is not None:  # else the limit speaks of lengths that are not rounded
            longest_of_said = np.array([padded[field.path] for field in said], dtype=np.int64)
        require_within(measure, said, lengths, longest_of_said, ids)
        return padded

    def _rounded(self, length: int) -> int:
        if self._measure is not None and self._measure.padded is not None and self.length_multiple is None:
            # One length at a time, also where a sample has a pair of them.
            return int(self._measure.rounded(np.array([length]))[0])
        multiple = self.length_multiple or 1
        return -(-length // multiple) * multiple

    def _padded(self, tree: Any, lengths: dict[str, int]) -> Any:
        if isinstance(tree, SequenceField):
            value = self.value.get(tree.path, 0) if isinstance(self.value, Mapping) else self.value
            made = tree.padded(lengths[tree.path], value)
            return made if self.masks is None or tree.path in self.masks else made.values
        if isinstance(tree, dict):
            batch: dict[Any, Any] = {}
            for key, part in tree.items():
                made = self._padded(part, lengths)
                if not isinstance(made, Padded) or not isinstance(part, SequenceField):
                    batch[key] = made
                    continue
                batch[key] = made.values
                name = f"{key}_mask" if self.masks is None else self.masks[part.path]
                if name in tree or name in batch:
                    raise ArgumentValueError(
                        "masks",
                        "would take the place of a field of the samples",
                        name,
                        mend="give another key, or masks={} for no masks",
                    )
                batch[name] = made.mask
            return batch
        if isinstance(tree, tuple):
            parts = [self._padded(part, lengths) for part in tree]
            return tree._make(parts) if hasattr(tree, "_make") else tuple(parts)
        return tree

    def _fitting(self, measure: Measure) -> Measure:
        if self.pad_to == "bucket" and measure.upper is None:
            raise ArgumentValueError(
                "pad_to",
                "has no buckets to pad to: these batches have none",
                self.pad_to,
                mend='use BucketBatches, or say pad_to="longest" and a larger length_multiple',
            )
        return measure


def _below(path: str, key: Any) -> str:
    return f"{path}.{key}" if path else str(key)


def _names(fields: Any) -> tuple[str, ...]:
    if isinstance(fields, str | bytes) or not isinstance(fields, Collection):
        raise ArgumentTypeError("fields", "must be a list of names", fields, mend='say ["text"]')
    for field in fields:
        if not isinstance(field, str):
            raise ArgumentTypeError("fields", "must be names, with dots between the parts", field)
    return tuple(fields)


def _number(place: str, value: Any) -> Any:
    if not isinstance(value, int | float | np.number):
        raise ArgumentTypeError(place, "must be a number", value)
    return value
