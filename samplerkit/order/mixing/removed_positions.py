"""What leaves an order or the lanes of a stream: what follows in the same lane moves up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, final

import numpy as np

from samplerkit.order.intervals import edges_of, groups
from samplerkit.order.order import Located, Order, OrderView, Read
from samplerkit.order.sequences import LaneWeave
from samplerkit.order.typing import Ids

Flags = np.ndarray[Any, np.dtype[np.bool_]]


def no_positions() -> Ids:
    """Returns none."""
    return np.zeros(0, dtype=np.int64)


def rows_before(positions: Ids, lane: int | Ids, lanes: int) -> Ids:
    """Returns how many rows of a lane are before each position; or of each lane before one."""
    return np.maximum(0, -((lane - positions) // lanes))


@final
@dataclass(eq=False)
class RemovedRows:
    """The rows that leave one lane, as intervals, and the arithmetic of what is kept.

    Args:
        begins: the first row of each interval, ascending.
        ends: the row behind each; no two intervals share a row, and none is empty.

    Example:
        >>> holes = RemovedRows(np.array([2, 7]), np.array([4, 8]))
        >>> holes.rows(np.arange(6)).tolist(), holes.drawn(np.arange(4)).tolist()
        ([0, 1, 4, 5, 6, 8], [0, 1, 2, 5])
        >>> [of.tolist() for of in holes.kept(np.array([1, 3, 4, 8]))]
        [[1, 2, 2, 5], [True, False, True, True]]
    """

    begins: Ids = field(default_factory=no_positions)
    ends: Ids = field(default_factory=no_positions)

    def __post_init__(self) -> None:
        self._removed_before = edges_of(self.ends - self.begins)
        self._kept_before = self.begins - self._removed_before[:-1]

    def rows(self, kept: Ids) -> Ids:
        """Returns the rows of the lane that are kept as the first, the second and so on, counted from 0."""
        moved: Ids = kept + self._removed_before[np.searchsorted(self._kept_before, kept, side="right")]
        return moved

    def drawn(self, kept: Ids) -> Ids:
        """Returns how many rows were drawn where so many of what is kept were read."""
        return np.where(kept, self.rows(np.maximum(kept - 1, 0)) + 1, 0)

    def kept(self, rows: Ids) -> tuple[Ids, Flags]:
        """Returns how many rows before each are kept, and whether it is kept itself."""
        number = np.searchsorted(self.begins, rows, side="right")
        inside = np.append(0, self.ends)[number] - rows
        return rows - self._removed_before[number] + np.maximum(inside, 0), inside <= 0

    def with_rows(self, begins: Ids, ends: Ids) -> RemovedRows:
        """Returns the holes with further intervals of rows, none empty; they may share rows with these."""
        begins, ends = np.append(self.begins, begins), np.append(self.ends, ends)
        ascending = np.argsort(begins, kind="stable")
        begins, ends = begins[ascending], ends[ascending]
        reached = np.maximum.accumulate(ends)
        is_first = np.append(True, begins[1:] > reached[:-1])[: begins.size]
        is_last = np.append(is_first[1:], True)[: begins.size]
        return RemovedRows(begins[is_first], reached[is_last])

    def with_kept(self, begins: Ids, ends: Ids) -> RemovedRows:
        """Returns the holes with further intervals, which count what is kept: ascending and not empty."""
        return self.with_rows(self.rows(begins), self.rows(ends - 1) + 1)


@final
@dataclass(frozen=True)
class RemovedPositions:
    """The positions that leave a stream, lane by lane.

    Args:
        lanes: of the stream.
        skips: positions of what is kept when each is made, ascending, and how many each takes.
        positions: further positions, of the stream as it is, whose ids left; they follow from the stream.
    """

    lanes: int
    skips: tuple[tuple[int, int], ...] = ()
    positions: Ids = field(default_factory=no_positions, compare=False)
    _lane_rows: dict[int, RemovedRows] = field(default_factory=dict, init=False, compare=False)

    def __bool__(self) -> bool:
        return bool(self.skips or self.positions.size)

    def of_lane(self, lane: int) -> RemovedRows:
        """Returns the rows that leave a lane: those that a skip takes are behind all that left before."""
        if lane not in self._lane_rows:
            at, counts = np.array(self.skips, dtype=np.int64).reshape(-1, 2).T
            first = rows_before(at, lane, self.lanes)
            taken = rows_before(at + counts, lane, self.lanes) - first
            begins = first + np.cumsum(taken) - taken
            removed = self.positions[self.positions % self.lanes == lane] // self.lanes
            rows = RemovedRows().with_rows(removed, removed + 1)
            self._lane_rows[lane] = rows.with_kept(begins[taken > 0], (begins + taken)[taken > 0])
        return self._lane_rows[lane]

    def in_stream(self, kept: Ids) -> Ids:
        """Returns where positions of what is kept are in the stream."""
        rows, lane = np.divmod(kept, self.lanes)
        positions = np.empty_like(kept)
        for number, at in groups(lane):
            positions[at] = self.of_lane(number).rows(rows[at]) * self.lanes + number
        return positions

    def kept(self, positions: Ids) -> tuple[Ids, Flags]:
        """Returns where positions of the stream are in what is kept, and whether each is kept.

        For one that left, it is where what follows it is.
        """
        rows, lane = np.divmod(positions, self.lanes)
        kept, is_kept = positions.copy(), np.ones(positions.size, dtype=np.bool_)
        for number, at in groups(lane) if self else ():
            before, is_kept[at] = self.of_lane(number).kept(rows[at])
            kept[at] = before * self.lanes + number
        return kept, is_kept

    def first_kept(self, position: int) -> Ids:
        """Returns the first row of each lane that is kept at or behind a position.

        Rows between the last row read before it and that one were skipped: they count as drawn.
        """
        before = rows_before(np.array(position), np.arange(self.lanes), self.lanes)
        return np.array([self.of_lane(lane).rows(row) for lane, row in enumerate(before)], dtype=np.int64)


@final
@dataclass(eq=False, repr=False)
class WithoutIds(OrderView):
    """An order without some of its ids: what follows moves up.

    Rows leave the sequence that was cut into lanes, and the rest is cut again: so each lane stays one run
    of it, and reads the files that it read.

    Args:
        order: what they leave.
        ids: distinct.
        lanes: into how many lanes the order is woven.
    """

    order: Order
    ids: Ids
    lanes: int

    def __post_init__(self) -> None:
        size, order = len(self.order), self.order
        self._woven = LaneWeave(size, max(1, min(self.lanes, size)))
        rows = np.sort(self._woven.ids_at(order.locate(self.ids)[1]))
        self._removed = RemovedRows(rows, rows + 1)
        remaining = size - rows.size
        self._rewoven = LaneWeave(remaining, max(1, min(self.lanes, remaining)))

    def __len__(self) -> int:
        return len(self._rewoven)

    @property
    def viewed(self) -> Sequence[Order]:
        return (self.order,)

    def read(self, positions: Ids, getter: Read) -> Ids:
        rows = self._removed.rows(self._rewoven.ids_at(positions))
        return getter(self.order, self._woven.locate(rows)[1])

    def locate(self, ids: Ids) -> Located:
        which, positions = self.order.locate(ids)
        rows, is_kept = self._removed.kept(self._woven.ids_at(positions))
        return which[is_kept], self._rewoven.locate(rows[is_kept])[1]
