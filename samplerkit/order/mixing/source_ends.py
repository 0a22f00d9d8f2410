"""Where sources of a mixture end, over all lanes; and a mixture that reads each source once."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

import numpy as np

from samplerkit.order.files import BlockShuffle
from samplerkit.order.intervals import edges_of, groups, interval_of
from samplerkit.order.keys import Key
from samplerkit.order.mixing.removed_positions import rows_before
from samplerkit.order.mixing.source_counts import SourceCounts
from samplerkit.order.mixing.source_draws import MAX_AHEAD, NO_ROW, SourceDraws
from samplerkit.order.order import Located, Order, OrderView, Read
from samplerkit.order.typing import Ids

_AT_ONCE = 1 << 13


def outermost(
    draws: SourceDraws, lanes: Ids, turns: Ids, low: Ids, high: Ids, *, last: bool
) -> tuple[int, int]:
    """Finds which of some turns comes first in a mixture, or last: by its row, then by its lane.

    To find the row of a turn takes 16 look-ups per level, to see on which side of a row a turn is only one.
    So the row of one turn is found, and all turns are compared with it. If some come before it, the row of
    that one which is probably the first is found next, until none comes before it.

    Args:
        draws: of the rows.
        lanes: of each turn, shape (m,), m positive.
        turns: how often the lane read the source before; shape (m,).
        low: the source's first draw; shape (m,).
        high: the end of its draws, larger than `low`; shape (m,).
        last: finds the last one.

    Returns:
        Its row and its lane; `NO_ROW` and the lane of any such turn, if the row has more than 62 bits.

    Example:
        >>> from samplerkit.order.keys import Key
        >>> draws = SourceDraws(Key(seed=7, epoch=0, depth=0, role="sources"))
        >>> lanes, half = np.arange(1000), np.full(1000, 1 << 59)
        >>> turns, none = np.full(1000, 500), np.zeros(1000, dtype=np.int64)
        >>> rows = draws.row_of(lanes, turns, none, half)
        >>> outermost(draws, lanes, turns, none, half, last=False) == (rows.min(), rows.argmin())
        True
    """
    share = (high - low) / (1 << 60)
    expected = (turns + 0.5) / share
    # A row is never further from the expected one: few of the turns can be the first.
    tolerance = (MAX_AHEAD + 1) / share + expected * 1e-12  # floats of 2^62 are 1,024 apart
    earliest, latest = expected - tolerance, expected + tolerance
    at = np.flatnonzero(latest >= earliest.max() if last else earliest <= latest.min())
    best = at[int(np.argmax(expected[at]) if last else np.argmin(expected[at]))]
    row, lane = _row(draws, lanes, turns, low, high, best), int(lanes[best])
    for begin in range(0, at.size, _AT_ONCE):
        rest = at[begin : begin + _AT_ONCE]
        while not (last and row == NO_ROW):
            # In a lane before that of the best one, the row of the same number comes before it too.
            bound = row + (lanes[rest] <= lane if last else lanes[rest] < lane)
            reads = draws.count_below(lanes[rest], bound, high[rest])
            reads -= draws.count_below(lanes[rest], bound, low[rest])
            better = np.flatnonzero(reads <= turns[rest] if last else reads > turns[rest])
            if not better.size:
                break
            ahead, rest = ((reads - turns[rest]) / share[rest])[better], rest[better]
            best = rest[int(np.argmin(ahead) if last else np.argmax(ahead))]
            row, lane = _row(draws, lanes, turns, low, high, best), int(lanes[best])
    return row, lane


def _row(draws: SourceDraws, lanes: Ids, turns: Ids, low: Ids, high: Ids, index: int) -> int:
    return int(draws.row_of(lanes[index], turns[index], low[index], high[index]))


@lru_cache(64)
def first_length(
    draws: tuple[Key, int], lanes: int, sizes: tuple[int, ...], ends: tuple[int, ...], *, is_first: bool
) -> int:
    """Returns the length of the first epoch of a mixture; cached, since each epoch of a run needs it.

    Args:
        draws: the key and the index of `SourceDraws`.
        lanes: of the mixture.
        sizes: of the sources.
        ends: from `thresholds`.
        is_first: the epoch ends before any source would begin again; otherwise once all were read to their
            ends.

    Example:
        >>> key = Key(seed=1, epoch=0, depth=0, role="sources")  # reads sources 0 0 1 0 0 1 0 0 0 1
        >>> ends = 0, 3 << 58, 1 << 60
        >>> [first_length((key, 0), 1, (5, 3), ends, is_first=is_first) for is_first in (True, False)]
        [7, 10]
    """
    size, end = np.array(sizes), np.array(ends)
    source, lane = (part.reshape(-1) for part in np.indices((size.size, lanes)))
    is_read = (np.diff(end) > 0)[source] & (is_first | (lane < size[source]))
    source, lane = source[is_read], lane[is_read]
    # The turn of each lane that begins a source again, or the last turn of its first pass.
    turns = rows_before(size[source], lane, lanes) - (not is_first)
    row, owner = outermost(SourceDraws(*draws), lane, turns, end[source], end[source + 1], last=not is_first)
    # Python's integers: a large source of a small weight ends beyond 64 bits.
    return row * lanes + owner + (not is_first)


class OnceEach(OrderView):
    """Several orders mixed by draws, each of them read exactly once.

    Up to the first position at which a lane draws a source of which it has no more samples, this is `Mix`.
    From there on, the rows of each lane read its remaining samples, shuffled. For example, a lane has three
    samples of source A and three of source B, and draws A B A A A B. It reads A0 B0 A1 A2, and then B1 and B2
    in shuffled order.

    The number of a lane's remaining rows may differ a little from that of its remaining samples; over all
    lanes they are equal. So places, the remaining rows of one lane after another, are matched with items,
    the remaining samples of one lane after another. Places are shuffled within a lane.

    Args:
        counts: of draws whose thresholds are shares of the sizes.
        lanes: into how many lanes the mixture is woven; row k of lane l of a source is k * lanes + l there.
        orders: of the sources.
        starts: where the ids of each source begin, ascending, and the end of the last.
        key: the words of lane l shuffle its remaining samples.
    """

    def __init__(
        self, counts: SourceCounts, lanes: int, orders: Sequence[Order], starts: Ids, key: Key
    ) -> None:
        self._counts, self._lanes, self._orders, self._starts = counts, lanes, tuple(orders), starts
        sizes = np.array([len(order) for order in orders], dtype=np.int64)
        self._length: Final = int(sizes.sum())
        lane = np.arange(lanes)
        ends = tuple(counts.ends[0].tolist())
        border = first_length(counts.draws.recipe, lanes, tuple(sizes.tolist()), ends, is_first=True)
        self._border: Final = min(self._length, border)
        # Of each lane: the rows before the border, and the reads of each source in these.
        self._rows = rows_before(self._border, lane, lanes)
        self._reads = counts.reads_of_all_before(lane, self._rows)
        self._items = edges_of((rows_before(sizes, lane[:, None], lanes) - self._reads).ravel())
        self._places = edges_of(rows_before(self._length, lane, lanes) - self._rows)
        self._shuffle = BlockShuffle(self._places, None, key)

    @property
    def recipe(self) -> tuple[object, ...]:
        return (*self._counts.recipe, self._lanes, self._shuffle, *self._orders)

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
            late = turn - self._reads[lane, source]
            positions = np.empty_like(inner)
            early = np.flatnonzero(late < 0)
            rows = self._counts.row_of(source, lane[early], turn[early])
            positions[early] = rows * self._lanes + lane[early]
            rest = np.flatnonzero(late >= 0)
            items = self._items[lane[rest] * len(self._orders) + source] + late[rest]
            places = self._shuffle.locate(items)[1]
            last = interval_of(self._places, places)
            positions[rest] = (places - self._places[last] + self._rows[last]) * self._lanes + last
            matches.append((which[at[local]], positions))
        return np.concatenate([which for which, _ in matches]), np.concatenate([p for _, p in matches])

    def read(self, positions: Ids, getter: Read) -> Ids:
        rows, lanes = np.divmod(positions, self._lanes)
        source, turn = np.empty_like(rows), np.empty_like(rows)
        early, rest = np.flatnonzero(positions < self._border), np.flatnonzero(positions >= self._border)
        source[early], turn[early] = self._counts.read(lanes[early], rows[early])
        places = self._places[lanes[rest]] + rows[rest] - self._rows[lanes[rest]]
        items = self._shuffle.ids_at(places)
        cell = interval_of(self._items, items)
        lanes[rest], source[rest] = np.divmod(cell, len(self._orders))
        turn[rest] = items - self._items[cell] + self._reads[lanes[rest], source[rest]]
        values = np.empty_like(positions)
        for number, at in groups(source):
            values[at] = getter(self._orders[number], turn[at] * self._lanes + lanes[at])
        return values
