"""Rows that are removed from an order or from the lanes of a stream: later rows of the same lane move up.

Removed rows shift the numbers of the rows behind them, so a row has two numbers: the original one, and its
number among the kept rows. The classes here convert between the two.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from samplerkit.order.intervals import edges_of, groups
from samplerkit.order.order import Located, Order, OrderView, Read
from samplerkit.order.sequences import LaneWeave
from samplerkit.order.typing import Ids

Flags = np.ndarray[Any, np.dtype[np.bool_]]


def no_positions() -> Ids:
    """Returns an empty array of positions."""
    return np.zeros(0, dtype=np.int64)


def rows_before(positions: int | Ids, lane: int | Ids, lanes: int) -> Ids:
    """Returns how many rows of a lane are before a position; one of the two may be an array, or both.

    Example:
        >>> rows_before(4, np.arange(3), lanes=3)  # lane 0 has the positions 0, 3, 6, ...
        array([2, 1, 1])
    """
    return np.maximum(0, -((lane - positions) // lanes))


@dataclass(eq=False)
class RemovedRows:
    """The rows that are removed from one lane, as intervals.

    Args:
        begins: the first row of each interval, ascending.
        ends: the row after the last one of each interval; intervals are disjoint and not empty.

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
        """Returns the row of each kept row: `kept` are numbers among the kept rows, from 0."""
        moved: Ids = kept + self._removed_before[np.searchsorted(self._kept_before, kept, side="right")]
        return moved

    def drawn(self, kept: Ids) -> Ids:
        """Returns how many rows of the lane were drawn if so many kept rows were read.

        These are all rows up to the last kept row that was read, removed ones included.
        """
        return np.where(kept, self.rows(np.maximum(kept - 1, 0)) + 1, 0)

    def kept(self, rows: Ids) -> tuple[Ids, Flags]:
        """Returns how many kept rows are before each row, and whether the row itself is kept."""
        number = np.searchsorted(self.begins, rows, side="right")
        inside = np.append(0, self.ends)[number] - rows
        return rows - self._removed_before[number] + np.maximum(inside, 0), inside <= 0

    def with_rows(self, begins: Ids, ends: Ids) -> RemovedRows:
        """Returns these removed rows and further intervals of rows; they may overlap, and none is empty."""
        begins, ends = np.append(self.begins, begins), np.append(self.ends, ends)
        ascending = np.argsort(begins, kind="stable")
        begins, ends = begins[ascending], ends[ascending]
        reached = np.maximum.accumulate(ends)
        is_first = np.append(True, begins[1:] > reached[:-1])[: begins.size]
        is_last = np.append(is_first[1:], True)[: begins.size]
        return RemovedRows(begins[is_first], reached[is_last])

    def with_kept(self, begins: Ids, ends: Ids) -> RemovedRows:
        """Returns these removed rows and further intervals, given as numbers among the kept rows.

        The intervals are ascending and not empty.
        """
        return self.with_rows(self.rows(begins), self.rows(ends - 1) + 1)


@dataclass(frozen=True)
class RemovedPositions:
    """The positions that are removed from a stream, lane by lane.

    Args:
        lanes: the number of lanes of the stream.
        skips: pairs (position, count), ascending: the skipped range, in the positions that earlier skips have
            left: after (2, 3), the pair (4, 1) skips the position that was 7 in the original stream.
        positions: further positions, in the original stream, whose ids were removed. They can be computed
            from the stream, so they are not compared.
    """

    lanes: int
    skips: tuple[tuple[int, int], ...] = ()
    positions: Ids = field(default_factory=no_positions, compare=False)
    _lane_rows: dict[int, RemovedRows] = field(default_factory=dict, init=False, compare=False)

    def __bool__(self) -> bool:
        return bool(self.skips or self.positions.size)

    def of_lane(self, lane: int) -> RemovedRows:
        """Returns the removed rows of a lane. A skip takes rows behind all that earlier skips took."""
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
        """Converts positions among the kept ones to positions in the original stream."""
        rows, lane = np.divmod(kept, self.lanes)
        positions = np.empty_like(kept)
        for number, at in groups(lane):
            positions[at] = self.of_lane(number).rows(rows[at]) * self.lanes + number
        return positions

    def kept(self, positions: Ids) -> tuple[Ids, Flags]:
        """Converts positions in the original stream to positions among the kept ones.

        Returns:
            The position of each, or for a removed one that of the next kept row of its lane; and whether each
            is kept.
        """
        rows, lane = np.divmod(positions, self.lanes)
        kept, is_kept = positions.copy(), np.ones(positions.size, dtype=np.bool_)
        for number, at in groups(lane) if self else ():
            before, is_kept[at] = self.of_lane(number).kept(rows[at])
            kept[at] = before * self.lanes + number
        return kept, is_kept

    def drawn_before(self, positions: Ids, lane: int) -> Ids:
        """Returns how many rows of a lane were drawn before kept positions, removed ones included."""
        before = rows_before(positions, lane, self.lanes)
        return self.of_lane(lane).drawn(before) if self else before

    def first_kept(self, position: int) -> Ids:
        """Returns for each lane the original row of its first kept row at or after a position.

        Removed rows before the returned row were skipped, and count as drawn.

        Args:
            position: among the kept positions.
        """
        before = rows_before(position, np.arange(self.lanes), self.lanes)
        return np.array([self.of_lane(lane).rows(row) for lane, row in enumerate(before)], dtype=np.int64)


@dataclass(eq=False, repr=False)
class WithoutIds(OrderView):
    """An order without some of its ids: the ids after a removed one move up.

    The ids are removed from the sequence that was cut into lanes, and the remaining sequence is cut into
    lanes again. So each lane is still one contiguous part of the sequence, and reads about the same files.

    Args:
        order: the order that they are removed from.
        ids: the ids to remove, distinct.
        lanes: the number of lanes of the order.
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
