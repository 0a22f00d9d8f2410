"""What one rank reads from a position of an epoch on: ids, draws and tokens of each step."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from samplerkit.errors import OutOfDatasetError
from samplerkit.loading.run.delivery import Delivery
from samplerkit.loading.run.units import EpochUnits, StepSamples
from samplerkit.order.typing import Ids, as_array

EVALUATED_AT_ONCE = 8192
"""Ids that are computed in one go: a call costs as much for one batch as for some thousand ids."""

LOOKED_UP_AT_ONCE = 65_536
"""The same for the batches of a whole set, whose samples are in a few hundred buckets."""


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
    def start(self) -> int:
        """The position at which it begins."""
        return self.delivery.start

    @property
    def steps(self) -> int:
        """The number of batches."""
        return 0 if self.is_spent else self.delivery.steps(self.shard)

    @property
    def epoch_steps(self) -> int:
        """The number of batches of this rank in the whole epoch."""
        return replace(self.delivery, start=0).steps(self.shard)

    def has(self, step: int) -> bool:
        """Returns whether there is a batch in a step, with no look at those behind it."""
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
        return self.positions(step) >= self.units.num_draws

    def positions(self, step: int) -> Ids:
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
        self, first: int = 0, stride: int = 1, about: Sequence[str] = ()
    ) -> Iterator[tuple[int, StepSamples]]:
        """Iterates over the steps and what is read in them.

        Args:
            first: the step to begin with.
            stride: every how many steps.
            about: what is asked about each sample beside its id, `passes` or `epochs`: the `columns` of what
                is read.
        """
        size = self.units.expected_size * self.delivery.batch_size
        most = LOOKED_UP_AT_ONCE if self.units.is_looked_up else EVALUATED_AT_ONCE
        # From an eighth on, since a loop that begins or resumes waits for its first batch.
        at_once = max(1, most // 8 // size)
        while True:
            steps = range(first, first + at_once * stride, stride)
            steps = steps[: bisect_left(steps, True, key=lambda step: not self.has(step))]
            if not steps:
                return
            if self._is_split(steps[-1]):
                read = self._read([(self.shard, step) for step in steps])
            else:
                read = self.units.samples(self.delivery.dealt_in(self.shard, steps))
            yield from zip(steps, self._with_columns(read, about), strict=True)
            # Batches may hold very few samples, or very many: how many shows as one goes.
            size = max(1, sum(samples.ids.size for samples in read) // len(read))
            at_once = max(1, min(2 * at_once, most // size))
            first = steps[-1] + stride

    def _with_columns(self, read: list[StepSamples], about: Sequence[str]) -> list[StepSamples]:
        """Adds what is asked about samples: of many steps at once, as their ids."""
        if not about:
            return read
        draws = np.concatenate([as_array(samples.draws) for samples in read])
        units = self.units
        columns = [units.passes(draws) if name == "passes" else units.epochs(draws) for name in about]
        edges = accumulate((samples.ids.size for samples in read), initial=0)
        return [
            samples._replace(columns=tuple(column[a:b] for column in columns))
            for (a, b), samples in zip(pairwise(edges), read, strict=True)
        ]

    def _require(self, step: int) -> None:
        if not self.has(step):
            raise OutOfDatasetError("step", f"must be in [0, {self.steps})", step)

    def _is_split(self, step: int) -> bool:
        return self.delivery.tail == "split" and not self.delivery.is_whole(step)

    def _read(self, dealt: Sequence[tuple[int, int]]) -> list[StepSamples]:
        """Returns what ranks read in steps, those of the last step last."""
        whole = [one for one in dealt if not self._is_split(one[1])]
        read = self.units.samples([self.delivery.dealt(*one) for one in whole]) if whole else []
        if split := dealt[len(whole) :]:
            parts = self.units.parts(self.delivery.first(split[0][1]), self.delivery.num_shards)
            read += [parts[self.delivery.seat(rank)] for rank, _ in split]
        return read
