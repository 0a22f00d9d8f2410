"""Rows that leave a stream, lane by lane: what follows in the same lane moves up."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, final

import numpy as np

from samplerkit.order.intervals import edges_of, groups
from samplerkit.order.mixing.streams import Piece, Stream
from samplerkit.order.order import Located
from samplerkit.order.typing import Ids


def rows_before(positions: Ids, lane: int | Ids, lanes: int) -> Ids:
    """Returns how many rows of a lane lie before each position; or of each lane before one."""
    return np.maximum(0, -((lane - positions) // lanes))


@final
@dataclass(frozen=True, eq=False)
class RemovedRows:
    """The rows that leave one lane, as intervals, and the arithmetic of what is kept.

    Args:
        begins: the first row of each interval, ascending.
        ends: the row behind each; no two intervals share a row, and none is empty.

    Example:
        >>> holes = RemovedRows(np.array([2, 7]), np.array([4, 8]))
        >>> holes.rows(np.arange(6)).tolist()
        [0, 1, 4, 5, 6, 8]
        >>> [of.tolist() for of in holes.kept(np.array([1, 3, 4, 8]))]
        [[1, 2, 2, 5], [True, False, True, True]]
    """

    begins: Ids = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    ends: Ids = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    _gone: Ids = field(init=False)
    _kept_before: Ids = field(init=False)

    def __post_init__(self) -> None:
        gone = edges_of(self.ends - self.begins)
        object.__setattr__(self, "_gone", gone)
        object.__setattr__(self, "_kept_before", self.begins - gone[:-1])

    def rows(self, kept: Ids) -> Ids:
        """Gives the rows of the lane that are kept as the first, the second and so on, counted from 0."""
        moved: Ids = kept + self._gone[np.searchsorted(self._kept_before, kept, side="right")]
        return moved

    def kept(self, rows: Ids) -> tuple[Ids, np.ndarray[Any, np.dtype[np.bool_]]]:
        """Returns how many rows before each are kept, and whether it is kept itself."""
        number = np.searchsorted(self.begins, rows, side="right")
        inside = np.append(0, self.ends)[number] - rows
        return rows - self._gone[number] + np.maximum(inside, 0), inside <= 0

    def and_rows(self, begins: Ids, ends: Ids) -> RemovedRows:
        """Gives the holes with further intervals of rows, in any order, which may share rows with these."""
        begins, ends = np.append(self.begins, begins), np.append(self.ends, ends)
        ascending = np.argsort(begins[begins < ends], kind="stable")
        begins, ends = begins[begins < ends][ascending], ends[begins < ends][ascending]
        reached = np.maximum.accumulate(ends)
        is_first = np.append(True, begins[1:] > reached[:-1])[: begins.size]
        is_last = np.append(is_first[1:], True)[: begins.size]
        return RemovedRows(begins[is_first], reached[is_last])

    def and_kept(self, begins: Ids, ends: Ids) -> RemovedRows:
        """Gives the holes with further intervals, which count what is kept: ascending and not empty."""
        return self.and_rows(self.rows(begins), self.rows(ends - 1) + 1)


def skipped(lane: int, lanes: int, at: Ids, counts: Ids) -> tuple[Ids, Ids]:
    """Gives what skips take out of a lane: positions [at, at + count), of what is kept when each is said.

    Args:
        lane: which.
        lanes: of how many.
        at: the position of each skip, ascending.
        counts: how many positions each takes.

    Returns:
        Intervals of what is kept before all of them, as for `RemovedRows.and_kept`.
    """
    first = rows_before(at, lane, lanes)
    taken = rows_before(at + counts, lane, lanes) - first
    begins = first + np.cumsum(taken) - taken
    return begins[taken > 0], (begins + taken)[taken > 0]


@final
class WithoutRows(Stream):
    """A stream without some rows of its lanes.

    Args:
        stream: what they leave.
        holes: those of a lane; asked for once a lane, when it is first read. A value.
    """

    def __init__(self, stream: Stream, holes: Callable[[int], RemovedRows]) -> None:
        self.lanes = stream.lanes
        self.whole: Final = stream
        self._make_holes = holes
        self._holes: dict[int, RemovedRows] = {}

    @property
    def recipe(self) -> tuple[object, ...]:
        return self.whole, self._make_holes

    def pieces(self, positions: Ids) -> Iterator[Piece]:
        return self.whole.pieces(self._below(positions))

    def num_passes(self, end: int) -> int:
        last = self._below(np.arange(max(0, end - self.lanes), end))
        return self.whole.num_passes(int(last.max(initial=0)) + 1)

    def locate(self, ids: Ids, begin: int, end: int) -> Located:
        if end <= begin:
            return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
        # Rows only move up, and what stands last in each lane was last below too.
        last = self._below(np.arange(max(begin, end - self.lanes), end))
        which, below = self.whole.locate(ids, begin, int(last.max()) + 1)
        rows, lane = np.divmod(below, self.lanes)
        positions, is_kept = np.empty_like(below), np.empty(below.size, dtype=np.bool_)
        for number, at in groups(lane):
            kept, is_kept[at] = self._of(number).kept(rows[at])
            positions[at] = kept * self.lanes + number
        is_kept &= (positions >= begin) & (positions < end)
        return which[is_kept], positions[is_kept]

    def _below(self, positions: Ids) -> Ids:
        """Gives where the rows at positions are in the stream that holds all of them."""
        kept, lane = np.divmod(positions, self.lanes)
        below = np.empty_like(positions)
        for number, at in groups(lane):
            below[at] = self._of(number).rows(kept[at]) * self.lanes + number
        return below

    def rows_drawn(self, kept: Ids) -> Ids:
        """Gives how many rows of each lane were drawn, where so many of what is kept were read."""
        drawn = np.zeros_like(kept)
        for lane in np.flatnonzero(kept).tolist():
            drawn[lane] = self._of(lane).rows(kept[lane : lane + 1] - 1)[0] + 1
        return drawn

    def _of(self, lane: int) -> RemovedRows:
        if lane not in self._holes:
            self._holes[lane] = self._make_holes(lane)
        return self._holes[lane]
