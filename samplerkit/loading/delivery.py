"""Delivery: which positions of the undealt order each rank reads in each step, and so which ids.

A value has no state: a resume is a delivery with another start.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from samplerkit.errors import OutOfDatasetError
from samplerkit.order.order import Order
from samplerkit.order.typing import Ids

Tail = Literal["pad", "drop", "ragged"]
"""What becomes of the last samples, which do not fill a global batch."""

EVALUATED_AT_ONCE = 8192
"""Ids that are computed in one go: a call costs as much for one batch as for some thousand ids."""


@dataclass(frozen=True)
class Delivery:
    """The rest of an epoch, dealt to ranks in steps.

    Step t covers exactly the positions [start + t * G, start + (t + 1) * G), G the global batch, whatever the
    number of ranks. Positions from `total` on are pads: they repeat the sample at the position modulo
    `total`.

    Args:
        total: N, the number of positions of the order.
        start: the position at which the delivery begins, in [0, total].
        num_shards: W, the number of ranks.
        batch_size: samples a rank and step.
        tail: `pad`: every rank gets ceil(left / W) samples, the last ones pads. `drop`: only whole global
            batches. `ragged`: what there is, so that ranks differ by at most one sample.
        rotation: rank r deals as if it were rank (r - rotation) mod W.
        lanes: the lanes into which the order is woven. Where W and they do not divide one another, the
            positions of a step are dealt in the order of lanes, so that a rank meets fewer files.

    Example:
        >>> delivery = Delivery(total=10, start=0, num_shards=2, batch_size=3, tail="pad")
        >>> [delivery.positions(shard=1, step=step).tolist() for step in range(delivery.steps(shard=1))]
        [[1, 3, 5], [7, 9]]
    """

    total: int
    start: int
    num_shards: int
    batch_size: int
    tail: Tail = "pad"
    rotation: int = 0
    lanes: int = 1

    @property
    def global_batch(self) -> int:
        """G: the samples of all ranks in one step."""
        return self.num_shards * self.batch_size

    @property
    def _fits_lanes(self) -> bool:
        return self.lanes % self.num_shards == 0 or self.num_shards % self.lanes == 0

    @property
    def left(self) -> int:
        """How many positions there are from the start on."""
        return self.total - self.start

    @property
    def job_steps(self) -> int:
        """The number of steps that the ranks take together: that of the rank with the most batches."""
        left = self.left
        return left // self.global_batch if self.tail == "drop" else -(-left // self.global_batch)

    def samples(self, shard: int) -> int:
        """Gives the number of samples that a rank gets, pads included."""
        left = self.left
        if self.tail == "drop":
            return left // self.global_batch * self.batch_size
        if self.tail == "pad":
            return -(-left // self.num_shards)
        whole, rest = divmod(left, self.num_shards)
        return whole + (self._seat(shard) < rest)

    def steps(self, shard: int) -> int:
        """Gives the number of batches that a rank gets: `job_steps`, or with `ragged` perhaps one less."""
        return -(-self.samples(shard) // self.batch_size)

    def position_after(self, steps: int) -> int:
        """Gives the position up to which the first steps have consumed the order."""
        return min(self.start + steps * self.global_batch, self.total)

    def is_over_after(self, steps: int) -> bool:
        """Tells whether the first steps leave nothing to any rank, of an epoch that has begun.

        This is a fact of the job: a rank whose own samples are at their end may be one step before it.
        """
        return steps >= self.job_steps and (steps > 0 or self.start > 0)

    def positions(self, shard: int, step: int) -> Ids:
        """Gives the positions that a rank reads in a step.

        Returns:
            int64 array of shape (samples,), at most `batch_size`; those from `total` on are pads.
        """
        dealt = self.dealt(shard, step)
        return np.arange(dealt.start, dealt.stop, dealt.step) if isinstance(dealt, range) else dealt

    def dealt(self, shard: int, step: int) -> range | Ids:
        """Gives the same positions, as a range where they lie at even distances."""
        first = self.start + step * self.global_batch
        left = self.total - first
        count = min(self.batch_size, self.samples(shard) - step * self.batch_size)
        seat = self._seat(shard)
        if self._fits_lanes:
            begin = first + seat
            return range(begin, begin + count * self.num_shards, self.num_shards)
        covered = min(left, self.global_batch)
        smaller, larger = divmod(covered, self.num_shards)
        if self.tail == "pad":
            smaller, larger = -(-covered // self.num_shards), 0
        begin = seat * smaller + min(seat, larger)
        return self._in_lane_order(first, covered, np.arange(begin, begin + count))

    def _seat(self, shard: int) -> int:
        return (shard - self.rotation) % self.num_shards

    def _in_lane_order(self, first: int, covered: int, ranks: Ids) -> Ids:
        """Gives the positions of these ranks when [first, first + covered) is sorted by lane, pads last."""
        firsts = first + (np.arange(self.lanes) - first) % self.lanes
        counts = np.maximum(0, -((firsts - first - covered) // self.lanes))
        ends = np.cumsum(counts)
        lane = np.minimum(np.searchsorted(ends, ranks, side="right"), self.lanes - 1)
        in_lane = firsts[lane] + (ranks - ends[lane] + counts[lane]) * self.lanes
        return np.where(ranks < covered, in_lane, self.total + ranks - covered)


@dataclass(frozen=True, eq=False)
class SampleUnits:
    """What is dealt: the samples of an order, one a unit. `Reading` asks it for ids, and for no more.

    Args:
        order: the undealt order of an epoch.
    """

    order: Order

    def __len__(self) -> int:
        return len(self.order)

    def ids(self, dealt: Sequence[Ids]) -> list[Ids]:
        """Gives the ids of the units that are dealt in some steps; units from the length on are pads."""
        ids = self.order.ids_at(np.concatenate(dealt) % max(1, len(self)))
        return np.split(ids, np.cumsum([units.size for units in dealt])[:-1])


@dataclass(frozen=True, eq=False)
class Reading:
    """What one rank reads from a position of an epoch on.

    Args:
        epoch: the epoch, from 0.
        units: what is dealt.
        delivery: how its rest is dealt.
        shard: which rank this is.
    """

    epoch: int
    units: SampleUnits
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

    @property
    def epoch_steps(self) -> int:
        """The number of batches of this rank in the whole epoch."""
        return replace(self.delivery, start=0).steps(self.shard)

    def ids(self, step: int) -> Ids:
        """Gives the ids of one step, pads included.

        Raises:
            OutOfDatasetError: there is no such step.
        """
        return self.units.ids([self.positions(step)])[0]

    def pads(self, step: int) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Tells which samples of a step are pads, that repeat another one to fill the batch."""
        return self.positions(step) >= len(self.units)

    def positions(self, step: int) -> Ids:
        """Gives the positions of one step; those from `len(units)` on are pads.

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
            ids = self.units.ids([self.delivery.positions(self.shard, step) for step in chosen])
            yield from zip(chosen, ids, strict=True)
