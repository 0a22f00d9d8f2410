"""A reading: what one rank reads in the rest of an epoch, step by step, as a value."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from samplerkit.errors import OutOfDatasetError
from samplerkit.loading.delivery import Delivery
from samplerkit.order.order import Order
from samplerkit.order.typing import Ids

EVALUATED_AT_ONCE = 8192
"""Ids that are computed in one go: a call costs as much for one batch as for some thousand ids."""


@dataclass(frozen=True, eq=False)
class Reading:
    """What one rank reads from a position of an epoch on.

    Args:
        epoch: the epoch, from 0.
        order: the undealt order of that epoch.
        delivery: how its rest is dealt.
        shard: which rank this is.
    """

    epoch: int
    order: Order
    delivery: Delivery
    shard: int

    @property
    def start(self) -> int:
        """The position at which it begins."""
        return self.delivery.start

    @property
    def steps(self) -> int:
        """The number of batches."""
        return self.delivery.steps(self.shard)

    def ids(self, step: int) -> Ids:
        """Gives the ids of one step, pads included.

        Raises:
            OutOfDatasetError: there is no such step.
        """
        return self.order.ids_at(self.positions(step) % max(1, len(self.order)))

    def pads(self, step: int) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Tells which samples of a step are pads, that repeat another one to fill the batch."""
        return self.positions(step) >= len(self.order)

    def positions(self, step: int) -> Ids:
        """Gives the positions of one step; those from `len(order)` on are pads.

        Raises:
            OutOfDatasetError: there is no such step.
        """
        if not 0 <= step < self.steps:
            raise OutOfDatasetError("step", f"must be in [0, {self.steps})", step)
        return self.delivery.positions(self.shard, step)

    def dealt(self, step: int) -> range | Ids:
        """Gives the positions of a step that there is, as a range where they lie at even distances."""
        return self.delivery.dealt(self.shard, step)

    def batches(self, first: int = 0, stride: int = 1) -> Iterator[tuple[int, Ids]]:
        """Iterates over the steps and their ids.

        Args:
            first: the step to begin with.
            stride: every how many steps; worker w of n reads each n-th step.
        """
        block = stride * max(1, EVALUATED_AT_ONCE // self.delivery.batch_size)
        for begin in range(first, self.steps, block):
            chosen = range(begin, min(begin + block, self.steps), stride)
            positions = [self.delivery.positions(self.shard, step) for step in chosen]
            ids = self.order.ids_at(np.concatenate(positions) % len(self.order))
            ends = np.cumsum([part.size for part in positions])[:-1]
            yield from zip(chosen, np.split(ids, ends), strict=True)
