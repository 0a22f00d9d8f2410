"""The part of an epoch that one rank reads, by torch's rules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from samplerkit.order.algebra import OrderView, Read, Shard
from samplerkit.order.deal import World
from samplerkit.order.order import Located, Order
from samplerkit.order.sequences import Table
from samplerkit.order.typing import Ids


@dataclass(frozen=True)
class DealtPart:
    """The positions start + rank, start + rank + W, ... below `end`, W the number of ranks.

    A position from the number of samples on wraps around, as often as need be: torch's padding.

    Args:
        start: the position at which all ranks together begin.
        end: the position at which they end; `end - start` is a multiple of W.
        world: which rank of how many.

    Example:
        >>> DealtPart.of(10, World(4, 3)).positions().tolist(), DealtPart.of(10, World(4, 3), drop_last=True)
        ([3, 7, 11], DealtPart(start=0, end=8, world=World(num_shards=4, shard_id=3)))
    """

    start: int
    end: int
    world: World

    @classmethod
    def of(cls, size: int, world: World, *, drop_last: bool = False, start: int = 0) -> DealtPart:
        """Deals the rest of `size` positions: rounded up to a multiple of W, or down."""
        left = max(0, size - start)
        rows = left // world.num_shards if drop_last else -(-left // world.num_shards)
        return cls(start, start + rows * world.num_shards, world)

    def __len__(self) -> int:
        return (self.end - self.start) // self.world.num_shards

    def positions(self, first_row: int = 0) -> Ids:
        """Returns the positions, from a row on: int64 array of shape (rows,)."""
        first = self.start + self.world.shard_id + first_row * self.world.num_shards
        return np.arange(first, self.end, self.world.num_shards)

    def of_order(self, undealt: Order) -> Order:
        """Returns this part of an order; nothing is computed until it is read."""
        return Shard(Cycled(undealt, self.end), *self._shard, padded=True, start=self.start)

    def of_array(self, undealt: Any) -> Order:
        """Returns this part of an array of ids, in memory of its own, so that the array can be freed."""
        within = undealt[self.start + self.world.shard_id : self.end : self.world.num_shards]
        wrapped = self.positions(first_row=within.size)
        return Table(np.append(within, undealt[wrapped % len(undealt)]) if wrapped.size else within)

    def of_list(self, undealt: list[Any]) -> list[Any]:
        """Returns this part of a list of anything."""
        return [undealt[position % len(undealt)] for position in self.positions().tolist()]

    @property
    def _shard(self) -> tuple[int, int]:
        return self.world.num_shards, self.world.shard_id


@final
class Cycled(OrderView):
    """The first `length` positions of an order that begins again at its end; `length` may be smaller."""

    def __init__(self, order: Order, length: int) -> None:
        self._order = order
        self._length = length

    @property
    def recipe(self) -> tuple[object, ...]:
        return self._order, self._length

    def __len__(self) -> int:
        return self._length

    @property
    def viewed(self) -> Sequence[Order]:
        return (self._order,)

    def read(self, positions: Ids, what: Read) -> Ids:
        return what(self._order, positions % len(self._order) if positions.size else positions)

    def locate(self, ids: Ids) -> Located:
        which, positions = self._order.locate(ids)
        rounds = -(-self._length // max(1, len(self._order)))
        positions = (positions[:, None] + np.arange(rounds) * len(self._order)).reshape(-1)
        within = positions < self._length
        return np.repeat(which, rounds)[within], positions[within]
