"""Batches of samples from one bucket of lengths, or of one key."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import partial
from itertools import pairwise
from typing import Any, final

import numpy as np

from samplerkit.batches.apart import Repeats, repeats_in, spread
from samplerkit.batches.buckets import Buckets, upper_of
from samplerkit.batches.checks import fill_in
from samplerkit.batches.chosen import ChosenSet
from samplerkit.batches.cuts import SHORTS, Short
from samplerkit.batches.histogram import Histogram
from samplerkit.batches.kept import KeptArrays
from samplerkit.batches.keys import SampleKeys
from samplerkit.batches.lengths import SampleLengths, found_lengths, histogram_of
from samplerkit.batches.measure import Measure
from samplerkit.batches.members import SortedMembers
from samplerkit.batches.recipe import DEFAULT_WINDOW, BatchRecipe, Prepared
from samplerkit.batches.static import StaticPlan
from samplerkit.batches.window_cut import WindowContext
from samplerkit.errors import ArgumentRangeError, ArgumentTypeError, ArgumentValueError, DatasetError
from samplerkit.order import arguments
from samplerkit.order.intervals import edges_of
from samplerkit.order.layout import Layout
from samplerkit.order.typing import Ids

_MOST_SAMPLES = 1 << 31


@final
@dataclass(frozen=True, eq=False)
class BucketBatches(BatchRecipe):
    """Batches of samples whose lengths lie between the same boundaries, or that have the same key.

    Args:
        boundaries: the longest length of each bucket, ascending; None with `keys`.
        batch_size: samples in a batch: one number, one for each boundary, or a mapping from each key.
        lengths: of the samples: integers in an array or a list, or the path of an `.npy` file. Left out, the
            dataset's attribute or column `lengths` or `length`.
        keys: of the samples in place of lengths, for instance (height, width): an array of shape (n,) or
            (n, 2), or a list of hashable values.
        short: what becomes of the last batch of a bucket: `merge` completes it from the next shorter bucket,
            `keep` leaves it short, `drop` leaves it out. None means `merge`, and `keep` with `keys`.
        window: samples in a window; None for the whole set where the sampler fixes one, and else 16,384.
        abreast: batches that cost alike; None for the number of ranks at the first start.
        num_batches: batches in an epoch at most; None for all.

    Raises:
        ArgumentTypeError: an argument has the wrong type, or a key cannot be hashed.
        ArgumentRangeError: a number is out of range, or boundaries do not ascend.
        ArgumentValueError: `short` is not known, or lengths stand beside keys.

    Example:
        >>> import samplerkit as sk
        >>> shapes = [(64, 64), (64, 96), (64, 64), (64, 96), (64, 64)]
        >>> plan = BucketBatches(None, 2, keys=shapes).plan(sk.RandomSampler(seed=1), 5)
        >>> sorted(map(plan.shape, range(len(plan))))
        [(1, 64, 64), (2, 64, 64), (2, 64, 96)]
    """

    boundaries: Sequence[int] | np.ndarray[Any, Any] | None
    batch_size: int | Sequence[int] | Mapping[Any, int]
    _: KW_ONLY
    lengths: Sequence[int] | np.ndarray[Any, Any] | str | os.PathLike[str] | None = field(
        default=None, repr=False
    )
    keys: Sequence[Any] | np.ndarray[Any, Any] | None = field(default=None, repr=False)
    short: Short | None = None
    window: int | None = None
    abreast: int | None = None
    num_batches: int | None = None

    def __post_init__(self) -> None:
        for name in ("window", "abreast", "num_batches"):
            fill_in(self, name, is_optional=True)
        if (self.boundaries is None) == (self.keys is None):
            raise ArgumentValueError(
                "boundaries", "or keys must be given, and not both", self.boundaries, mend="choose one"
            )
        if self.keys is not None and self.lengths is not None:
            raise ArgumentValueError(
                "lengths", "stand beside keys", type(self.lengths), mend="leave them out"
            )
        short = self.short or ("merge" if self.keys is None else "keep")
        arguments.choice("short", short, SHORTS)
        if self.keys is not None and short == "merge":
            raise ArgumentValueError("short", "would mix keys", short, mend='say "keep" or "drop"')
        object.__setattr__(self, "short", short)
        if self.boundaries is not None:
            object.__setattr__(self, "boundaries", _boundaries(self.boundaries))
        object.__setattr__(self, "batch_size", self._checked_sizes())

    def prepared(self, dataset: Any, chosen: ChosenSet | None, abreast: int, kept: KeptArrays) -> Prepared:
        lengths, measure = self._measured(dataset, kept)
        in_windows = Prepared(measure, partial(self._cut, measure), self.window or DEFAULT_WINDOW)
        size, ids = (lengths.size, None) if chosen is None else (chosen.size, chosen.ids)
        histogram = histogram_of(lengths, size, ids)
        self._require_fit(measure, histogram)
        if chosen is None or self.window is not None:
            return in_windows
        number = self._bucket_of(measure, histogram.values)
        first = np.flatnonzero(np.diff(number, prepend=-1))
        before = edges_of(histogram.counts)
        buckets = Buckets(
            np.append(before[first], before[-1]),
            histogram.values[first],
            self._sizes(measure)[number[first]],
        )
        members = SortedMembers(lengths, chosen.ids, histogram, kept)
        whole = partial(StaticPlan, members, buckets, self._short, abreast, measure, self.num_batches)
        return replace(in_windows, whole=whole)

    def _measured(self, dataset: Any, kept: KeptArrays) -> tuple[SampleLengths, Measure]:
        size = len(Layout.of(dataset))
        if self.keys is not None:
            keys = SampleKeys(self.keys)
            if keys.numbers.size != size:
                raise DatasetError(
                    "keys", f"must be one for each of the {size} samples of the dataset", keys.numbers.size
                )
            return keys.numbers, Measure(keys.numbers, keys=keys.values)
        lengths = found_lengths(self.lengths, dataset, size, kept)
        if lengths.are_pairs:
            raise ArgumentValueError(
                "lengths", "are pairs, which have no boundaries", (size, 2), mend="use TokenBatches, or keys="
            )
        measure, boundaries = Measure(lengths), np.asarray(self.boundaries)
        most = partial(_most, boundaries, self._sizes(measure))
        return lengths, replace(measure, upper=partial(upper_of, boundaries), most=most)

    def _require_fit(self, measure: Measure, histogram: Histogram) -> None:
        if measure.keys is not None:
            self._sizes_of_keys(measure)
            return
        longest, last = int(histogram.values.max(initial=0)), int(np.asarray(self.boundaries)[-1])
        if longest > last:
            raise ArgumentRangeError(
                "boundaries",
                f"end before the longest sample, of length {longest}",
                last,
                mend="add a boundary that holds it",
            )

    def cut(self, ids: Ids, lengths: Ids, context: WindowContext) -> list[Ids]:
        """Cuts a window into batches, the longest bucket first; `lengths` are numbers with keys."""
        return self._cut(Measure(), ids, lengths, context)

    def _cut(self, measure: Measure, ids: Ids, lengths: Ids, context: WindowContext) -> list[Ids]:
        repeats = repeats_in(ids)
        number = self._bucket_of(measure, lengths)
        firsts = np.arange(ids.size) if repeats is None else repeats.firsts
        places = np.lexsort((firsts, -number))
        sizes = self._sizes(measure)[number[places]]
        if self._short == "merge":
            return spread(places, sizes, repeats)
        edges = [0, *(np.flatnonzero(np.diff(number[places])) + 1).tolist(), ids.size]
        batches: list[Ids] = []
        for begin, end in pairwise(edges):
            batches += self._bucket(places[begin:end], sizes[begin:end], repeats)
        return batches

    def _bucket(self, places: Ids, sizes: Ids, repeats: Repeats | None) -> list[Ids]:
        batches = spread(places, sizes, repeats)
        if self._short == "keep":
            return batches
        return [batch for batch in batches if batch.size == sizes[0]]

    @property
    def _short(self) -> Short:
        return self.short or "merge"

    def _bucket_of(self, measure: Measure, lengths: Ids) -> Ids:
        if measure.keys is not None:
            return lengths
        return np.searchsorted(np.asarray(self.boundaries), lengths)

    def _sizes(self, measure: Measure) -> Ids:
        """Gives the batch size of each bucket."""
        if measure.keys is not None:
            return self._sizes_of_keys(measure)
        return np.broadcast_to(np.asarray(self.batch_size), np.asarray(self.boundaries).shape)

    def _sizes_of_keys(self, measure: Measure) -> Ids:
        keys = measure.keys or ()
        if not isinstance(self.batch_size, Mapping):
            return np.broadcast_to(np.asarray(self.batch_size), (len(keys),))
        missing = [key for key in keys if key not in self.batch_size]
        if missing:
            raise ArgumentValueError(
                "batch_size", "has no number for a key", missing[0], mend="give one for each key"
            )
        return np.array([self.batch_size[key] for key in keys], dtype=np.int64)

    def _checked_sizes(self) -> Any:
        given: Any = self.batch_size
        if isinstance(given, Mapping):
            if self.keys is None:
                raise ArgumentTypeError("batch_size", "must be a number, or one for each boundary", given)
            return {
                key: arguments.positive(f"batch_size[{key!r}]", size, _MOST_SAMPLES)
                for key, size in given.items()
            }
        if hasattr(given, "__index__") and not np.ndim(given):
            return arguments.positive("batch_size", given, _MOST_SAMPLES)
        if self.keys is not None or isinstance(given, str | bytes) or not hasattr(given, "__len__"):
            raise ArgumentTypeError("batch_size", "must be a number, or one for each bucket", given)
        sizes = [
            arguments.positive(f"batch_size[{at}]", size, _MOST_SAMPLES) for at, size in enumerate(given)
        ]
        if len(sizes) != len(np.asarray(self.boundaries)):
            raise ArgumentValueError(
                "batch_size",
                f"must be one for each of the {len(np.asarray(self.boundaries))} boundaries",
                len(sizes),
            )
        return tuple(sizes)


def _boundaries(given: Any) -> tuple[int, ...]:
    array = arguments.indices(given, "boundaries")
    if (np.diff(array) <= 0).any():
        raise ArgumentRangeError("boundaries", "must ascend", given, mend="sort them, each once")
    return tuple(array.tolist())


def _most(boundaries: Ids, sizes: Ids, lengths: Ids) -> Ids:
    at = np.minimum(np.searchsorted(boundaries, lengths), boundaries.size - 1)
    return np.where(lengths > boundaries[-1], 0, sizes[at])
