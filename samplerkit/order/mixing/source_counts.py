"""Which source each row of a mixture draws, and how often its lane read that before."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, final

import numpy as np

from samplerkit.order.intervals import distinct, groups
from samplerkit.order.mixing.source_draws import (
    Cells,
    DrawHashes,
    SourceDraws,
    below_above,
    count_table,
    map_table,
)
from samplerkit.order.typing import Ids

_SHARE = 17
"""Bits below it say where a threshold's map is in `count_table`, those above its first digit."""
_PIECE = 4096
_MANY = 16
"""Rows of a block from which on all 32 maps of its last two digits are picked, each once."""


@final
class NearRows:
    """Blocks of 256 rows of which some are read.

    How many rows of a block have a draw below a threshold follows from its first two digits, but for one row:
    that of the threshold's own two. So the beginnings of blocks are counted on, one bit a block and
    threshold, and a row is counted from the beginning of its block by its two lowest digits.

    Args:
        draws: which source each row draws.
        lanes: of each block; shape (b,).
        numbers: of each block: k div 256 of its rows.
        ends: the thresholds of each segment, shape (segments, sources + 1).
        segments: of each block; shape (b,).
        count: how many rows are read.
    """

    def __init__(
        self, draws: SourceDraws, lanes: Ids, numbers: Ids, ends: Ids, segments: Ids, count: int
    ) -> None:
        self._hashes = DrawHashes(draws.words, lanes)
        self._width = ends.shape[1]
        self._maps: tuple[Ids, Ids] | None = None
        all_of_block = (numbers << 4)[:, None] + np.arange(16)
        if count >= _MANY * numbers.size:
            lowest, second = (self._hashes.maps(level, all_of_block).reshape(-1) for level in range(2))
            self._maps = lowest, second
        ends = ends[segments] if len(ends) > 1 else np.broadcast_to(ends, (numbers.size, self._width))
        share = ends >> 56
        is_below = np.zeros(ends.shape, dtype=np.bool_)
        is_below[:, 1:-1] = self._are_below(lanes, numbers, ends[:, 1:-1], segments)
        self.counts: Ids = np.diff((ends >> 52) + is_below, axis=1)
        if self._maps is None:
            second = self._hashes.maps(1, (numbers << 4)[:, None] + share)
        else:
            # The end of all draws has a share of 16: no row is asked on which side of it it lies.
            second = self._maps[1][(np.arange(numbers.size) << 4)[:, None] + (share & 15)]
        at = second + (ends >> 52 & 15)
        self._packed: Ids = (share << _SHARE) + (at << 5) + (is_below << 4)

    def _are_below(self, lanes: Ids, numbers: Ids, inner: Ids, segments: Ids) -> np.ndarray[Any, Any]:
        """Returns for each block and threshold whether the row of its own two digits lies below it."""
        if not inner.size:
            return np.zeros(inner.shape, dtype=np.bool_)
        # Sixteen blocks in a row have one map for their next digit.
        begins = np.append(
            True, (np.diff(numbers >> 4) != 0) | (np.diff(lanes) != 0) | (np.diff(segments) != 0)
        )
        first = np.flatnonzero(begins)
        pi = self._hashes.of(first).maps(2, (numbers[first] >> 4 << 8)[:, None] + (inner[first] >> 52))
        draw = map_table()[pi[np.cumsum(begins) - 1] + (numbers & 15)[:, None]]
        next_digit = inner >> 48 & 15
        is_below: np.ndarray[Any, Any] = draw < next_digit
        block, threshold = np.nonzero(draw == next_digit)
        if block.size:
            rows, alpha = numbers[block] << 8, inner[block, threshold]
            is_below[block, threshold] = below_above(self._hashes.of(block), rows, alpha, 3)
        return is_below

    def cells(self, which: Ids, rows: Ids) -> tuple[Cells, Ids]:
        """Draws the first two digits of rows.

        Args:
            which: the index of the block of each row; shape (m,).
            rows: within the lanes.

        Returns:
            The cells, and where the map of each row's lowest digit begins, for `before`.
        """
        cells, lowest = np.empty(rows.size, dtype=np.uint8), np.empty_like(rows)
        for at in _in_pieces(rows.size):
            cells[at], lowest[at] = self._drawn_cells(which[at], rows[at])
        return cells, lowest

    def before(self, which: Ids, rows: Ids, lowest: Ids, source: Ids) -> Ids:
        """Returns how many rows of its block before each row read the same source."""
        counts = np.empty_like(rows)
        for at in _in_pieces(rows.size):
            counts[at] = self._counted(which[at], rows[at], lowest[at], source[at])
        return counts

    def _drawn_cells(self, which: Ids, rows: Ids) -> tuple[Ids, Ids]:
        maps, digit = map_table(), rows >> 4 & 15
        if self._maps is not None:
            block = which << 4
            lowest = self._maps[0][block + digit]
            first = maps[lowest + (rows & 15)]
            second = maps[self._maps[1][block + first] + digit]
        else:
            hashes = self._hashes.of(which)
            lowest = hashes.maps(0, rows >> 4)
            first = maps[lowest + (rows & 15)]
            second = maps[hashes.maps(1, (rows >> 8 << 4) + first) + digit]
        return (first << 4) + second, lowest

    def _counted(self, which: Ids, rows: Ids, lowest: Ids, source: Ids) -> Ids:
        counted, table = count_table(), self._packed.reshape(-1)
        at = which * self._width + source
        digit, last_digit = rows >> 4 & 15, rows & 15
        lowest = (lowest << 5) + last_digit
        both = []
        # The thresholds at which each row's source ends and begins.
        for packed in (table[at + 1], table[at]):
            share = packed >> _SHARE
            second = counted[(packed & (1 << _SHARE) - 1) + digit].astype(np.int64)
            first = counted[lowest + ((share & 15) << 5) + (second & 16)]
            both.append(digit * share + last_digit * (share >> 4) + (second & 15) + (first & 15))
        below: Ids = both[0] - both[1]
        return below


