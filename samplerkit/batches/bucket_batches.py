"""Batches of samples with lengths in one bucket, or with one key."""

import os
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any, final

import numpy as np

from samplerkit.batches.budget import Buckets, upper_of
from samplerkit.batches.cutting import SHORTS, Short, repeats_in, spread
from samplerkit.batches.lengths import Histogram, SampleLengths, find_lengths
from samplerkit.batches.plan import Measure
from samplerkit.batches.recipe import SHARED_ARGUMENTS, BatchRecipe, Prepared, require_positive
from samplerkit.batches.sample_set import SampleSet
from samplerkit.batches.set_plan import SortedMembers, StaticPlan
from samplerkit.batches.table_cache import TableCache
from samplerkit.batches.window_plan import WindowContext
from samplerkit.errors import ArgumentRangeError, ArgumentTypeError, ArgumentValueError
from samplerkit.order import arguments
from samplerkit.order.caching import cached_property
from samplerkit.order.dataset_protocol import require_one_each
from samplerkit.order.intervals import edges_of
from samplerkit.order.typing import Ids


def number_keys(given: Any) -> tuple[tuple[Any, ...], SampleLengths]:
    """Numbers the keys of samples: returns the distinct keys, and the number of the key of each sample.

    Args:
        given: an array of shape (n,) or (n, k), or a list of hashable values.

    Raises:
        ArgumentTypeError: this is not a list, or a key cannot be hashed.
        ArgumentValueError: an array has another shape or dtype, or a NaN.

    Example:
        >>> keys, numbers = number_keys([(64, 64), (64, 96), (64, 64)])
        >>> keys, numbers.at(np.arange(3))
        (((64, 64), (64, 96)), array([0, 1, 0]))
    """
    problem = "must be a list or an array, with one key per sample"
    if isinstance(given, str | bytes | dict | set | frozenset) or not arguments.is_iterable(given):
        raise ArgumentTypeError("keys", problem, given)
    try:
        array = np.asarray(given) if hasattr(given, "__array__") else None
    except (TypeError, RuntimeError):  # a tensor on a device
        raise ArgumentTypeError("keys", problem, given) from None
    values, numbers = _number_list(list(given)) if array is None else _number_array(array)
    return values, SampleLengths(numbers, "keys")


def _number_array(array: np.ndarray[Any, Any]) -> tuple[tuple[Any, ...], np.ndarray[Any, Any]]:
    if array.ndim not in {1, 2} or array.dtype.kind not in "iubUSf":
        problem = "must be numbers or strings of shape (n,) or (n, k)"
        raise ArgumentValueError("keys", problem, (array.dtype.name, array.shape))
    if array.dtype.kind == "f" and np.isnan(array).any():
        first = int(np.argwhere(np.isnan(array))[0][0])
        raise ArgumentValueError(f"keys[{first}]", "must not be NaN", float("nan"))
    values, numbers = np.unique(array, axis=0, return_inverse=True)
    listed = values.tolist()
    keys = tuple(tuple(key) if isinstance(key, list) else key for key in listed)
    return keys, numbers.reshape(-1)


def _number_list(given: Any) -> tuple[tuple[Any, ...], np.ndarray[Any, Any]]:
    seen: dict[Any, int] = {}
    numbers = np.empty(len(given), dtype=np.int64)
    for place, key in enumerate(given):
        try:
            numbers[place] = seen.setdefault(key, len(seen))
        except TypeError:
            hint = "give a tuple in place of a list"
            raise ArgumentTypeError(f"keys[{place}]", "cannot be hashed", key, hint=hint) from None
    return tuple(seen), numbers


_MAX_SAMPLES = 1 << 31


