"""Which source each row of a mixture reads, and at which turn: how often its lane read that source before.

Weights may change within a lane: its rows then are divided into segments, each with its own thresholds. A
source continues where it is when weights change, although draws are counted from row 0 by one threshold. So
each segment has an offset for each source. For example, a lane read a source 30 times in its rows 0 to 39, by
the first weights. By the weights from row 40 on it would have read it 10 times there. So counts by these
weights are 20 too low for each later row, and the offset is 20.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

import numpy as np

from samplerkit.order.intervals import distinct, groups
from samplerkit.order.mixing.source_draws import NO_ROW, FirstBytes, SourceDraws
from samplerkit.order.typing import Ids

_BLOCK = 256
"""Rows whose first bytes of draws are computed at once."""

_DENSE = 4
"""Whole blocks are computed if they have at most this many rows for each row that is read."""

_MAX_COUNTED, _MIN_COUNTED_LANES = 1 << 16, 16
"""Offsets that are computed at once; with many segments those of so many lanes nevertheless."""

_MAX_CACHED, _MIN_CACHED_LANES = 1 << 21, 256
"""Offsets that are cached; with many segments those of so many lanes nevertheless."""


class LaneSegments(NamedTuple):
    """The segments of one lane.

    Args:
        firsts: the first row of each segment but the first; int64 of shape (segments - 1,).
        reads: how often the lane read each source before these rows; int64 of shape (segments - 1, sources).
        offsets: what is added to counts by the thresholds of each segment; int64 of shape (segments,
            sources).
    """

    firsts: Ids
    reads: Ids
    offsets: Ids


def _no_changes(_lane: int) -> Ids:
    return np.zeros(0, dtype=np.int64)


class SourceCounts:
    """What rows read, by weights that may change from segment to segment of the rows.

    Args:
        draws: of the rows.
        ends: the thresholds of each segment, int64 of shape (segments, sources + 1).
        firsts: returns for a lane the first row of each segment but the first, int64, ascending.

    Example:
        >>> from samplerkit.order.keys import Key
        >>> from samplerkit.order.mixing.weights import thresholds
        >>> draws = SourceDraws(Key(seed=1, epoch=0, depth=0, role="sources"))
        >>> ends = np.stack([thresholds([3, 1]), thresholds([1, 1])])  # of rows from 8 on
        >>> counts = SourceCounts(draws, ends, lambda lane: np.array([8]))
        >>> sources, turns = counts.read(np.zeros(16, dtype=int), np.arange(16))
        >>> sources.tolist()
        [0, 0, 1, 0, 0, 1, 0, 0, 0, 1, 0, 1, 1, 0, 1, 0]
        >>> turns.tolist()
        [0, 1, 0, 2, 3, 1, 4, 5, 6, 2, 7, 3, 4, 8, 5, 9]
        >>> counts.row_of(0, np.zeros(3, dtype=int), np.array([5, 6, 9]))
        array([ 7,  8, 15])
    """

    def __init__(self, draws: SourceDraws, ends: Ids, firsts: Callable[[int], Ids] = _no_changes) -> None:
        self.draws: Final = draws
        self.ends: Final = ends
        self._firsts = firsts
        self._is_static = len(ends) == 1
        self._cached: dict[int, LaneSegments] = {}

    @property
    def recipe(self) -> tuple[object, ...]:
        """What they were made from, as for an order."""
        return (*self.draws.recipe, self.ends, self._firsts)

    def read(self, lanes: Ids, rows: Ids) -> tuple[Ids, Ids]:
        """Reads rows.

        Args:
            lanes: of each row; shape (m,).
            rows: within the lanes, below 2^62; shape (m,).

        Returns:
            (sources, turns), each int64 of shape (m,): which source a row reads, and how often its lane read
            that source before.
        """
        if not rows.size:
            return rows, rows
        block = rows >> 8
        first, last = int(block.min()), int(block.max())
        span = last - first + 1
        if span * (int(lanes.max()) + 1) < 1 << 62:
            labels, index = distinct(lanes * span + (block - first))
            lane, number = np.divmod(labels, span)
            if labels.size * _BLOCK <= _DENSE * rows.size:
                source, turn = self._read_blocks(lane, number + first)
                at = index * _BLOCK + (rows & 255)
                return source[at], turn[at]
        source = self._sources(lanes, rows, None)
        return source, self.reads_before(source, lanes, rows)

    def _read_blocks(self, lanes: Ids, blocks: Ids) -> tuple[Ids, Ids]:
        """Reads blocks of 256 rows, ascending by lane and number: arrays of shape (blocks * 256,)."""
        rows = ((blocks << 8)[:, None] + np.arange(_BLOCK)).reshape(-1)
        source = self._sources(np.repeat(lanes, _BLOCK), rows, self.draws.first_bytes(lanes, blocks))
        # Consecutive blocks of a lane are a run: the turns at its beginning are computed, the others counted.
        begins = np.append(True, (np.diff(blocks) != 1) | (np.diff(lanes) != 0))
        runs, num_sources = np.flatnonzero(begins), self.ends.shape[1] - 1
        base = self.reads_of_all_before(lanes[runs], blocks[runs] << 8).reshape(-1)
        # numpy sorts 16-bit integers by radix, which is faster.
        dtype = np.uint16 if base.size < 1 << 16 else np.int64
        label = np.repeat(((np.cumsum(begins) - 1) * num_sources).astype(dtype), _BLOCK)
        label += source.astype(dtype)
        by_label = np.argsort(label, kind="stable")
        counts = np.bincount(label, minlength=base.size)
        turn = np.empty_like(source)
        turn[by_label] = np.arange(source.size) + np.repeat(base - np.cumsum(counts) + counts, counts)
        return source, turn

    def reads_before(self, source: int | Ids, lanes: Ids, rows: Ids) -> Ids:
        """Returns how often lanes read a source before rows: int64 of shape (m,).

        Args:
            source: one for all rows, or the source of each; shape (m,).
            lanes: of each row; shape (m,).
            rows: within the lanes; shape (m,).
        """
        segments = self._segment_of(lanes, rows)
        low, high = self.ends[segments, source], self.ends[segments, source + 1]
        reads: Ids = self.draws.count_below(lanes, rows, high) - self.draws.count_below(lanes, rows, low)
        if not self._is_static:
            reads += self._offsets(lanes, segments)[np.arange(rows.size), source]
        return reads

    def reads_of_all_before(self, lanes: Ids, rows: Ids) -> Ids:
        """Returns how often lanes read each source before rows: int64 of shape (m, sources)."""
        segments = self._segment_of(lanes, rows)
        reads = self._reads_by(self.ends[segments, 1:-1], lanes[:, None], rows)
        return reads if self._is_static else reads + self._offsets(lanes, segments)

    def row_of(self, source: int, lanes: Ids, turns: Ids) -> Ids:
        """Finds the rows at which lanes read a source for the turn-th time, from 0.

        Returns:
            int64 array of shape (m,); `NO_ROW` for a row of more than 62 bits, or if there is none.
        """
        segments, offsets = np.zeros_like(turns), np.zeros_like(turns)
        for lane, at in self._by_lane(lanes):
            segments[at] = np.searchsorted(lane.reads[:, source], turns[at], side="right")
            offsets[at] = lane.offsets[segments[at], source]
        low, high = self.ends[segments, source], self.ends[segments, source + 1]
        rows, at = np.full(turns.shape, NO_ROW), np.flatnonzero(high > low)
        rows[at] = self.draws.row_of(lanes[at], (turns - offsets)[at], low[at], high[at])
        return rows

    def _sources(self, lanes: Ids, rows: Ids, first_bytes: FirstBytes | None) -> Ids:
        if self._is_static:
            return self.draws.sources(lanes, rows, self.ends[0], first_bytes)
        source = np.empty_like(rows)
        for segment, at in groups(self._segment_of(lanes, rows)):
            part = None if first_bytes is None else first_bytes[at]
            source[at] = self.draws.sources(lanes[at], rows[at], self.ends[segment], part)
        return source

    def _reads_by(self, inner: Ids, lanes: Ids, rows: Ids) -> Ids:
        """Returns how often lanes would read each source before rows by some thresholds.

        Args:
            inner: the thresholds between sources; shape (..., sources - 1).
            lanes: of each row, with a last axis of size 1.
            rows: within the lanes; shape (...,).

        Returns:
            int64 array of shape (..., sources).
        """
        below = self.draws.count_below(lanes, rows[..., None], inner)
        reads = np.empty((*below.shape[:-1], below.shape[-1] + 1), dtype=np.int64)
        reads[..., :-1] = below
        reads[..., -1] = rows
        reads[..., 1:] -= below
        return reads

    def _segment_of(self, lanes: Ids, rows: Ids) -> Ids:
        segments = np.zeros_like(rows)
        for lane, at in self._by_lane(lanes):
            segments[at] = np.searchsorted(lane.firsts, rows[at], side="right")
        return segments

    def _offsets(self, lanes: Ids, segments: Ids) -> Ids:
        """Returns the offsets of segments: shape (m, sources)."""
        offsets = np.empty((lanes.size, self.ends.shape[1] - 1), dtype=np.int64)
        for lane, at in self._by_lane(lanes):
            offsets[at] = lane.offsets[segments[at]]
        return offsets

    def _by_lane(self, lanes: Ids) -> Iterator[tuple[LaneSegments, Ids]]:
        """Yields the segments of each lane that occurs, with the indices at which it does.

        Nothing for weights that do not change: all rows are in segment 0, and offsets are 0.
        """
        at_of_lane = {} if self._is_static else dict(groups(lanes))
        numbers, together = [*at_of_lane], max(_MIN_COUNTED_LANES, _MAX_COUNTED // self.ends.size)
        for begin in range(0, len(numbers), together):
            part = numbers[begin : begin + together]
            segments = self._segments_of(part)
            yield from ((segments[lane], at_of_lane[lane]) for lane in part)

    def _segments_of(self, lanes: list[int]) -> dict[int, LaneSegments]:
        """Returns a table with the segments of lanes; computes those that are not cached, all at once."""
        cached = self._cached
        missing = [lane for lane in lanes if lane not in cached]
        if missing:
            if len(cached) + len(missing) > max(_MIN_CACHED_LANES, _MAX_CACHED // self.ends.size):
                cached = {lane: cached[lane] for lane in lanes if lane in cached}
            # A new table, since another thread may read the old one.
            cached = self._cached = cached | self._count_lanes(missing)
        return cached

    def _count_lanes(self, lanes: list[int]) -> dict[int, LaneSegments]:
        firsts, inner = np.stack([self._firsts(lane) for lane in lanes]), self.ends[:, 1:-1]
        # How often a source is read before each segment, by the thresholds before it and by its own.
        before, after = (
            self._reads_by(part, np.array(lanes)[:, None, None], firsts) for part in (inner[:-1], inner[1:])
        )
        offsets = np.zeros((len(lanes), len(self.ends), before.shape[-1]), dtype=np.int64)
        np.cumsum(before - after, axis=1, out=offsets[:, 1:])
        return dict(zip(lanes, map(LaneSegments, firsts, before + offsets[:, :-1], offsets), strict=True))

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_cached": {}}
