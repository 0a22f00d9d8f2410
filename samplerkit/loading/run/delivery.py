"""Delivery: which positions of the undealt order, or which batches of a plan, each rank reads in each step.

A value has no state: a resume is a delivery with another start. `Reading` is what one rank reads by it.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import Any, Literal, NamedTuple

import numpy as np

from samplerkit.batches.plan import BatchPlan
from samplerkit.errors import OutOfDatasetError
from samplerkit.loading.run.units import EpochUnits, Ramp, StepSamples
from samplerkit.order import arguments
from samplerkit.order.caching import cached_property
from samplerkit.order.typing import Ids, as_array

Tail = Literal["pad", "drop", "ragged", "split"]
"""How the last samples, which do not fill a global batch, or the last batches are handled."""


class SameSteps(NamedTuple):
    """Steps of one size, one after another.

    Args:
        begin: the position at which the first one begins.
        step: its number.
        size: the samples of all ranks in each.
    """

    begin: int
    step: int
    size: int


@dataclass(frozen=True)
class Delivery:
    """The rest of an epoch, dealt to ranks in steps.

    Step t covers exactly the positions [start + t * G, start + (t + 1) * G), G the global batch, whatever the
    number of ranks; with a ramp, G changes during the epoch, and a step uses the G at its first position.
    Positions from `total` on are pads: they repeat the sample at the position modulo `total`.

    Args:
        total: N, the number of positions of the order; or an object with that length, which is counted only
            for the last step: others do not need to know where the epoch ends.
        start: the position at which the delivery begins, in [0, total].
        num_shards: W, the number of ranks.
        batch_size: samples a rank and step.
        tail: `pad`: every rank gets ceil(left / W) samples, the last ones pads. `drop`: only whole global
            batches. `ragged`: what there is, so that ranks differ by at most one sample. `split`: the same
            steps as `pad`; what is read in the last one is made smaller there (`Reading`).
        rotation: rank r deals as if it were rank (r - rotation) mod W.
        lanes: the lanes into which the order is woven. Where W and they do not divide one another, the
            positions of a step are dealt in the order of lanes, so that a rank meets fewer files.
        ramp: from where on in the epoch G is another number; a multiple of W where the delivery reads.

    Example:
        >>> delivery = Delivery(total=10, start=0, num_shards=2, batch_size=3, tail="pad")
        >>> [[*delivery.dealt(shard=1, step=step)] for step in range(delivery.steps(shard=1))]
        [[1, 3, 5], [7, 9]]
    """

    total: int | BatchPlan
    start: int
    num_shards: int
    batch_size: int
    tail: Tail = "pad"
    rotation: int = 0
    lanes: int = 1
    ramp: Ramp = ()

    @property
    def global_batch(self) -> int:
        """G: the samples of all ranks in the first step."""
        return self.stages[0].size

    @cached_property
    def stages(self) -> tuple[SameSteps, ...]:
        """The steps, by stages of one size each: a step that has begun ends by its own size.

        Example:
            >>> Delivery(total=20, start=0, num_shards=2, batch_size=2, ramp=((6, 8),)).stages
            (SameSteps(begin=0, step=0, size=4), SameSteps(begin=8, step=2, size=8))
            >>> Delivery(total=40, start=8, num_shards=2, batch_size=2, ramp=((6, 8), (7, 16))).stages
            (SameSteps(begin=8, step=0, size=16),)
        """
        stages = [SameSteps(self.start, 0, self.num_shards * self.batch_size)]
        for at, size in self.ramp:
            last = stages[-1]
            steps = max(0, -(-(at - last.begin) // last.size))
            if not steps:
                stages.pop()
            stages.append(SameSteps(last.begin + steps * last.size, last.step + steps, size))
        return tuple(stages)

    def stage_of(self, step: int) -> SameSteps:
        """Returns the steps of one size among which a step is."""
        for stage in reversed(self.stages):
            if stage.step <= step:
                return stage
        return self.stages[0]

    @property
    def size(self) -> int:
        """N, as a number."""
        return self.total if isinstance(self.total, int) else len(self.total)

    @property
    def _fits_lanes(self) -> bool:
        return self.lanes % self.num_shards == 0 or self.num_shards % self.lanes == 0

    @property
    def job_steps(self) -> int:
        """The number of steps that the ranks take together: that of the rank with the most batches."""
        size = self.size
        stage = next((stage for stage in reversed(self.stages) if stage.begin < size), self.stages[0])
        remaining = size - stage.begin
        return stage.step + (remaining // stage.size if self.tail == "drop" else -(-remaining // stage.size))

    def samples(self, shard: int) -> int:
        """Returns the number of samples that a rank gets, pads included."""
        end = self.first(self.job_steps) if self.tail == "drop" else self.size
        least, larger = self._per_rank(end - self.start)
        return least + (self.slot(shard) < larger)

    def steps(self, shard: int) -> int:
        """Returns the number of batches that a rank gets: `job_steps`, or with `ragged` perhaps one less."""
        steps = self.job_steps
        return steps - (steps > 0 and not self.has(shard, steps - 1))

    def has(self, shard: int, step: int) -> bool:
        """Returns whether a rank has a batch in a step, without counting later steps."""
        slot = self.slot(shard) if self.tail == "ragged" else 0
        return self.job_has(step, slot)

    def job_has(self, step: int, slot: int = 0) -> bool:
        """Returns whether any rank has a batch in a step; with `slot`, whether the rank of that seat has."""
        needed = self.stage_of(step).size - 1 if self.tail == "drop" else slot
        return step >= 0 and self._exists(self.first(step) + needed)

    def is_full(self, step: int) -> bool:
        """Returns whether the rest fills a step."""
        return self._exists(self.first(step + 1) - 1)

    def position_after(self, steps: int) -> int:
        """Returns the position up to which the first steps have consumed the order."""
        return self.first(steps) if steps == 0 or self.is_full(steps - 1) else self.size

    def is_over_after(self, steps: int) -> bool:
        """Returns whether the first steps leave nothing to any rank, of an epoch that has begun.

        This is a fact of the job: a rank whose own samples are at their end may be one step before it.
        """
        return (steps > 0 or self.start > 0) and not self.job_has(steps)

    def dealt(self, shard: int, step: int) -> range | Ids:
        """Returns the positions that a rank reads in a step, as a range if they are evenly spaced.

        These are at most `batch_size`; those from N on are pads.
        """
        first, slot, covered = self.first(step), self.slot(shard), self.stage_of(step).size
        if not self.is_full(step):
            covered = 0 if self.tail == "drop" else self.size - first
        least, larger = self._per_rank(covered)
        count = least + (slot < larger)
        if self._fits_lanes:
            begin = first + slot
            return range(begin, begin + count * self.num_shards, self.num_shards)
        begin = slot * least + min(slot, larger)
        return self._in_lane_order(first, covered, np.arange(begin, begin + count))

    def _per_rank(self, covered: int) -> tuple[int, int]:
        """Returns how many of some samples each rank gets at least, and how many ranks get one more."""
        least, larger = divmod(covered, self.num_shards)
        return (least, larger) if self.tail == "ragged" else (least + (larger > 0), 0)

    def dealt_in(self, shard: int, steps: range) -> list[range | Ids]:
        """Returns `dealt` for each of some steps; at once, if they are dealt in the same way."""
        if self.ramp or not self._fits_lanes or not self.is_full(steps[-1]):
            return [self.dealt(shard, step) for step in steps]
        slot, covered = self.slot(shard), self.global_batch
        begins = range(self.first(steps[0]) + slot, self.first(steps[-1] + 1), covered * steps.step)
        return [range(begin, begin + covered, self.num_shards) for begin in begins]

    def first(self, step: int) -> int:
        """Returns the position at which a step begins."""
        stage = self.stage_of(step)
        return stage.begin + (step - stage.step) * stage.size

    def _exists(self, position: int) -> bool:
        return position < self.total if isinstance(self.total, int) else self.total.has(position)

    def slot(self, shard: int) -> int:
        """Returns the place of a rank among those that a step is dealt to."""
        return (shard - self.rotation) % self.num_shards

    def _in_lane_order(self, first: int, covered: int, ranks: Ids) -> Ids:
        """Returns the positions of these ranks when [first, first + covered) is sorted by lane, pads last."""
        # By three ranges of lanes, each with as many positions in all its lanes: there may be ten thousand
        # lanes, and this runs in each step.
        lanes, (least, more) = self.lanes, divmod(covered, self.lanes)
        begin, end, wraps = first % lanes, first % lanes + more, first % lanes + more > lanes
        edges = np.array([0, *((end - lanes, begin) if wraps else (begin, end)), lanes])
        counts = np.array([least + wraps, least + (not wraps), least + wraps])
        before = np.cumsum(np.append(0, np.diff(edges) * counts))
        part = np.minimum(np.searchsorted(before[1:], ranks, side="right"), 2)
        lane, row = np.divmod(ranks - before[part], np.maximum(1, counts[part]))
        lane += edges[part]
        in_lane = first + (lane - first) % lanes + row * lanes
        return np.where(ranks < covered, in_lane, self.size + ranks - covered)


EVALUATED_AT_ONCE = 8192
"""Ids that are computed at once: a call costs as much for one batch as for a few thousand ids."""

SET_AT_ONCE = 65_536
"""The same for the batches of a whole set, whose samples are in a few hundred buckets."""

FIRST_DIVISOR = 8
"""So many times fewer are computed at first: a loop that begins or resumes waits for its first batch."""


@dataclass(frozen=True, eq=False)
class Reading:
    """What one rank reads from a position of an epoch on.

    Args:
        units: what is dealt.
        delivery: how its rest is dealt.
        shard: which rank this is.
        is_spent: whether nothing of the epoch is left, because it was read to its end before.
    """

    units: EpochUnits
    delivery: Delivery
    shard: int
    is_spent: bool = False

    @property
    def epoch(self) -> int:
        """The epoch, from 0."""
        return self.units.epoch

    @property
    def steps(self) -> int:
        """The number of batches."""
        return 0 if self.is_spent else self.delivery.steps(self.shard)

    @property
    def epoch_steps(self) -> int:
        """The number of batches of this rank in the whole epoch."""
        return replace(self.delivery, start=0).steps(self.shard)

    def has(self, step: int) -> bool:
        """Returns whether there is a batch in a step, without counting later ones."""
        return not self.is_spent and self.delivery.has(self.shard, step)

    def ids(self, step: int) -> Ids:
        """Returns the ids of one step, pads included.

        Raises:
            OutOfDatasetError: there is no such step.
        """
        return self.read(step).ids

    def read(self, step: int) -> StepSamples:
        """Returns what is read in one step, pads included.

        Raises:
            OutOfDatasetError: there is no such step.
        """
        self._require(step)
        return self._read([(self.shard, step)])[0]

    def pads(self, step: int) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Returns which samples of a step are pads, that repeat another one to fill the batch."""
        return self.draws(step) >= self.units.num_draws

    def draws(self, step: int) -> Ids:
        """Returns the draws of one step, one a sample: with samples dealt, their positions.

        Returns:
            int64 array of shape (samples,); those from `units.num_draws` on are pads.

        Raises:
            OutOfDatasetError: there is no such step.
        """
        return as_array(self.read(step).draws)

    def tokens(self, step: int) -> int:
        """Returns the tokens of all ranks in a step, pads included; of samples without lengths, their number.

        Raises:
            OutOfDatasetError: there is no such step.
        """
        self._require(step)
        ranks = range(self.delivery.num_shards)
        read = self._read([(rank, step) for rank in ranks if self.delivery.has(rank, step)])
        return sum(self.units.tokens(samples) for samples in read)

    def batches(self, first: int = 0, stride: int = 1) -> Iterator[tuple[int, Ids]]:
        """Iterates over the steps and their ids.

        Args:
            first: the step to begin with.
            stride: every how many steps; worker w of n reads each n-th step.
        """
        return ((step, samples.ids) for step, samples in self.samples(first, stride))

    def samples(
        self, first: int = 0, stride: int = 1, columns: Sequence[str] = ()
    ) -> Iterator[tuple[int, StepSamples]]:
        """Iterates over the steps and what is read in them.

        Args:
            first: the step to begin with.
            stride: every how many steps.
            columns: further values of each sample besides its id, `passes` or `epochs`: the `columns` of what
                is read.
        """
        plan = self.units.plan
        # In plans of windows a batch costs its window.
        most = EVALUATED_AT_ONCE if plan is None or plan.window is not None else SET_AT_ONCE
        # How many samples a batch of a plan has is not known before: the first one is looked up alone.
        at_once = max(1, most // FIRST_DIVISOR // self.delivery.batch_size) if plan is None else 1
        while True:
            steps = range(first, first + at_once * stride, stride)
            steps = steps[: bisect_left(steps, True, key=lambda step: not self.has(step))]
            if not steps:
                return
            if self._is_split(steps[-1]):
                read = self._read([(self.shard, step) for step in steps])
            else:
                read = self.units.samples(self.delivery.dealt_in(self.shard, steps))
            yield from zip(steps, self._with_columns(read, columns), strict=True)
            # Batches may hold very few samples, or very many: how many shows as one goes.
            size = max(1, sum(samples.ids.size for samples in read) // len(read))
            at_once = max(1, min(2 * at_once, most // size))
            first = steps[-1] + stride

    def _with_columns(self, read: list[StepSamples], names: Sequence[str]) -> list[StepSamples]:
        """Adds the requested values of samples: for many steps at once, as with ids."""
        if not names:
            return read
        draws = np.concatenate([as_array(samples.draws) for samples in read])
        units = self.units
        columns = [units.passes(draws) if name == "passes" else units.epochs(draws) for name in names]
        edges = accumulate((samples.ids.size for samples in read), initial=0)
        return [
            samples._replace(columns=tuple(column[a:b] for column in columns))
            for (a, b), samples in zip(pairwise(edges), read, strict=True)
        ]

    def _require(self, step: int) -> None:
        if not self.has(arguments.integer("step", step)):
            raise OutOfDatasetError("step", f"must be in [0, {self.steps})", step)

    def _is_split(self, step: int) -> bool:
        return self.delivery.tail == "split" and not self.delivery.is_full(step)

    def _read(self, dealt: Sequence[tuple[int, int]]) -> list[StepSamples]:
        """Returns what ranks read in steps, those of the last step last."""
        full = [pair for pair in dealt if not self._is_split(pair[1])]
        read = self.units.samples([self.delivery.dealt(*pair) for pair in full]) if full else []
        if split := dealt[len(full) :]:
            parts = self.units.parts(self.delivery.first(split[0][1]), self.delivery.num_shards)
            read += [parts[self.delivery.slot(rank)] for rank, _ in split]
        return read