@final
@dataclass(frozen=True, eq=False)
class BucketBatches(BatchRecipe):
    """Batches of samples whose lengths are between the same boundaries, or that have the same key.

    Args:
        boundaries: the largest length of each bucket, ascending; None with `keys`.
        batch_size: samples in a batch: one number, one for each boundary, or a mapping from each key.
        lengths: of the samples: integers in an array or a list, or the path of an `.npy` file. Left out, the
            dataset's attribute or column `lengths` or `length`.
        keys: of the samples in place of lengths, such as (height, width): an array of shape (n,) or (n, k),
            or a list of hashable values.
        short: how the last batch of a bucket is handled: `merge` completes it from the bucket of the next
            shorter lengths, `keep` leaves it short, `drop` leaves it out. None for `merge`, with `keys` for
            `keep`.
        window: samples in a window; None for the whole set if the sampler reads one, otherwise 16,384.
        abreast: batches of a group, which cost alike; None for the number of ranks at the first start.
        num_batches: the most batches in an epoch; None for all.

    Raises:
        ArgumentTypeError: an argument has the wrong type, or a key cannot be hashed.
        ArgumentRangeError: a number is out of range, or boundaries do not ascend.
        ArgumentValueError: `short` is not known, or lengths are given with keys.

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
    keys: Sequence[Hashable] | np.ndarray[Any, Any] | None = field(default=None, repr=False)
    short: Short | None = None
    window: int | None = None
    abreast: int | None = None
    num_batches: int | None = None

    def __post_init__(self) -> None:
        require_positive(self, **SHARED_ARGUMENTS)
        if (self.boundaries is None) == (self.keys is None):
            problem = "must be given, or keys, but not both"
            raise ArgumentValueError("boundaries", problem, self.boundaries, hint="choose one")
        if self.keys is not None and self.lengths is not None:
            problem = "cannot be given with keys"
            raise ArgumentValueError("lengths", problem, type(self.lengths), hint="leave them out")
        default = "merge" if self.keys is None else "keep"
        short = default if self.short is None else self.short
        arguments.choice("short", short, SHORTS)
        if self.keys is not None and short == "merge":
            problem = "would merge batches of different keys"
            raise ArgumentValueError("short", problem, short, hint='use "keep" or "drop"')
        object.__setattr__(self, "short", short)
        if self.boundaries is not None:
            object.__setattr__(self, "boundaries", _boundaries(self.boundaries))
        object.__setattr__(self, "batch_size", self._checked_sizes())

    def prepared(self, dataset: Any, chosen: SampleSet | None, abreast: int, kept: TableCache) -> Prepared:
        lengths, measure = self._measure(dataset, kept)
        histogram = lengths.histogram_of(chosen)
        self._require_fit(histogram)
        sizes = self._sizes  # also for windows, so that a key without a size is an error now
        if chosen is None or self.window is not None:
            return Prepared(measure)
        number = np.searchsorted(self._ends, histogram.values)
        first = np.flatnonzero(np.diff(number, prepend=-1))
        before = edges_of(histogram.counts)
        starts = np.append(before[first], before[-1])
        buckets = Buckets(starts, histogram.values[first], sizes[number[first]])
        members = SortedMembers(lengths, chosen, histogram, kept)
        short: Any = self.short  # not None since `__post_init__`
        return Prepared(measure, plan=partial(StaticPlan, members=members, buckets=buckets, short=short))

    def _measure(self, dataset: Any, cache: TableCache) -> tuple[SampleLengths, Measure]:
        if self.keys is not None:
            _, numbers = self._numbered_keys
            require_one_each("keys", numbers.size, dataset)
            return numbers, Measure(keys=self._numbered_keys)
        lengths = find_lengths(self.lengths, dataset, cache, pairs_hint="use TokenBatches, or keys=")
        # At least as many as of longer samples: a part of a batch may have only the samples that completed it
        # from a bucket of shorter ones.
        sizes = np.maximum.accumulate(self._sizes[::-1])[::-1]
        max_samples = partial(_max_samples, self._ends, sizes)
        return lengths, Measure(lengths, upper=partial(upper_of, self._ends), cap=max_samples)

    def _require_fit(self, histogram: Histogram) -> None:
        longest, last = int(histogram.values.max(initial=0)), int(self._ends.max(initial=0))
        if longest > last:
            problem = f"end before the longest sample, of length {longest}"
            raise ArgumentRangeError("boundaries", problem, last, hint="add a boundary that holds it")

    def cut(self, ids: Ids, lengths: Ids, context: WindowContext) -> list[Ids]:
        """Cuts a window into batches, the bucket of the longest first."""
        repeats = repeats_in(ids)
        is_by_keys = self.keys is not None
        number = self._numbered_keys[1].at(ids) if is_by_keys else np.searchsorted(self._ends, lengths)
        places, bucket_sizes = np.lexsort((repeats.firsts, -number)), self._sizes
        sizes = bucket_sizes[number[places]]
        borders = [] if self.short == "merge" else (np.flatnonzero(np.diff(number[places])) + 1).tolist()
        edges = [0, *borders, ids.size]
        batches: list[Ids] = []
        for begin, end in pairwise(edges):
            batches += spread(places[begin:end], sizes[begin:end], repeats)
        if self.short == "drop":
            batches = [batch for batch in batches if batch.size == bucket_sizes[number[batch[0]]]]
        return batches

    @cached_property
    def _numbered_keys(self) -> tuple[tuple[Any, ...], SampleLengths]:
        return number_keys(self.keys)

    @cached_property
    def _ends(self) -> Ids:
        """The largest length of each bucket. The lengths of keys are their numbers, and each has a bucket."""
        return np.asarray(self.boundaries) if self.keys is None else np.arange(len(self._numbered_keys[0]))

    @property
    def _sizes(self) -> Ids:
        """The batch size of each bucket."""
        if not isinstance(self.batch_size, Mapping):
            return np.broadcast_to(np.asarray(self.batch_size), self._ends.shape)
        keys, _ = self._numbered_keys
        missing = [key for key in keys if key not in self.batch_size]
        if missing:
            hint = "give one for each key"
            raise ArgumentValueError("batch_size", "has no number for a key", missing[0], hint=hint)
        return np.array([self.batch_size[key] for key in keys], dtype=np.int64)

    def _checked_sizes(self) -> Any:
        given: Any = self.batch_size
        if isinstance(given, Mapping):
            if self.keys is None:
                raise ArgumentTypeError("batch_size", "must be a number, or one for each boundary", given)
            named = ((key, f"batch_size[{key!r}]", size) for key, size in given.items())
            return {key: arguments.positive(name, size, _MAX_SAMPLES) for key, name, size in named}
        if hasattr(given, "__index__") and not np.ndim(given):
            return arguments.positive("batch_size", given, _MAX_SAMPLES)
        if self.keys is not None or isinstance(given, str | bytes) or not arguments.is_iterable(given):
            raise ArgumentTypeError("batch_size", "must be a number, or one for each bucket", given)
        sizes = [arguments.positive(f"batch_size[{at}]", size, _MAX_SAMPLES) for at, size in enumerate(given)]
        if len(sizes) != (count := len(np.asarray(self.boundaries))):
            problem = f"must be one for each of the {count} boundaries"
            raise ArgumentValueError("batch_size", problem, len(sizes))
        return tuple(sizes)


def _boundaries(given: Any) -> tuple[int, ...]:
    array = arguments.indices("boundaries", given)
    if (np.diff(array) <= 0).any():
        raise ArgumentRangeError("boundaries", "must ascend", given, hint="sort them, each once")
    return tuple(array.tolist())


def _max_samples(boundaries: Ids, sizes: Ids, lengths: Ids) -> Ids:
    at = np.searchsorted(boundaries, lengths)
    return np.append(sizes, 0)[at]  # above the last boundary none
