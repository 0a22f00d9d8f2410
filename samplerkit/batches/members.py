"""The members of a set sorted by length: what a plan over the whole set reads its samples from."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, Final, final

import numpy as np

from samplerkit.batches.histogram import Histogram
from samplerkit.batches.kept import KeptArrays
from samplerkit.batches.lengths import CHUNK, SampleLengths
from samplerkit.order.intervals import edges_of
from samplerkit.order.typing import Ids

KEPT_FROM = 1 << 18
"""Sets from this size on have their table in a file, which processes share."""

_IN_A_LOOKUP = 1 << 22


@final
class SortedMembers:
    """The samples of a set, the longest first, those of one length by their ids.

    The table depends on the lengths and the set alone, so that one file serves all recipes, seeds and epochs.

    Args:
        lengths: of the dataset's samples, one each.
        ids: the set, ascending, none twice; None for the first samples, as many as the histogram counts.
        histogram: of the set's lengths.
        kept: where the table of a large set is kept.

    Example:
        >>> lengths = SampleLengths([5, 3, 5, 9])
        >>> members = SortedMembers(lengths, None, lengths.histogram, KeptArrays("/nonexistent"))
        >>> members.at(np.arange(4)), members.places_of(np.array([2, 3]))
        (array([3, 0, 2, 1]), (array([0, 1]), array([2, 0])))
    """

    def __init__(
        self, lengths: SampleLengths, ids: Ids | None, histogram: Histogram, kept: KeptArrays
    ) -> None:
        self._lengths = lengths
        self._values = histogram.values
        self.starts: Final[Ids] = edges_of(histogram.counts)
        self.size: Final = int(self.starts[-1])
        dtype = self.dtype = np.dtype("<u4" if lengths.size <= 1 << 32 else "<i8")
        fill = partial(self._fill, ids)
        if self.size < KEPT_FROM:
            self._table: np.ndarray[Any, Any] = np.empty(self.size, dtype=dtype)
            fill(self._table)
        else:
            mapped = kept.mapped(f"members-{histogram.digest}", self.size, dtype, fill)
            # A part of a memmap is a memmap, each made in Python: a view of it is an array.
            self._table = mapped.view(np.ndarray)

    def part(self, start: int, count: int) -> np.ndarray[Any, Any]:
        """Gives the samples at `count` places from `start` on, as the table holds them."""
        return self._table[start : start + count]

    def at(self, places: Ids) -> Ids:
        """Gives the samples at some places of the table."""
        return self._table[places].astype(np.int64)

    def places_of(self, ids: Ids) -> tuple[Ids, Ids]:
        """Finds samples in the table.

        Returns:
            (which, places): ids[which[i]] stands at places[i]; one that is no member is not in `which`.
        """
        which = np.flatnonzero((ids >= 0) & (ids < self._lengths.size))
        wanted = ids[which]
        # The values descend, and so their negatives ascend.
        run = np.searchsorted(-self._values, -self._lengths.at(wanted))
        is_run = run < self._values.size
        which, wanted, run = which[is_run], wanted[is_run], run[is_run]
        low, high = self.starts[run], self.starts[run + 1]
        end = high.copy()
        while (low < high).any():
            middle = (low + high) // 2
            # A search that has ended may point behind the table.
            is_before = self._table[np.minimum(middle, self.size - 1)] < wanted
            is_open = low < high
            low, high = (
                np.where(is_open & is_before, middle + 1, low),
                np.where(is_open & ~is_before, middle, high),
            )
        is_there = low < end
        is_there[is_there] = self._table[low[is_there]] == wanted[is_there]
        return which[is_there], low[is_there]

    def _fill(self, ids: Ids | None, table: np.ndarray[Any, Any]) -> None:
        """Sorts by counting, a chunk at a time, so that memory holds a chunk whatever the size of the set."""
        next_places = self.starts[:-1].copy()
        numbers = _numbers_by_value(self._values)
        for samples, lengths in self._chunks(ids):
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

    def _chunks(self, ids: Ids | None) -> Iterator[tuple[Ids, Ids]]:
        if ids is None:
            start = 0
            for lengths in self._lengths.chunks(self.size):
                yield np.arange(start, start + lengths.size), lengths
                start += lengths.size
            return
        for start in range(0, ids.size, CHUNK):
            samples = ids[start : start + CHUNK]
            yield samples, self._lengths.at(samples)


def _numbers_by_value(values: Ids) -> np.ndarray[Any, Any] | None:
    """Makes a table of the number of each value, where the values are small enough for one."""
    if not values.size or values[0] >= _IN_A_LOOKUP:
        return None
    numbers = np.zeros(int(values[0]) + 1, dtype=np.int32)
    numbers[values] = np.arange(values.size)
    return numbers
