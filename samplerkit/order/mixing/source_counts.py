"""Which source each row of a mixture draws, and how often its lane read that before."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, final

import numpy as np

from samplerkit.order.intervals import distinct, groups
from samplerkit.order.mixing.source_draws import Cells, SourceDraws
from samplerkit.order.typing import Ids

_BLOCK = 256
_DENSE = 4
"""Rows of their blocks, a row read, up to which all of them are drawn."""
_CACHED_LANES = 256
_COUNTED_TOGETHER = 16
"""Lanes that are kept, and counted at once, of weights that change a thousand times; of fewer, more."""
_MAX_CACHED = 1 << 22
_MAX_COUNTED = 1 << 16


def _none(_lane: int) -> Ids:
    return np.zeros(0, dtype=np.int64)


@final
class SourceCounts:
    """What rows read, by weights that may change from segment to segment of the rows.

    Args:
        draws: which source each row draws.
        ends: the thresholds of each segment, int64 of shape (segments, sources + 1).
        firsts: returns for a lane the first row of each segment but the first, int64, ascending.
    """

    def __init__(self, draws: SourceDraws, ends: Ids, firsts: Callable[[int], Ids] = _none) -> None:
        self.draws: Final = draws
        self.ends: Final = ends
        self._firsts = firsts
        self._static = len(ends) == 1
        self._cached: dict[int, tuple[Ids, Ids]] = {}

    @property
    def recipe(self) -> tuple[object, ...]:
        """What they were made of, as for an order."""
        return (*self.draws.recipe, self.ends, self._firsts)

    def read(self, lanes: Ids, rows: Ids) -> tuple[Ids, Ids]:
        """Reads rows.

        Args:
            lanes: of each row; shape (m,).
            rows: within the lanes, below 2^62; shape (m,).

        Returns:
            (source, turn), each of shape (m,): what a row reads, and how often its lane read that before.
        """
        if not rows.size:
            return rows, rows
        block = rows >> 8
        first, last = int(block.min()), int(block.max())
        span = last - first + 1
        if span * (int(lanes.max()) + 1) < 1 << 62:
            labels, inverse = distinct(lanes * span + (block - first))
            lane, number = np.divmod(labels, span)
            if labels.size * _BLOCK <= _DENSE * rows.size:
                source, turn = self._blocks(lane, number + first)
                at = inverse * _BLOCK + (rows & 255)
                return source[at], turn[at]
        source = self._sources(lanes, rows, None)
        return source, self.drawn(source, lanes, rows)

    def _blocks(self, lanes: Ids, numbers: Ids) -> tuple[Ids, Ids]:
        """Reads whole blocks of rows, ascending by lane and number: arrays of shape (blocks * 256,)."""
        cells = self.draws.cells(lanes, numbers)
        source = self._sources_of_blocks(lanes, numbers, cells)
        # Blocks that follow one another in a lane are a run: one count a source, then counting on.
        begins = self._begins(lanes, numbers)
        runs, size = np.flatnonzero(begins), self.ends.shape[1] - 1
        base = self.drawn_of_all(lanes[runs], numbers[runs] << 8).reshape(-1)
        # Of 16 bits where that is enough: numpy sorts these by radix.
        kind = np.uint16 if runs.size * size < 1 << 16 else np.int64
        first = ((np.cumsum(begins) - 1) * size).astype(kind)
        label = np.repeat(first, _BLOCK) + source.astype(kind)
        by_label = np.argsort(label, kind="stable")
        counts = np.bincount(label, minlength=runs.size * size)
        turn = np.empty_like(source)
        turn[by_label] = np.arange(source.size) + np.repeat(base - np.cumsum(counts) + counts, counts)
        return source, turn

    @staticmethod
    def _begins(lanes: Ids, numbers: Ids) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Returns which blocks do not follow the one before in its lane."""
        return np.append(True, (np.diff(numbers) != 1) | (np.diff(lanes) != 0))

    def drawn(self, source: int | Ids, lanes: Ids, rows: Ids) -> Ids:
        """Returns how often lanes read a source, or one each, before rows."""
        segments = self._segment_of(lanes, rows)
        low, high = self.ends[segments, source], self.ends[segments, source + 1]
        counts = self.draws.before(lanes, rows, high) - self.draws.before(lanes, rows, low)
        return (
            counts if self._static else counts + self._offsets(lanes, segments)[np.arange(rows.size), source]
        )

    def row(self, source: int, lanes: Ids, turns: Ids) -> Ids:
        """Finds the rows at which lanes read a source for the turn-th time, from 0.

        A row beyond 2^62, or of a source that is not read so often, is 2^62.
        """
        if self._static:
            segments, offsets = np.zeros_like(turns), np.zeros_like(turns)
        else:
            segments, offsets = self._segments_of_turns(source, lanes, turns)
        low, high = self.ends[segments, source], self.ends[segments, source + 1]
        rows, at = np.full(turns.shape, 1 << 62), np.flatnonzero(high > low)
        rows[at] = self.draws.position(lanes[at], (turns - offsets)[at], low[at], high[at])
        return rows

    def _segments_of_turns(self, source: int, lanes: Ids, turns: Ids) -> tuple[Ids, Ids]:
        """Returns the segment in which lanes read a source for the turn-th time, and its offset."""
        segments, offsets = np.empty_like(turns), np.empty_like(turns)
        by_lane = [(firsts, offsets_of, at) for (firsts, offsets_of), at in self._by_lane(lanes)]
        lane_of = [np.full_like(firsts, lanes[at[0]]) for firsts, _, at in by_lane]
        firsts = np.concatenate([firsts for firsts, _, _ in by_lane] or [turns[:0]])
        # How often each lane read the source before each segment, in one call for all lanes.
        drawn, begin = self.drawn(source, np.concatenate(lane_of or [lanes[:0]]), firsts), 0
        for before, offsets_of, at in by_lane:
            end = begin + before.size
            segments[at] = np.searchsorted(drawn[begin:end], turns[at], side="right")
            offsets[at] = offsets_of[segments[at], source]
            begin = end
        return segments, offsets

    def _sources_of_blocks(self, lanes: Ids, numbers: Ids, cells: Cells) -> Ids:
        if self._static:
            return self.draws.sources_of_blocks(lanes, numbers, self.ends[0], cells)
        segments = self._segment_of(lanes, numbers << 8)
        is_across = segments != self._segment_of(lanes, (numbers << 8) + _BLOCK - 1)
        source, cells = np.empty((numbers.size, _BLOCK), dtype=np.int64), cells.reshape(-1, _BLOCK)
        for segment, at in groups(np.where(is_across, -1, segments)):
            own_cells = cells[at].reshape(-1)
            if segment < 0:
                rows = ((numbers[at] << 8)[:, None] + np.arange(_BLOCK)).reshape(-1)
                read = self._sources(np.repeat(lanes[at], _BLOCK), rows, own_cells)
            else:
                read = self.draws.sources_of_blocks(lanes[at], numbers[at], self.ends[segment], own_cells)
            source[at] = read.reshape(-1, _BLOCK)
        return source.reshape(-1)

    def _sources(self, lanes: Ids, rows: Ids, cells: Cells | None) -> Ids:
        if self._static:
            return self.draws.sources(lanes, rows, self.ends[0], cells)
        source = np.empty_like(rows)
        for segment, at in groups(self._segment_of(lanes, rows)):
            part = None if cells is None else cells[at]
            source[at] = self.draws.sources(lanes[at], rows[at], self.ends[segment], part)
        return source

    def drawn_of_all(self, lanes: Ids, rows: Ids) -> Ids:
        """Returns how often lanes read each source before rows: shape (m, sources)."""
        segments = self._segment_of(lanes, rows)
        counts = self._counts(lanes[:, None], rows, self.ends[segments, 1:-1])
        return counts if self._static else counts + self._offsets(lanes, segments)

    def _counts(self, lanes: int | Ids, rows: Ids, inner: Ids) -> Ids:
        """Counts the rows before some by the thresholds between sources: shape (..., m, sources)."""
        below = self.draws.before(lanes, rows[:, None], inner)
        counts = np.empty((*below.shape[:-1], below.shape[-1] + 1), dtype=np.int64)
        counts[..., :-1] = below
        counts[..., -1] = rows
        counts[..., 1:] -= below
        return counts

    def _segment_of(self, lanes: Ids, rows: Ids) -> Ids:
        segments = np.zeros_like(rows)
        if not self._static:
            for (firsts, _), at in self._by_lane(lanes):
                segments[at] = np.searchsorted(firsts, rows[at], side="right")
        return segments

    def _offsets(self, lanes: Ids, segments: Ids) -> Ids:
        """What is added to counts by a segment's thresholds: shape (m, sources)."""
        offsets = np.empty((lanes.size, self.ends.shape[1] - 1), dtype=np.int64)
        for (_, lane_offsets), at in self._by_lane(lanes):
            offsets[at] = lane_offsets[segments[at]]
        return offsets

    def _by_lane(self, lanes: Ids) -> Iterator[tuple[tuple[Ids, Ids], Ids]]:
        """Returns what `_lane` gives for each lane, with the indices at which it is."""
        at_of_lane = dict(groups(lanes))
        self._count_lanes([lane for lane in at_of_lane if lane not in self._cached])
        return ((self._lane(lane), at) for lane, at in at_of_lane.items())

    def _lane(self, lane: int) -> tuple[Ids, Ids]:
        """The first rows of a lane's segments but the first, and the offsets: shape (segments, sources)."""
        cached = self._cached.get(lane)
        if cached is None:
            cached = self._count_lanes([lane])[lane]
        return cached

    def _count_lanes(self, lanes: list[int]) -> dict[int, tuple[Ids, Ids]]:
        """Counts for some lanes at once, and returns a table with the last of them, as far as they fit."""
        cached = self._cached  # a table only grows, until another one replaces it: threads read it meanwhile
        together = max(_COUNTED_TOGETHER, _MAX_COUNTED // self.ends.size)
        limit = max(_CACHED_LANES, _MAX_CACHED // self.ends.size)
        for begin in range(0, len(lanes), together):
            batch = lanes[begin : begin + together]
            firsts = [self._firsts(lane) for lane in batch]
            rows, row_lanes = np.concatenate(firsts), np.repeat(batch, [len(rows_of) for rows_of in firsts])
            inner = self.ends[:, 1:-1]
            # Each by the thresholds before it and by its own.
            both = np.stack([np.tile(part, (len(batch), 1)) for part in (inner[:-1], inner[1:])])
            before, after = self._counts(row_lanes[:, None], rows, both)
            shape = (len(batch), len(self.ends) - 1, self.ends.shape[1] - 1)
            offsets = np.zeros((shape[0], shape[1] + 1, shape[2]), dtype=np.int64)
            np.cumsum((before - after).reshape(shape), axis=1, out=offsets[:, 1:])
            if len(cached) + len(batch) > limit:
                cached = self._cached = {}
            cached.update(zip(batch, zip(firsts, offsets, strict=True), strict=True))
        return cached

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_cached": {}}