def _in_pieces(size: int) -> Iterator[slice]:
    """Gives the slices of an array, each so small that what is made of it stays in a core's cache."""
    return (slice(begin, begin + _PIECE) for begin in range(0, size, _PIECE))


_BLOCK = 256
_DENSE = 4
"""Rows of their blocks, a row read, up to which all of them are drawn."""
_FEW = 4
"""Thresholds of their blocks, a row read, from which on each row is counted for itself."""
_KEPT_LANES = 256
_COUNTED_TOGETHER = 16
"""Lanes that are kept, and counted at once, of weights that change a thousand times; of fewer, more."""
_MOST_KEPT = 1 << 22
_MOST_COUNTED = 1 << 16


def _none(_lane: int) -> Ids:
    return np.zeros(0, dtype=np.int64)


@final
class SourceCounts:
    """What rows read, by weights that may change from segment to segment of the rows.

    Args:
        draws: which source each row draws.
        ends: the thresholds of each segment, int64 of shape (segments, sources + 1).
        firsts: gives for a lane the first row of each segment but the first, int64, ascending.
    """

    def __init__(self, draws: SourceDraws, ends: Ids, firsts: Callable[[int], Ids] = _none) -> None:
        self.draws: Final = draws
        self.ends: Final = ends
        self._firsts = firsts
        self._is_one = len(ends) == 1
        self._kept: dict[int, tuple[Ids, Ids]] = {}

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
            labels, which = distinct(lanes * span + (block - first))
            lane, number = np.divmod(labels, span)
            if labels.size * _BLOCK <= _DENSE * rows.size:
                source, turn = self._blocks(lane, number + first)
                at = which * _BLOCK + (rows & 255)
                return source[at], turn[at]
            if labels.size * self.ends.shape[1] <= _FEW * rows.size:
                return self._near(lane, number + first, which, rows)
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

    def _near(self, lanes: Ids, numbers: Ids, which: Ids, rows: Ids) -> tuple[Ids, Ids]:
        """Reads a few rows of each block; `which` is the index of the block of each."""
        segments, begins = self._segment_of(lanes, numbers << 8), self._begins(lanes, numbers)
        begins[1:] |= segments[1:] != segments[:-1]
        near = NearRows(self.draws, lanes, numbers, self.ends, segments, rows.size)
        runs = np.flatnonzero(begins)
        # Blocks that follow one another are counted on from the first one of them.
        drawn = np.cumsum(near.counts, axis=0) - near.counts
        base = self.drawn_of_all(lanes[runs], numbers[runs] << 8) - drawn[runs]
        drawn += base[np.cumsum(begins) - 1]
        cells, lowest = near.cells(which, rows)
        lanes_of_rows = lanes[which]
        source = self._sources(lanes_of_rows, rows, cells)
        turn = drawn[which, source] + near.before(which, rows, lowest, source)
        if not self._is_one:
            ends = self._segment_of(lanes, (numbers << 8) + _BLOCK - 1)
            at = np.flatnonzero((segments != ends)[which])
            turn[at] = self.drawn(source[at], lanes_of_rows[at], rows[at])
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
            counts if self._is_one else counts + self._offsets(lanes, segments)[np.arange(rows.size), source]
        )

    def row(self, source: int, lanes: Ids, turns: Ids) -> Ids:
        """Finds the rows at which lanes read a source for the turn-th time, from 0.

        A row beyond 2^62, or of a source that is not read so often, is 2^62.
        """
        if self._is_one:
            segments, offsets = np.zeros_like(turns), np.zeros_like(turns)
        else:
            segments, offsets = self._segments_of_turns(source, lanes, turns)
        low, high = self.ends[segments, source], self.ends[segments, source + 1]
        rows, at = np.full(turns.shape, 1 << 62), np.flatnonzero(high > low)
        rows[at] = self.draws.position(lanes[at], (turns - offsets)[at], low[at], high[at])
        return rows

    def _segments_of_turns(self, source: int, lanes: Ids, turns: Ids) -> tuple[Ids, Ids]:
        """Gives the segment in which lanes read a source for the turn-th time, and its offset."""
        segments, offsets = np.empty_like(turns), np.empty_like(turns)
        each = [(firsts, of_lane, at) for (firsts, of_lane), at in self._of_each(lanes)]
        lane_of = [np.full_like(firsts, lanes[at[0]]) for firsts, _, at in each]
        firsts = np.concatenate([firsts for firsts, _, _ in each] or [turns[:0]])
        # How often each lane read the source before each segment, in one call for all lanes.
        drawn, begin = self.drawn(source, np.concatenate(lane_of or [lanes[:0]]), firsts), 0
        for before, of_lane, at in each:
            end = begin + before.size
            segments[at] = np.searchsorted(drawn[begin:end], turns[at], side="right")
            offsets[at] = of_lane[segments[at], source]
            begin = end
        return segments, offsets

    def _sources_of_blocks(self, lanes: Ids, numbers: Ids, cells: Cells) -> Ids:
        if self._is_one:
            return self.draws.sources_of_blocks(lanes, numbers, self.ends[0], cells)
        segments = self._segment_of(lanes, numbers << 8)
        is_across = segments != self._segment_of(lanes, (numbers << 8) + _BLOCK - 1)
        source, cells = np.empty((numbers.size, _BLOCK), dtype=np.int64), cells.reshape(-1, _BLOCK)
        for segment, at in groups(np.where(is_across, -1, segments)):
            mine = cells[at].reshape(-1)
            if segment < 0:
                rows = ((numbers[at] << 8)[:, None] + np.arange(_BLOCK)).reshape(-1)
                read = self._sources(np.repeat(lanes[at], _BLOCK), rows, mine)
            else:
                read = self.draws.sources_of_blocks(lanes[at], numbers[at], self.ends[segment], mine)
            source[at] = read.reshape(-1, _BLOCK)
        return source.reshape(-1)

    def _sources(self, lanes: Ids, rows: Ids, cells: Cells | None) -> Ids:
        if self._is_one:
            return self.draws.sources(lanes, rows, self.ends[0], cells)
        source = np.empty_like(rows)
        for segment, at in groups(self._segment_of(lanes, rows)):
            known = None if cells is None else cells[at]
            source[at] = self.draws.sources(lanes[at], rows[at], self.ends[segment], known)
        return source

    def drawn_of_all(self, lanes: Ids, rows: Ids) -> Ids:
        """Returns how often lanes read each source before rows: shape (m, sources)."""
        segments = self._segment_of(lanes, rows)
        counts = self._counts(lanes[:, None], rows, self.ends[segments, 1:-1])
        return counts if self._is_one else counts + self._offsets(lanes, segments)

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
        if not self._is_one:
            for (firsts, _), at in self._of_each(lanes):
                segments[at] = np.searchsorted(firsts, rows[at], side="right")
        return segments

    def _offsets(self, lanes: Ids, segments: Ids) -> Ids:
        """What is added to counts by a segment's thresholds: shape (m, sources)."""
        offsets = np.empty((lanes.size, self.ends.shape[1] - 1), dtype=np.int64)
        for (_, of_lane), at in self._of_each(lanes):
            offsets[at] = of_lane[segments[at]]
        return offsets

    def _of_each(self, lanes: Ids) -> Iterator[tuple[tuple[Ids, Ids], Ids]]:
        """Gives what `_lane` gives for each lane, with the indices at which it is."""
        at_of_lane = dict(groups(lanes))
        self._keep([lane for lane in at_of_lane if lane not in self._kept])
        return ((self._lane(lane), at) for lane, at in at_of_lane.items())

    def _lane(self, lane: int) -> tuple[Ids, Ids]:
        """The first rows of a lane's segments but the first, and the offsets: shape (segments, sources)."""
        kept = self._kept.get(lane)
        if kept is None:
            self._keep([lane])
            kept = self._kept[lane]
        return kept

    def _keep(self, lanes: list[int]) -> None:
        """Counts for some lanes at once, as far as they fit."""
        together = max(_COUNTED_TOGETHER, _MOST_COUNTED // self.ends.size)
        most = max(_KEPT_LANES, _MOST_KEPT // self.ends.size)
        for begin in range(0, len(lanes), together):
            some = lanes[begin : begin + together]
            firsts = [self._firsts(lane) for lane in some]
            rows, of_row = np.concatenate(firsts), np.repeat(some, [len(one) for one in firsts])
            inner = self.ends[:, 1:-1]
            # Each by the thresholds before it and by its own.
            both = np.stack([np.tile(part, (len(some), 1)) for part in (inner[:-1], inner[1:])])
            before, after = self._counts(of_row[:, None], rows, both)
            shape = (len(some), len(self.ends) - 1, self.ends.shape[1] - 1)
            offsets = np.zeros((shape[0], shape[1] + 1, shape[2]), dtype=np.int64)
            np.cumsum((before - after).reshape(shape), axis=1, out=offsets[:, 1:])
            if len(self._kept) + len(some) > most:
                self._kept.clear()
            self._kept.update(zip(some, zip(firsts, offsets, strict=True), strict=True))

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_kept": {}}
