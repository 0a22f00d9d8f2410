"""The plan of a whole set: arithmetic on the number of samples of each length, and one table of samples."""

from dataclasses import dataclass
from functools import partial
from typing import Any, Final, final

import numpy as np

from samplerkit.batches.budget import Buckets
from samplerkit.batches.cutting import Cuts, Groups, Short
from samplerkit.batches.lengths import Histogram, SampleLengths
from samplerkit.batches.plan import BatchPlan, BatchSamples
from samplerkit.batches.sample_set import SampleSet
from samplerkit.batches.table_cache import TableCache
from samplerkit.order.files import BlockShuffle, permuted_within
from samplerkit.order.intervals import edges_of, interval_of, numbers_in
from samplerkit.order.keys import Key
from samplerkit.order.order import Located
from samplerkit.order.typing import Ids

CACHED_FROM = 1 << 18
"""The table of a set of at least this size is in a file, which processes share."""

_LOOKUP_LIMIT = 1 << 22
"""Lengths up to this one are numbered by a table, others by a search."""


class SortedMembers:
    """The samples of a set, sorted by length, the longest first; those of one length ascend.

    The table depends only on the lengths and the set, so that one file serves all recipes, seeds and epochs.

    Args:
        lengths: of all samples of the dataset, not pairs.
        chosen: the set, its ids ascending and distinct.
        histogram: of the set's lengths.
        cache: of the tables of large sets.

    Attributes:
        starts: the place of the first sample of each length, and the size at the end; shape (lengths + 1,).
        size: the number of samples.

    Example:
        >>> lengths = SampleLengths([5, 3, 5, 9])
        >>> members = SortedMembers(lengths, SampleSet(4), lengths.histogram, TableCache("/nonexistent"))
        >>> members.at(np.arange(4)), members.places_of(np.array([2, 3]))
        (array([3, 0, 2, 1]), (array([0, 1]), array([2, 0])))
    """

    def __init__(
        self, lengths: SampleLengths, chosen: SampleSet, histogram: Histogram, cache: TableCache
    ) -> None:
        self._lengths = lengths
        self._values = histogram.values
        self.starts: Final[Ids] = edges_of(histogram.counts)
        self.size: Final = int(self.starts[-1])
        dtype = self.dtype = np.dtype("<u4" if lengths.size <= 1 << 32 else "<i8")
        fill = partial(self._fill, chosen)
        if self.size < CACHED_FROM:
            self._table: np.ndarray[Any, Any] = np.empty(self.size, dtype=dtype)
            fill(self._table)
        else:
            mapped = cache.mapped(f"members-{histogram.digest}", self.size, dtype, fill)
            # As a plain array: indexing a memmap runs Python code for each result.
            self._table = mapped.view(np.ndarray)

    def at(self, places: Ids) -> Ids:
        """Returns the samples at places of the table: int64 of shape (m,)."""
        return self._table[places].astype(np.int64)

    def places_of(self, ids: Ids) -> tuple[Ids, Ids]:
        """Finds samples in the table.

        Returns:
            (which, places): ids[which[i]] is at places[i]. Ids that are not in the set are not in `which`.
        """
        which = np.flatnonzero((ids >= 0) & (ids < self._lengths.size))
        targets = ids[which]
        # The values descend, and so their negatives ascend.
        run = np.searchsorted(-self._values, -self._lengths.at(targets))
        is_run = run < self._values.size
        which, targets, run = which[is_run], targets[is_run], run[is_run]
        # A binary search for each id among the samples of its length.
        low, high = self.starts[run], self.starts[run + 1]
        end = high.copy()
        while (low < high).any():
            middle = (low + high) // 2
            # A search that ended may be past the end of the table.
            is_before = self._table[np.minimum(middle, self.size - 1)] < targets
            is_open = low < high
            low, high = (
                np.where(is_open & is_before, middle + 1, low),
                np.where(is_open & ~is_before, middle, high),
            )
        exists = low < end
        exists[exists] = self._table[low[exists]] == targets[exists]
        return which[exists], low[exists]

    def _fill(self, chosen: SampleSet, table: np.ndarray[Any, Any]) -> None:
        """Fills the table, a chunk of samples at a time: a counting sort, whose memory is that of a chunk."""
        next_places = self.starts[:-1].copy()
        numbers = _numbers_by_value(self._values)
        for samples, lengths in self._lengths.chunks(chosen):
            run = (
                np.searchsorted(-self._values, -lengths)
                if numbers is None
                else numbers[lengths].astype(np.int64)
            )
            narrow = run.astype(np.uint16) if self._values.size <= 1 << 16 else run
            by_run = np.argsort(narrow, kind="stable")
            sorted_run = run[by_run]
            counts = np.bincount(run, minlength=self._values.size)
            within = np.arange(run.size) - (np.cumsum(counts) - counts)[sorted_run]
            table[next_places[sorted_run] + within] = samples[by_run]
            next_places += counts


