"""How documents fill packs: parts as long as a pack, and best-fit decreasing for the remainders."""

from bisect import bisect_left, insort
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Any, Final, Literal, get_args

import numpy as np

from samplerkit.order.intervals import edges_of, interval_of, numbers_in
from samplerkit.order.typing import Ids

LongDocument = Literal["split", "raise", "drop", "truncate"]
"""How a document that is longer than a pack is handled."""

LONG_DOCUMENTS: Final = get_args(LongDocument)


@dataclass(frozen=True)
class Fit:
    """How documents are divided into parts, and how much of a pack each part takes.

    Args:
        seq_len: tokens of a pack.
        multiple: the length of a part is rounded up to a multiple of it; it divides `seq_len`.
        long: how a document that is longer than a pack is handled.

    Example:
        >>> Fit(8, 2, "split").parts(np.array([3, 8, 16, 17, 0]))
        (array([0, 0, 1, 2, 0]), array([3, 8, 8, 1, 0]))
    """

    seq_len: int
    multiple: int
    long: LongDocument

    @property
    def capacity(self) -> int:
        """The size of a pack, in multiples."""
        return self.seq_len // self.multiple

    def parts(self, lengths: Ids) -> tuple[Ids, Ids]:
        """Returns how many packs a document of each length fills by itself, and its remaining tokens.

        Both are 0 for a document that is left out, since it has no tokens or is too long.

        Args:
            lengths: of documents, int64 of shape (m,).

        Returns:
            (full, rest), each int64 of shape (m,).
        """
        full = np.maximum(lengths - 1, 0) // self.seq_len
        if self.long == "split":
            return full, lengths - full * self.seq_len
        rest = np.minimum(lengths, self.seq_len) if self.long == "truncate" else np.where(full, 0, lengths)
        return np.zeros_like(full), rest

    def is_last(self, lengths: Ids) -> np.ndarray[Any, Any]:
        """Returns whether the last part of a document has its end: not if it is truncated."""
        return (
            np.asarray(lengths <= self.seq_len) if self.long == "truncate" else np.ones(lengths.shape, bool)
        )

    def sizes(self, lengths: Ids) -> Ids:
        """Returns the size of a part of each length, in multiples."""
        return -(-lengths // self.multiple)


class Bins:
    """The bins of best-fit decreasing: from the largest item on, each goes where it leaves the least space.

    Among bins with the same space it goes into the first one, and if it fits into none, into a new one. Items
    and bins are numbered in this order.

    There may be 10^9 items, but only a few sizes. So neighbouring bins with the same content are one run, and
    what one size adds to a run is one entry: the same number of items in each bin. For example, sizes 6, 6,
    4, 3, 3 and bins of 10:

    - Items 0 and 1, of size 6, open a run of bins 0 and 1: an entry of 1 item in each.
    - Item 2, of size 4, fills bin 0: an entry of 1 item for a run of bin 0 alone.
    - Items 3 and 4, of size 3: one goes into bin 1, the other opens bin 2. These are two entries.

    A few entries per size are enough. Each follows the items of the one before, so both the items of a bin
    and the bin of an item are found by arithmetic.

    Args:
        sizes: the sizes that occur, descending, each in [1, capacity]; int64 of shape (d,).
        counts: the number of items of each size, positive; int64 of shape (d,).
        capacity: of a bin.

    Attributes:
        count: the number of bins.

    Example:
        >>> bins = Bins(np.array([6, 4, 3]), np.array([2, 1, 2]), capacity=10)
        >>> items, edges = bins.items(np.arange(bins.count))
        >>> items.tolist(), edges.tolist(), bins.bin_of(np.arange(5)).tolist()
        ([0, 2, 1, 3, 4], [0, 2, 4, 5], [0, 1, 0, 1, 2])
    """

    def __init__(self, sizes: Ids, counts: Ids, capacity: int) -> None:
        entries, classes = _packed(sizes.tolist(), counts.tolist(), capacity)
        columns = np.array(entries, dtype=np.int64).reshape(-1, 4).T
        first_items, self._first_bins, self._copies, before = columns
        self._first_items = np.append(first_items, int(counts.sum()))
        ends = np.array(classes, dtype=np.int64).reshape(-1, 3)
        ends = ends[np.argsort(ends[:, 0])]
        self.count = int(ends[:, 1].sum())
        self._starts = np.append(ends[:, 0], self.count)
        # Each entry has the number of the one before in its run. Here, the entries of each final run become a
        # slice of an array, from the first to the last.
        depths = np.zeros(len(ends), dtype=np.int64)
        chains = []
        at = ends[:, 2]
        while (at >= 0).any():
            chains.append(at)
            depths += at >= 0
            at = np.where(at >= 0, before[at], -1)
        self._edges = edges_of(depths)
        self._entries = np.empty(int(self._edges[-1]), dtype=np.int64)
        for level, chain in enumerate(chains):
            present = np.flatnonzero(chain >= 0)
            self._entries[self._edges[present + 1] - 1 - level] = chain[present]

    def items(self, bins: Ids) -> tuple[Ids, Ids]:
        """Returns the items in some bins, from the largest to the smallest in each.

        Args:
            bins: int64 of shape (b,).

        Returns:
            (items, edges): bins[i] has items[edges[i]:edges[i + 1]].
        """
        kind = interval_of(self._starts, bins)
        depths = self._edges[kind + 1] - self._edges[kind]
        entries = self._entries[numbers_in(self._edges[kind], depths)]
        copies = self._copies[entries]
        first = self._first_items[entries] + (np.repeat(bins, depths) - self._first_bins[entries]) * copies
        ends = edges_of(copies)
        return numbers_in(first, copies), ends[edges_of(depths)]

    def bin_of(self, items: Ids) -> Ids:
        """Returns the bin of each item: the inverse of `items`."""
        entry = interval_of(self._first_items, items)
        bins: Ids = self._first_bins[entry] + (items - self._first_items[entry]) // self._copies[entry]
        return bins


_Entry = tuple[int, int, int, int]
"""First item, first bin, items per bin, and the number of the entry before in these bins, -1 for none."""

_Run = tuple[int, int, int]
"""Neighbouring bins with the same content: first bin, number of bins, number of the last entry."""


class _OpenRuns:
    """Runs by the space in each of their bins.

    Args:
        least: the smallest size: bins with less space are closed.
    """

    def __init__(self, least: int) -> None:
        self._least = least
        self._spaces: list[int] = []
        self._runs: dict[int, list[_Run]] = {}
        self._closed: list[_Run] = []

    def put(self, space: int, run: _Run) -> None:
        if space < self._least:
            self._closed.append(run)
            return
        heap = self._runs.get(space)
        if heap is None:
            self._runs[space] = [run]
            insort(self._spaces, space)
        else:
            heappush(heap, run)

    def take(self, size: int) -> tuple[int, _Run] | None:
        """Removes and returns the first run of those with the least space of at least `size`, and the space.

        Returns:
            None if no run has so much space.
        """
        at = bisect_left(self._spaces, size)
        if at == len(self._spaces):
            return None
        space = self._spaces[at]
        heap = self._runs[space]
        if len(heap) > 1:
            return space, heappop(heap)
        del self._runs[space], self._spaces[at]
        return space, heap[0]

    def all(self) -> list[_Run]:
        return self._closed + [run for heap in self._runs.values() for run in heap]


def _packed(sizes: list[int], counts: list[int], capacity: int) -> tuple[list[_Entry], list[_Run]]:
    """Returns the entries and the final runs; arguments as for `Bins`.

    A bin of the run with the least space takes as many items of a size as fit: after one item it has less
    space than the others. So a run becomes at most three: full bins, one bin with fewer items, and the rest.
    """
    entries: list[_Entry] = []
    open_runs = _OpenRuns(sizes[-1] if sizes else capacity)
    put, take = open_runs.put, open_runs.take
    item = opened = 0
    for size, count in zip(sizes, counts, strict=True):
        end = item + count
        while item < end:
            taken = take(size)
            if taken is None:
                needed = -(-(end - item) // (capacity // size))
                taken = capacity, (opened, needed, -1)
                opened += needed
            space, (first, bins, last) = taken
            fit = space // size
            filled = min(bins, (end - item) // fit)
            if filled:
                put(space - fit * size, (first, filled, len(entries)))
                entries.append((item, first, fit, last))
                item += filled * fit
            if filled < bins:
                rest = end - item
                if rest:
                    put(space - rest * size, (first + filled, 1, len(entries)))
                    entries.append((item, first + filled, rest, last))
                    item = end
                    filled += 1
                if filled < bins:
                    put(space, (first + filled, bins - filled, last))
    return entries, open_runs.all()
