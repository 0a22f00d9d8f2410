"""Units: what a run counts, deals to its ranks and names in a state, behind one interface.

A kind of unit is a subclass of `Unit`, and one of `EpochUnits` for those of an epoch, in one file, and a line
in `Run.of` (`loading/run/run.py`). Nothing else chooses.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, pairwise
from typing import Any, ClassVar, NamedTuple

import numpy as np

from samplerkit.batches.plan import BatchPlan
from samplerkit.batches.recipe import BatchRecipe
from samplerkit.batches.segments import Segments
from samplerkit.errors import NotSupportedError, StateError
from samplerkit.loading.state.state import State
from samplerkit.order.algebra import compose
from samplerkit.order.caching import cached_property
from samplerkit.order.layout import Layout
from samplerkit.order.order import Order
from samplerkit.order.sequences import Range
from samplerkit.order.typing import Ids, as_array
from samplerkit.samplers.base import Sampler
from samplerkit.samplers.chain import RunConstants
from samplerkit.samplers.mixing.edit import Edit

Ramp = tuple[tuple[int, int], ...]
"""Positions of an epoch, ascending, each with the samples of all ranks in steps from there on.

Those of earlier epochs are negative."""


class RunFacts(NamedTuple):
    """What a unit has to know of the run that counts it.

    Args:
        sampler: the chain of samplers.
        dataset: what is read.
        constants: what the first start of the run fixed.
    """

    sampler: Sampler
    dataset: Any
    constants: RunConstants

    def order_maker(self, epoch: int) -> Callable[[], Order]:
        """Returns what makes the undealt order of an epoch; it does not hold the run."""
        return partial(self.sampler.undealt_order, self.dataset, epoch, constants=self.constants)


class StepSamples(NamedTuple):
    """What a rank reads in a step.

    Args:
        ids: of the samples, int64.
        draws: the draw of each, as a range where they are evenly spaced; pads have other draws, from the
            epoch's number of draws on.
        segments: which parts of the samples, for packs; None for whole samples.
        columns: the requested values of each sample besides its id.
    """

    ids: Ids
    draws: range | Ids
    segments: Segments | None = None
    columns: tuple[Ids, ...] = ()


@dataclass(frozen=True, eq=False)
class EpochUnits:
    """The units of an epoch: samples, one a unit, unless a subclass says otherwise.

    Args:
        epoch: the epoch, from 0.
        make_order: makes the undealt order of the epoch, at first use.
    """

    epoch: int
    make_order: Callable[[], Order]

    @cached_property
    def order(self) -> Order:
        """The undealt order: its positions are the draws of samples."""
        return self.make_order()

    @property
    def plan(self) -> BatchPlan | None:
        """The batch plan that the units are part of; None where samples are dealt."""
        return None

    @property
    def total(self) -> int | BatchPlan:
        """The number of units; or the plan that knows it, where counting may take long."""
        return len(self.order) if self.plan is None else self.plan

    @property
    def num_draws(self) -> int:
        """The number of draws of the epoch, pads not counted."""
        return len(self.order)

    def samples(self, dealt: Sequence[range | Ids]) -> list[StepSamples]:
        """Returns what is read in some steps, from the numbers of the units of each; pads come last."""
        numbers = np.concatenate([as_array(units) for units in dealt])
        ids = self.order.ids_at(self._wrapped(numbers))
        edges = accumulate(map(len, dealt), initial=0)
        return [StepSamples(ids[a:b], units) for (a, b), units in zip(pairwise(edges), dealt, strict=True)]

    def parts(self, first: int, count: int) -> list[StepSamples]:
        """Splits the units from a number on into as many parts.

        Raises:
            NotSupportedError: they have no parts.
        """
        raise NotSupportedError("tail", "splits batches, but this run reads samples", "split")

    def tokens(self, samples: StepSamples) -> int:
        """Returns the number of tokens; of samples whose lengths are not known, the number of samples."""
        return samples.ids.size

    def passes(self, draws: range | Ids) -> Ids:
        """Returns the pass over its source of each draw; of a pad, that of the sample that it repeats."""
        return self.order.passes_at(self._wrapped(draws))

    def epochs(self, draws: range | Ids) -> Ids:
        """Returns the epoch of its source of each draw; of a pad, that of the sample that it repeats."""
        return self.order.epochs_at(self.epoch, self._wrapped(draws))

    def in_sequence(self, begin: int, end: int) -> Order:
        """Returns the samples of the units from one to another, in the order in which they are dealt."""
        return compose(Range(begin, end - begin), self.order)

    def _wrapped(self, draws: range | Ids) -> Ids:
        return as_array(draws) % max(1, self.num_draws)

    def saved(self, position: int | None) -> dict[str, Mapping[str, Any]]:
        """Returns the sections of a state by name: JSON values.

        Args:
            position: None if other units are counted.
        """
        return {}

    def require_position(self, state: State) -> None:
        """Refuses a state at a position that no run has been at, or at which these units cannot resume.

        Raises:
            StateError: it is one.
        """
        if not 0 <= state.position <= len(self.order):
            raise StateError("position", f"is outside of an order of {len(self.order)}", state.position)

    def run_position(self, position: int) -> int:
        """Converts a position of the epoch to one of the run, which edits count, in samples."""
        return self.epoch * len(self.order) + position

    def applied(self, edit: Edit) -> Edit:
        """Moves an edit to the next position, from its own on, at which it can apply.

        Raises:
            NotSupportedError: these units cannot be edited so.
        """
        return edit

    def learn(self, before: EpochUnits, edit: Edit) -> None:
        """Reuses what was counted of the units before an edit, which does not change them."""


class Unit:
    """What a run counts: samples, unless a subclass says otherwise.

    It is immutable: a loaded state and an edit make another one.
    """

    name: ClassVar[str] = "samples"
    """What a position counts, in a state."""

    epochs_cached: ClassVar[int] = 1
    """How many epochs stay in memory: one, since an order may be a large table."""

    recipe: BatchRecipe | None = None
    """The recipe for batches; None where samples are dealt."""

    def of_epoch(self, run: RunFacts, epoch: int) -> EpochUnits:
        """Returns the units of an epoch."""
        return EpochUnits(epoch, run.order_maker(epoch))

    def described_layout(self, dataset: Any) -> Layout | None:
        """Returns the layout that describes a dataset, where it is not its own."""
        return None

    def require_resumable(self, state: State) -> None:
        """Refuses a state whose samples could not be found again, whatever a user allows to differ.

        Raises:
            StateError: it is such a state, or its section is damaged.
        """

    def converted(self, state: State, samples_per_step: int) -> State:
        """Returns a state of units of another size, in these.

        Args:
            state: the state.
            samples_per_step: of all ranks, for errors that count steps.

        Raises:
            StateError: its position is none of these.
        """
        return state

    def restored(self, run: RunFacts, state: State) -> Unit:
        """Returns the units of a run that resumes from a state; its position is checked afterwards.

        Args:
            run: the run, with the constants of the state.
            state: the state.

        Raises:
            StateError: its section does not fit.
        """
        return self
