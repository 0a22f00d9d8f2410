"""Where sources end: which lane of a mixture comes first, or last, to a turn; a mixture that reads all once.

A row is found by trying sixteen digits at each of fifteen places; on which side of a row a turn is, by one
look at each place. So one row is found, all turns are compared with it, and the next row is found of those
beyond it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final, final

import numpy as np

from samplerkit.order.files import BlockShuffle
from samplerkit.order.intervals import edges_of, groups, interval_of
from samplerkit.order.keys import Key
from samplerkit.order.mixing.removed_positions import rows_before
from samplerkit.order.mixing.source_counts import SourceCounts
from samplerkit.order.mixing.source_draws import SourceDraws
from samplerkit.order.order import Located, Order, OrderView, Read
from samplerkit.order.typing import Ids

MAX_AHEAD = 150
"""Reads of a source by which a lane is ahead of its share, or behind it, at most."""

NO_ROW = 1 << 62
"""The row of turns that come at no row of 62 bits."""

_AT_ONCE = 1 << 13


def outermost(
    draws: SourceDraws, lanes: Ids, turns: Ids, low: Ids, high: Ids, *, last: bool
) -> tuple[int, int]:
    """Finds the turn that comes first, by its row and then its lane; or the last one.

    Args:
        draws: of the rows.
        lanes: of each turn, shape (m,), m positive.
        turns: how often the lane read the source before; shape (m,).
        low: the source's first draw; shape (m,).
        high: the end of its draws, larger than `low`; shape (m,).
        last: whether the last one is sought.

    Returns:
        Its row and its lane; `NO_ROW` and the lane of any such turn, if the row has more than 62 bits.

    Example:
        >>> from samplerkit.order.keys import Key
        >>> draws = SourceDraws(Key(seed=7, epoch=0, depth=0, role="sources"))
        >>> lanes, half = np.arange(1000), np.full(1000, 1 << 59)
        >>> turns, none = np.full(1000, 500), np.zeros(1000, dtype=np.int64)
        >>> rows = draws.position(lanes, turns, none, half)
        >>> outermost(draws, lanes, turns, none, half, last=False) == (rows.min(), rows.argmin())
        True
    """
    width = (high - low) / (1 << 60)
    rows = (turns + 0.5) / width
    # Whatever a lane does, it is this near to its share: most sources are far from the end of the first one.
    tol = (MAX_AHEAD + 1) / width + rows * 1e-12  # floats of 2^62 are 1,024 apart
    at = np.flatnonzero(rows + tol >= (rows - tol).max() if last else rows - tol <= (rows + tol).min())
    best = at[int(np.argmax(rows[at]) if last else np.argmin(rows[at]))]
    row, lane = _row(draws, lanes, turns, low, high, best), int(lanes[best])
    for begin in range(0, at.size, _AT_ONCE):
        rest = at[begin : begin + _AT_ONCE]
        while rest.size:
            # Rows of this number are before the best one in earlier lanes.
            bound = row + (lanes[rest] <= lane if last else lanes[rest] < lane)
            reads = draws.before(lanes[rest], bound, high[rest]) - draws.before(lanes[rest], bound, low[rest])
            ahead = (reads - turns[rest]) / width[rest]
            better = np.flatnonzero(reads <= turns[rest] if last else reads > turns[rest])
            if not better.size or (last and row == NO_ROW):
                break
            rest, ahead = rest[better], ahead[better]
            best = rest[int(np.argmin(ahead) if last else np.argmax(ahead))]
            row, lane = _row(draws, lanes, turns, low, high, best), int(lanes[best])
            rest = rest[rest != best]
    return row, lane


def _row(draws: SourceDraws, lanes: Ids, turns: Ids, low: Ids, high: Ids, index: int) -> int:
    return int(draws.position(lanes[index], turns[index], low[index], high[index]))


@lru_cache(64)
def first_length(
    draws: tuple[Key, int], lanes: int, sizes: tuple[int, ...], ends: tuple[int, ...], *, is_first: bool
) -> int:
    """Returns how many positions the first epoch has; kept, since each epoch of a run asks for it.

    Args:
        draws: the key and the index of `SourceDraws`.
        lanes: of the mixture.
        sizes: of the sources.
        ends: from `thresholds`.
        is_first: whether it ends before a source would begin again, else once each was read to its end.
    """
    size, end = np.array(sizes), np.array(ends)
    source, lane = (part.reshape(-1) for part in np.indices((size.size, lanes)))
    is_read = (np.diff(end) > 0)[source] & (is_first | (lane < size[source]))
    source, lane = source[is_read], lane[is_read]
    # The turn of each lane that begins a source again, or the last one of its first pass.
    last = size[source] - lane + (lanes - 1 if is_first else -1)
    turns = np.maximum(0, last // lanes)
    row, owner = outermost(SourceDraws(*draws), lane, turns, end[source], end[source + 1], last=not is_first)
    # Python's integers: a large source of a small weight ends beyond 64 bits.
    return row * lanes + owner + (not is_first)


@final
class OnceEach(OrderView):
    """Several orders, each read to its end: until a lane has no more of what it draws.

    What each lane has left then is in its last rows, shuffled among themselves. Where a lane has a few
    rows more or fewer than it has left, the next lanes lend them.

    Args:
        turns: the draws, whose thresholds are shares of the sizes.
        lanes: into how many lanes the mixture is woven; row k of lane l of a source is k * lanes + l there.
        orders: of the sources.
        starts: where the ids of each source begin, ascending, and the end of the last.
        key: what a lane has left is shuffled by the words of the lane.
    """

    def __init__(
        self, turns: SourceCounts, lanes: int, orders: Sequence[Order], starts: Ids, key: Key
    ) -> None:
        self._turns, self._lanes, self._orders, self._starts = turns, lanes, tuple(orders), starts
        sizes = np.array([len(order) for order in orders], dtype=np.int64)
        self._length: Final = int(sizes.sum())
        lane = np.arange(lanes)
        owned = np.maximum(0, (sizes - lane[:, None] + lanes - 1) // lanes)
        ends = tuple(turns.ends[0].tolist())
        border = first_length(turns.draws.recipe, lanes, tuple(sizes.tolist()), ends, is_first=True)
        self._border: Final = min(self._length, border)
        self._rows = rows_before(np.array(self._border), lane, lanes)
        self._drawn = turns.drawn_of_all(lane, self._rows)
        self._remaining = edges_of((owned - self._drawn).ravel())
        self._places = edges_of(rows_before(np.array(self._length), lane, lanes) - self._rows)
        self._shuffle = BlockShuffle(self._places, None, key)

    @property
    def recipe(self) -> tuple[object, ...]:
        return (*self._turns.recipe, self._lanes, self._shuffle, *self._orders)

    def __len__(self) -> int:
        return self._length

    @property
    def viewed(self) -> Sequence[Order]:
        return self._orders

    def locate(self, ids: Ids) -> Located:
        which = np.flatnonzero((ids >= self._starts[0]) & (ids < self._starts[-1]))
        matches = [(which[:0],) * 2]
        for source, at in groups(interval_of(self._starts, ids[which])):
            local, inner = self._orders[source].locate(ids[which[at]])
            turn, lane = np.divmod(inner, self._lanes)
            late = turn - self._drawn[lane, source]
            positions = np.empty_like(inner)
            early = np.flatnonzero(late < 0)
            rows = self._turns.row(source, lane[early], turn[early])
            positions[early] = rows * self._lanes + lane[early]
            rest = np.flatnonzero(late >= 0)
            items = self._remaining[lane[rest] * len(self._orders) + source] + late[rest]
            places = self._shuffle.locate(items)[1]
            last = interval_of(self._places, places)
            positions[rest] = (places - self._places[last] + self._rows[last]) * self._lanes + last
            matches.append((which[at[local]], positions))
        return np.concatenate([which for which, _ in matches]), np.concatenate([p for _, p in matches])

    def read(self, positions: Ids, getter: Read) -> Ids:
        rows, lanes = np.divmod(positions, self._lanes)
        source, turn = np.empty_like(rows), np.empty_like(rows)
        early, rest = np.flatnonzero(positions < self._border), np.flatnonzero(positions >= self._border)
        source[early], turn[early] = self._turns.read(lanes[early], rows[early])
        places = self._places[lanes[rest]] + rows[rest] - self._rows[lanes[rest]]
        items = self._shuffle.ids_at(places)
        cell = interval_of(self._remaining, items)
        lanes[rest], source[rest] = np.divmod(cell, len(self._orders))
        turn[rest] = items - self._remaining[cell] + self._drawn[lanes[rest], source[rest]]
        values = np.empty_like(positions)
        for number, at in groups(source):
            values[at] = getter(self._orders[number], turn[at] * self._lanes + lanes[at])
        return values
