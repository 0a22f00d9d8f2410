"""Orders made of orders: composition, shard and weave."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from samplerkit.order.intervals import edges_of, groups, interval_of, numbers_in
from samplerkit.order.layout import Layout
from samplerkit.order.order import PASS_BITS, Located, Order, OrderView, Read
from samplerkit.order.sequences import Range
from samplerkit.order.typing import Ids


def compose(outer: Order, inner: Order) -> Order:
    """Reads `inner` at the ids of `outer`: position p holds inner[outer[p]].

    Example:
        >>> np.asarray(compose(Range(1, 2), Range(5, 10))).tolist()
        [6, 7]
    """
    for identity, other in ((inner, outer), (outer, inner)):
        if isinstance(identity, Range) and identity.start == 0 and len(identity) == len(inner):
            return other
    parts = (*(outer.parts if isinstance(outer, Composed) else (outer,)),)
    return Composed((*parts, *(inner.parts if isinstance(inner, Composed) else (inner,))))


@dataclass(frozen=True, eq=False, repr=False)
class Composed(Order):
    """A chain of orders, outermost first: each part has the positions of the next one as ids.

    The chain is flat, so that a deep one needs no recursion.
    """

    parts: tuple[Order, ...]

    def __len__(self) -> int:
        return len(self.parts[0])

    def ids_at(self, positions: Ids) -> Ids:
        for part in self.parts:
            positions = part.ids_at(positions)
        return positions

    @property
    def layout(self) -> Layout:
        return self.parts[0].layout

    @property
    def num_passes(self) -> int:
        return math.prod(part.num_passes for part in self.parts)

    def passes_at(self, positions: Ids) -> Ids:
        return self._repeats(self.parts, positions)[0]

    @staticmethod
    def _repeats(parts: tuple[Order, ...], positions: Ids) -> tuple[Ids, Ids]:
        """Returns the passes of positions through a chain of parts, as one number each, and the ids there."""
        repeats = np.zeros_like(positions)
        for part in parts:
            # The passes of the parts are the digits of the number: no two positions of an id have the same.
            if part.num_passes > 1:
                repeats = repeats * part.num_passes + part.passes_at(positions)
            positions = part.ids_at(positions)
        return repeats, positions

    def epochs_at(self, epoch: int, positions: Ids) -> Ids:
        inner = self.parts[-1]
        if self.num_passes == 1 and type(inner).epochs_at is Order.epochs_at:
            return np.full_like(positions, epoch)  # nothing repeats: no need to compute ids
        repeats, positions = self._repeats(self.parts[:-1], positions)
        if repeats.any():
            # The repeated order may have several passes too.
            repeats = repeats * inner.num_passes
        return inner.epochs_at(epoch, positions) + (repeats << PASS_BITS)

    def locate(self, ids: Ids) -> Located:
        which = np.arange(ids.size)
        for part in reversed(self.parts):
            indices, ids = part.locate(ids)
            which = which[indices]
        return which, ids


def limited(order: Order, limit: int | None) -> Order:
    """Cuts an order to its first `limit` positions; None for all."""
    return order if limit is None or limit >= len(order) else compose(Range(0, limit), order)


class Shard(OrderView):
    """One shard of an order that is dealt like cards: row k is position start + k * num_shards + first.

    Args:
        order: the undealt order, of N positions.
        num_shards: how many shards it is dealt to.
        first: the first position of this shard, in [0, num_shards).
        padded: whether all shards have the same number of rows, so that positions from N on wrap around to 0;
            otherwise each has its rows below N.
        start: the position at which the deal begins, in [0, N].
        length: the number of rows in place of that by `padded`; they wrap around as often as needed.

    Example:
        >>> [Shard(Range(0, 10), 4, 3, padded=padded)[:].tolist() for padded in (True, False)]
        [[3, 7, 1], [3, 7]]
    """

    def __init__(
        self,
        order: Order,
        num_shards: int,
        first: int,
        *,
        padded: bool = False,
        start: int = 0,
        length: int | None = None,
    ) -> None:
        self._order = order
        self._num_shards = num_shards
        self._first = start + first
        begin = start if padded else self._first
        self._length = max(0, -((begin - len(order)) // num_shards)) if length is None else length
        self._wraps = self._first + (self._length - 1) * num_shards >= len(order)

    @property
    def recipe(self) -> tuple[object, ...]:
        return self._order, self._num_shards, self._first, self._length

    def __len__(self) -> int:
        return self._length

    @property
    def viewed(self) -> Sequence[Order]:
        return (self._order,)

    def read(self, positions: Ids, getter: Read) -> Ids:
        undealt = positions * self._num_shards
        undealt += self._first
        if self._wraps and undealt.size and undealt.max() >= len(self._order):
            undealt %= len(self._order)
        return getter(self._order, undealt)

    def locate(self, ids: Ids) -> Located:
        which, undealt = self._order.locate(ids)
        row, rest = np.divmod(undealt - self._first, self._num_shards)
        in_shard = (row >= 0) & (rest == 0) & (row < self._length)
        if not self._wraps:
            return which[in_shard], row[in_shard]
        # The rows at positions from N on; in a padded deal that is the last row, if any.
        rows = np.arange(max(0, -((self._first - len(self._order)) // self._num_shards)), self._length)
        places = (self._first + rows * self._num_shards) % len(self._order)
        by_place = np.argsort(places)
        firsts, ends = (np.searchsorted(places[by_place], undealt, side=side) for side in ("left", "right"))
        wrapped = rows[by_place[numbers_in(firsts, ends - firsts)]]
        return np.append(which[in_shard], np.repeat(which, ends - firsts)), np.append(row[in_shard], wrapped)


@dataclass(eq=False, repr=False)
class Weave(OrderView):
    """Orders that are interleaved: row 0 of each, then row 1 of each, and so on, while they have rows.

    Args:
        orders: at least one; they may differ in length.

    Example:
        >>> Weave([Range(0, 3), Range(10, 1), Range(20, 2)])[:]
        array([ 0, 10, 20,  1, 21,  2])
    """

    orders: Sequence[Order]

    def __post_init__(self) -> None:
        lengths = np.array([len(order) for order in self.orders], dtype=np.int64)
        # A piece is the rows from one distinct length to the next: the same orders have all of them.
        self._rows = np.unique(np.append(lengths, 0))
        self._alive = [np.flatnonzero(lengths > row) for row in self._rows]
        widths = np.array([alive.size for alive in self._alive[:-1]], dtype=np.int64)
        self._starts = edges_of(widths * np.diff(self._rows))

    def __len__(self) -> int:
        return int(self._starts[-1])

    @property
    def viewed(self) -> Sequence[Order]:
        return self.orders

    def read(self, positions: Ids, getter: Read) -> Ids:
        values = np.empty_like(positions)
        piece = interval_of(self._starts, positions)
        for number, at in groups(piece):
            alive = self._alive[number]
            row, column = np.divmod(positions[at] - self._starts[number], alive.size)
            row += self._rows[number]
            for index, inside in groups(column):
                values[at[inside]] = getter(self.orders[alive[index]], row[inside])
        return values

    def locate(self, ids: Ids) -> Located:
        matches = [(np.zeros(0, dtype=np.int64),) * 2]
        for number, order in enumerate(self.orders):
            which, rows = order.locate(ids)
            piece = np.searchsorted(self._rows, rows, side="right") - 1
            positions = np.empty_like(rows)
            for part, at in groups(piece):
                alive = self._alive[part]
                column = int(np.searchsorted(alive, number))
                positions[at] = self._starts[part] + (rows[at] - self._rows[part]) * alive.size + column
            matches.append((which, positions))
        return np.concatenate([which for which, _ in matches]), np.concatenate([p for _, p in matches])
