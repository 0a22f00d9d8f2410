"""Units: what a run counts, deals to its ranks and names in a state, behind one interface.

A kind of unit is a subclass of `Unit` in a file of its own, and a line in `unit_of` (`loading/run/run.py`).
Nothing else chooses.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Protocol

from samplerkit.batches.recipe import BatchRecipe
from samplerkit.loading.run.epoch_units import EpochUnits
from samplerkit.loading.state.state import State
from samplerkit.order.layout import Layout
from samplerkit.order.order import Order
from samplerkit.samplers.base import Sampler
from samplerkit.samplers.chain import RunConstants
from samplerkit.samplers.mixing.ledger import Ledger


class RunFacts(Protocol):
    """What a unit asks of the run that counts it."""

    @property
    def recipe(self) -> Sampler:
        """The chain of samplers."""

    @property
    def dataset(self) -> Any:
        """What is read."""

    @property
    def constants(self) -> RunConstants:
        """What the first start of the run fixed."""


@dataclass(frozen=True, eq=False)
class Unit:
    """What a run counts: samples, unless a subclass says otherwise.

    It is a value: what a state or an edit changes is another one.
    """

    name: ClassVar[str] = "samples"
    """What a position counts, in a state."""

    epochs_kept: ClassVar[int] = 1
    """How many epochs a run keeps: of one, since an order may be a large table."""

    @property
    def sections(self) -> frozenset[str]:
        """The names of its sections in a state."""
        return frozenset()

    @property
    def recipe(self) -> BatchRecipe | None:
        """The recipe for batches; None where samples are dealt."""
        return None

    def of_epoch(self, run: RunFacts, epoch: int) -> EpochUnits:
        """Returns the units of an epoch."""
        return EpochUnits(epoch, order_maker(run, epoch))

    def lanes(self, run: RunFacts) -> int:
        """Returns the number of lanes into which the units are woven."""
        return run.recipe.woven_lanes(run.dataset, run.constants)

    def described_layout(self, dataset: Any) -> Layout | None:
        """Returns the layout that describes a dataset, where it is not its own."""
        return None

    def require_survivable(self, state: State) -> None:
        """Refuses a state whose samples could not be found again, whatever a user allows to differ.

        Raises:
            StateError: it is such a state, or its section is damaged.
        """

    def converted(self, run: RunFacts, state: State, samples_a_step: int) -> State:
        """Returns a state of units of another size, in these.

        Args:
            run: the run that loads it.
            state: the state.
            samples_a_step: of all ranks, for errors that count steps.

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

    def edited(self, run: RunFacts, ledger: Ledger) -> Unit:
        """Returns the units of a run whose ledger has one more edit."""
        return self


def order_maker(run: RunFacts, epoch: int) -> Callable[[], Order]:
    """Returns what makes the undealt order of an epoch; it does not hold the run."""
    return partial(run.recipe.undealt_order, run.dataset, epoch, constants=run.constants)