def _numbers_by_value(values: Ids) -> np.ndarray[Any, Any] | None:
    """Returns a table with the index of each value, or None if values are too large for one."""
    if not values.size or values[0] >= _LOOKUP_LIMIT:
        return None
    numbers = np.zeros(int(values[0]) + 1, dtype=np.int32)
    numbers[values] = np.arange(values.size)
    return numbers


CACHED_UP_TO = 1 << 22
"""The plan of a set up to this size caches its permuted samples: 16 MiB at most."""

CACHED_ABREAST = 4
"""With larger groups, so with more ranks, a rank permutes its own samples only, which costs less."""


@dataclass(eq=False, repr=False)
class SetPlan(BatchPlan):
    """A plan of a whole set, whose number of batches is known from the start.

    Args:
        num_batches: the most batches; None for all.
        keys: one for the samples in batches, one for groups.
        members: the set, sorted by length.
    """

    num_batches: int | None
    keys: tuple[Key, Key]
    members: SortedMembers

    def _set_count(self, count: int) -> None:
        """Sets the number of batches of the whole set."""
        self._groups = Groups(count, self.abreast, self.keys[1])
        self._length = count if self.num_batches is None else min(self.num_batches, count)

    @final
    def __len__(self) -> int:
        return self._length


@dataclass(eq=False, repr=False)
class StaticPlan(SetPlan):
    """Batches of buckets. Each epoch permutes the samples within buckets and the groups of batches.

    Args:
        buckets: of the set.
        short: how the last batch of a bucket is handled.
    """

    buckets: Buckets
    short: Short

    def __post_init__(self) -> None:
        self._first = int(self.buckets.starts[0])
        self._starts = starts = self.buckets.starts - self._first
        self._cuts = Cuts(starts, self.buckets.sizes, self.short)
        self._set_count(self._cuts.count)
        self._shuffle = BlockShuffle(starts, None, self.keys[0])
        is_small = self.members.size <= CACHED_UP_TO and starts.size > 1 and self.abreast <= CACHED_ABREAST
        self._cached_ids = np.empty(int(starts[-1]), dtype=self.members.dtype) if is_small else None
        self._is_cached = np.zeros(self.buckets.sizes.size, dtype=bool)

    @property
    def dropped(self) -> int:
        return self.members.size - self._cuts.placed

    @property
    def num_draws(self) -> int:
        return int(self._starts[-1])

    def samples(self, numbers: Ids) -> BatchSamples:
        begin, end = self._cuts.edges(self._groups.forward(numbers))
        sizes = end - begin
        edges = edges_of(sizes)
        places = numbers_in(begin, sizes)
        return BatchSamples(self._ids_at(places, begin, end), places, edges)

    def _ids_at(self, places: Ids, begin: Ids, end: Ids) -> Ids:
        """Returns the samples of batches; those of small sets are cached, bucket by bucket.

        Args:
            places: of all batches, one batch after another; int64 of shape (m,).
            begin: the first place of each batch; shape (b,).
            end: the place after the last one of each batch; shape (b,).
        """
        if self._cached_ids is None:
            return self._look_up(places)
        touched = np.zeros(self._is_cached.size + 1, dtype=np.int64)
        np.add.at(touched, interval_of(self._starts, begin), 1)
        np.add.at(touched, interval_of(self._starts, end - 1) + 1, -1)
        for bucket in np.flatnonzero((np.cumsum(touched[:-1]) > 0) & ~self._is_cached).tolist():
            block, start = self._shuffle.block(bucket), int(self._starts[bucket])
            rows = block.permuted(np.arange(block.size))
            self._cached_ids[start : start + block.size] = self.members.at(rows + self._first + start)
            # Set last, since other threads may read it.
            self._is_cached[bucket] = True
        return self._cached_ids[places].astype(np.int64)

    def _look_up(self, places: Ids) -> Ids:
        """Returns the samples of batches, evaluated bucket by bucket; `places` as for `_ids_at`."""
        at = np.argsort(places, kind="stable")
        rows = places[at]
        counts = np.diff(np.searchsorted(rows, self._starts))
        buckets = np.flatnonzero(counts)
        counts = counts[buckets]
        starts = np.repeat(self._starts[buckets], counts)
        rows -= starts
        blocks = [*map(self._shuffle.block, buckets.tolist())]
        block_of = np.repeat(np.arange(buckets.size), counts)
        rows = permuted_within(blocks, block_of, rows)
        rows += starts
        rows += self._first
        ids = np.empty(places.size, dtype=np.int64)
        ids[at] = self.members.at(rows)
        return ids

    def locate(self, ids: Ids) -> Located:
        which, rows = self.members.places_of(ids)
        is_used = rows >= self._first
        which, rows = which[is_used], rows[is_used] - self._first
        if not which.size:
            return which, rows
        matches, places = self._shuffle.locate(rows)
        batches = self._cuts.batch_of(places)
        is_placed = batches >= 0
        which, numbers = which[matches[is_placed]], self._groups.backward(batches[is_placed])
        exists = numbers < self._length
        return which[exists], numbers[exists]
