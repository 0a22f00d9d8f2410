"""What is dealt to ranks: the samples of an order one by one, or the batches of a plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any, ClassVar, NamedTuple

import numpy as np

from samplerkit.batches.halves import halved
from samplerkit.batches.plan import BatchPlan, BatchSamples
from samplerkit.batches.segments import Segments
from samplerkit.errors import NotSupportedError
from samplerkit.order.order import Order
from samplerkit.order.typing import Ids


class StepSamples(NamedTuple):
    """What a rank reads in a step.

    Args:
        ids: of the samples, int64.
        draws: the draw of each, as a range where they lie at even distances; pads have draws of their own,
            from the epoch's number of draws on.
        segments: which parts of the samples, for packs; None where they are whole.
    """

    ids: Ids
    draws: range | Ids
    segments: Segments | None = None


def as_array(units: range | Ids) -> Ids:
    """Gives numbers that may be told as a range as an array."""
    return np.arange(units.start, units.stop, units.step) if isinstance(units, range) else units


@dataclass(frozen=True, eq=False)
class SampleUnits:
    """The samples of an order, one a unit: its draw is its position.

    Args:
        order: the undealt order of an epoch.
    """

    expected_size: ClassVar[int] = 1
    """Samples of a unit, as far as one knows before any was looked at."""

    is_looked_up: ClassVar[bool] = False
    """Whether samples are looked up in a set, for which no neighbours are passed over."""

    order: Order

    def __len__(self) -> int:
        return len(self.order)

    @property
    def num_draws(self) -> int:
        """How many draws there are in the epoch, pads not counted."""
        return len(self.order)

    def samples(self, dealt: Sequence[range | Ids]) -> list[StepSamples]:
        """Gives what is read in some steps; units from the length on are pads.

        Args:
            dealt: the numbers of the units of each step.
        """
        numbers = np.concatenate([as_array(units) for units in dealt])
        ids = self.order.ids_at(numbers % max(1, len(self)))
        edges = accumulate(map(len, dealt), initial=0)
        return [StepSamples(ids[a:b], units) for (a, b), units in zip(pairwise(edges), dealt, strict=True)]

    def draws(self, units: range | Ids) -> range | Ids:
        """Gives the draws of what is read in one step: no id is computed for them."""
        return units

    def passes(self, draws: range | Ids) -> Ids:
        """Gives the pass over its source of each draw, of pads that of what they repeat."""
        return self.order.passes_at(as_array(draws) % max(1, self.num_draws))

    def epochs(self, epoch: int, draws: range | Ids) -> Ids:
        """Gives the epoch of its source of each draw in an epoch, of pads that of what they repeat."""
        return self.order.epochs_at(epoch, as_array(draws) % max(1, self.num_draws))

    def parts(self, first: int, count: int) -> list[StepSamples]:
        """Refuses: a sample has no parts."""
        raise NotSupportedError("tail", "splits batches, and these are samples", "split")

    def tokens(self, samples: StepSamples) -> int:
        """Gives the number of samples: how long they are is not known."""
        return samples.ids.size


@dataclass(frozen=True, eq=False)
class BatchUnits:
    """The batches of a plan, one a unit, and one a rank and step.

    Args:
        plan: of an epoch.
        multiple: the number of samples stays a multiple of it where a batch is made smaller.
    """

    expected_size: ClassVar[int] = 1 << 20
    """Nobody knows before: so the first batch is looked up alone."""

    plan: BatchPlan
    multiple: int = 1

    def __len__(self) -> int:
        return len(self.plan)

    @property
    def is_looked_up(self) -> bool:
        """Whether any batch costs the same: in plans of windows a batch costs its window."""
        return self.plan.window is None

    def has(self, number: int) -> bool:
        """Tells whether there is a batch of this number, with no look at those behind it."""
        return self.plan.has(number)

    @property
    def num_draws(self) -> int:
        """How many draws there are in the epoch, pads not counted."""
        return self.plan.num_draws

    def samples(self, dealt: Sequence[range | Ids]) -> list[StepSamples]:
        """Gives what is read in some steps; a unit from the length on repeats a whole batch.

        Args:
            dealt: the number of the one unit of each step.
        """
        numbers = np.array([units[0] for units in dealt], dtype=np.int64)
        if self.plan.has(int(numbers.max())):
            found = self.plan.samples(numbers)
            draws = found.positions
        else:
            again, numbers = np.divmod(numbers, len(self))
            found = self.plan.samples(numbers)
            draws = found.positions + np.repeat(again * self.num_draws, np.diff(found.edges))
        if found.segments is None:
            return [StepSamples(found.ids[a:b], draws[a:b]) for a, b in pairwise(found.edges.tolist())]
        return [_read(found, slice(a, b), draws[a:b]) for a, b in pairwise(found.edges.tolist())]

    def draws(self, units: range | Ids) -> range | Ids:
        """Gives the draws of what is read in one step."""
        return self.samples([units])[0].draws

    def passes(self, draws: range | Ids) -> Ids:
        """Gives the pass over its source of each draw, of pads that of what they repeat."""
        return self.plan.passes_at(as_array(draws) % max(1, self.num_draws))

    def epochs(self, epoch: int, draws: range | Ids) -> Ids:
        """Gives the epoch of its source of each draw in an epoch, of pads that of what they repeat."""
        return self.plan.epochs_at(epoch, as_array(draws) % max(1, self.num_draws))

    def parts(self, first: int, count: int) -> list[StepSamples]:
        """Makes smaller batches of all those from a number on.

        Args:
            first: the number.
            count: how many are wanted.

        Returns:
            As many. Where there are fewer samples, the last ones are pads that repeat the first ones.
        """
        found = self.plan.samples(np.arange(first, len(self)))
        places = np.split(np.arange(found.ids.size), found.edges[1:-1])
        parts = halved(places, count, self.multiple)
        turns = [divmod(number, len(parts)) for number in range(count)]
        return [
            _read(found, parts[part], found.positions[parts[part]] + turn * self.num_draws)
            for turn, part in turns
        ]

    def tokens(self, samples: StepSamples) -> int:
        """Gives the number of tokens of samples."""
        if samples.segments is not None:
            return int(samples.segments.lengths.sum())
        return int(self.plan.measure.tokens(samples.ids).sum())


def _read(found: BatchSamples, chosen: Any, draws: Ids) -> StepSamples:
    """Gives what is read of a batch, or of a part of one."""
    segments = None if found.segments is None else found.segments.at(chosen).of_one_batch()
    return StepSamples(found.ids[chosen], draws, segments)
