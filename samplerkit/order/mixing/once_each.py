"""A mixture that reads each sample of its sources once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, final

import numpy as np

from samplerkit.order.files import BlockShuffle
from samplerkit.order.intervals import edges_of, groups, interval_of
from samplerkit.order.keys import Key
from samplerkit.order.mixing.source_counts import SourceCounts
from samplerkit.order.mixing.source_ends import outermost
from samplerkit.order.order import Located, Order
from samplerkit.order.typing import Ids


@final
class OnceEach(Order):
    """Several orders, each read to its end: until a lane has no more of what it draws.

    What each lane has left then is in its last rows, shuffled among themselves. Where a lane has a few
    rows more or fewer than it has left, the next lanes lend them.

    Args:
        turns: the draws, whose thresholds are shares of the sizes.
        lanes: into how many lanes the mixture is woven; row k of lane l of a source is k * lanes + l there.
        orders: of the sources.
        starts: what is added to the ids of each source, ascending, and the end of the last.
        key: what a lane has left is shuffled by the words of (lane, index).
        index: as for the draws.
    """

    def __init__(
        self,
        turns: SourceCounts,
        lanes: int,
        orders: Sequence[Order],
        starts: Ids,
        key: Key,
        index: int = 0,
    ) -> None:
        self._turns, self._lanes, self._orders, self._starts = turns, lanes, tuple(orders), starts
        sizes = np.array([len(order) for order in orders], dtype=np.int64)
        self._length: Final = int(sizes.sum())
        lane = np.arange(lanes)
        owned = np.maximum(0, (sizes - lane[:, None] + lanes - 1) // lanes)
        read = np.flatnonzero(sizes)
        every, source = np.repeat(lane, read.size), np.tile(read, lanes)
        low, high = turns.ends[0, source], turns.ends[0, source + 1]
        row, first = outermost(turns.draws, every, owned[every, source], low, high, last=False)
        self._border: Final = min(self._length, row * lanes + first)
        self._rows = self._rows_before(self._border)
        self._drawn = turns.drawn_of_all(lane, self._rows)
        self._left = edges_of((owned - self._drawn).ravel())
        self._places = edges_of(self._rows_before(self._length) - self._rows)
        self._shuffle = BlockShuffle(self._places, None, key)

    @property
    def recipe(self) -> tuple[object, ...]:
        return (*self._turns.recipe, self._lanes, self._starts, self._shuffle, *self._orders)

    def __len__(self) -> int:
        return self._length

    @property
    def num_passes(self) -> int:
        return max(order.num_passes for order in self._orders)

    def ids_at(self, positions: Ids) -> Ids:
        return self._read(positions, wants_passes=False)

    def passes_at(self, positions: Ids) -> Ids:
        return self._read(positions, wants_passes=True)

    def locate(self, ids: Ids) -> Located:
        which = np.flatnonzero((ids >= self._starts[0]) & (ids < self._starts[-1]))
        found = [(which[:0],) * 2]
        for source, at in groups(interval_of(self._starts, ids[which])):
            mine, inner = self._orders[source].locate(ids[which[at]] - self._starts[source])
            turn, lane = np.divmod(inner, self._lanes)
            late = turn - self._drawn[lane, source]
            positions = np.empty_like(inner)
            early = np.flatnonzero(late < 0)
            rows = self._turns.row(source, lane[early], turn[early])
            positions[early] = rows * self._lanes + lane[early]
            rest = np.flatnonzero(late >= 0)
            left = self._left[lane[rest] * len(self._orders) + source] + late[rest]
            places = self._shuffle.locate(left)[1]
            last = interval_of(self._places, places)
            positions[rest] = (places - self._places[last] + self._rows[last]) * self._lanes + last
            found.append((which[at[mine]], positions))
        return np.concatenate([which for which, _ in found]), np.concatenate([p for _, p in found])

    def _rows_before(self, position: int) -> Ids:
        return (position - np.arange(self._lanes) + self._lanes - 1) // self._lanes

    def _read(self, positions: Ids, *, wants_passes: bool) -> Ids:
        rows, lanes = np.divmod(positions, self._lanes)
        source, turn = np.empty_like(rows), np.empty_like(rows)
        early, rest = np.flatnonzero(positions < self._border), np.flatnonzero(positions >= self._border)
        source[early], turn[early] = self._turns.read(lanes[early], rows[early])
        places = self._places[lanes[rest]] + rows[rest] - self._rows[lanes[rest]]
        left = self._shuffle.ids_at(places)
        item = interval_of(self._left, left)
        lanes[rest], source[rest] = np.divmod(item, len(self._orders))
        turn[rest] = left - self._left[item] + self._drawn[lanes[rest], source[rest]]
        read = np.empty_like(positions)
        for number, at in groups(source):
            order, inner = self._orders[number], turn[at] * self._lanes + lanes[at]
            read[at] = order.passes_at(inner) if wants_passes else order.ids_at(inner) + self._starts[number]
        return read
