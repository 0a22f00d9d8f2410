"""Delivery: which positions of the undealt order each rank reads in each step. Arithmetic only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from samplerkit.order.typing import Ids

Tail = Literal["pad", "drop", "ragged"]
"""What becomes of the last samples, which do not fill a global batch."""


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
