"""The batches of a run: their plans epoch by epoch, and what of them a state carries."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, final

from samplerkit.batches.plan import BatchPlan
from samplerkit.batches.recipe import MOST_ABREAST, BatchRecipe, Plans
from samplerkit.batches.windows import WindowPlan
from samplerkit.errors import ArgumentTypeError, StateError
from samplerkit.loading.sections import Section
from samplerkit.order.arguments import LARGEST
from samplerkit.samplers.base import Sampler
from samplerkit.samplers.context import RunConstants

VERSION: Final = 1
"""Of the section `batches` in a state."""

_FIELDS = {"version", "recipe", "lengths", "abreast", "window"}
_OTHER = "is another one in the saved state"
_MEND = "make the batches as they were made when the state was saved"


@final
class RunBatches:
    """Makes the plans of a run, and says in a state by what they are made.

    Args:
        recipe: how batches are made.
        sampler: the chain.
        dataset: what is read.

    Raises:
        ArgumentTypeError: `recipe` is no recipe for batches.
    """

    def __init__(self, recipe: Any, sampler: Sampler, dataset: Any) -> None:
        if not isinstance(recipe, BatchRecipe):
            raise ArgumentTypeError(
                "batches", "must be a recipe for batches", recipe, mend="say for instance TokenBatches(32768)"
            )
        self.recipe: Final = recipe
        self._sampler = sampler
        self._dataset = dataset
        # What a state has fixed: `abreast`, and in one of its epochs a window and the batches before it.
        self._abreast: int | None = None
        self._known: tuple[int, tuple[int, int]] = (-1, (0, 0))
        self._plans: tuple[RunConstants, Plans, str | None] | None = None
        self._of_epochs: dict[int, BatchPlan] = {}

    def plan(self, epoch: int, constants: RunConstants) -> BatchPlan:
        """Gives the plan of an epoch; two are kept, since the next may be begun ahead of its time."""
        plans, _ = self._made(constants)
        plan = self._of_epochs.get(epoch)
        if plan is None:
            plan = plans.plan(epoch, self._known[1] if epoch == self._known[0] else (0, 0))
            self._of_epochs = {**dict(list(self._of_epochs.items())[-1:]), epoch: plan}
        return plan

    def edited(self, sampler: Sampler, at: int, constants: RunConstants) -> RunBatches:
        """Gives the batches of a run that is edited: those of the windows before the edit are the same.

        Args:
            sampler: the ledger with the edit.
            at: the position of the run, the border of a window.
            constants: of the run.
        """
        new = RunBatches(self.recipe, sampler, self._dataset)
        new._abreast, new._known = self._abreast, self._known
        if self._plans is not None and self._plans[0] == constants:
            new._plans = (constants, self._plans[1].read_by(sampler), self._plans[2])
            for epoch, known in self._of_epochs.items():
                plan = new.plan(epoch, constants)
                if isinstance(plan, WindowPlan) and isinstance(known, WindowPlan):
                    plan.learn(known, at - epoch * plan.num_draws)
        return new

    def border(self, position: int, constants: RunConstants) -> int:
        """Gives the first border of a window at or behind a position of an epoch."""
        size = self._made(constants)[0].window or 1
        return -(-position // size) * size

    def reached(self, epoch: int, position: int, constants: RunConstants) -> int:
        """Gives how many samples of an epoch were looked at for its first batches: whole windows."""
        if not position:
            return 0
        plan = self.plan(epoch, constants)
        window = plan.window_of(position)
        return min(self._behind(list(window), position, constants), plan.num_draws)

    def saved_reach(self, saved: Section, position: int, constants: RunConstants) -> int:
        """Gives the same of a saved state, with no look at any window; the end of the epoch may lie before.

        Raises:
            StateError: the section is damaged.
        """
        _require_plausible(saved)
        return self._behind(saved["window"] or [0, 0], position, constants)

    def _behind(self, window: list[int], position: int, constants: RunConstants) -> int:
        number, before = window
        return (number + (position > before)) * (self._made(constants)[0].window or 0)

    def section(self, epoch: int, position: int, constants: RunConstants) -> Section:
        """Gives what a state says of batches: JSON values, under 300 bytes."""
        plans, lengths = self._made(constants)
        window = None
        if plans.window is not None:
            window = list(self.plan(epoch, constants).window_of(position)) if position else [0, 0]
        return {
            "version": VERSION,
            "recipe": self.recipe.words,
            "lengths": lengths,
            "abreast": plans.abreast,
            "window": window,
        }

    def restored(self, saved: Section, epoch: int, position: int, constants: RunConstants) -> RunBatches:
        """Gives the batches of a saved state, if they are made as these are.

        Raises:
            StateError: the section is damaged, or of another recipe or other lengths; or there is no such
                position.
        """
        _require_plausible(saved)
        here = self.section(0, 0, constants)
        for name in ("recipe", "lengths"):
            if saved[name] != here[name]:
                raise StateError(name, _OTHER, saved[name], here[name], mend=_MEND)
        if self.recipe.abreast not in (None, saved["abreast"]):
            mend = "leave it out of the recipe: the state fixes it"
            raise StateError(
                "abreast",
                _OTHER,
                saved["abreast"],
                self.recipe.abreast,
                mend=mend,
            )
        new = RunBatches(self.recipe, self._sampler, self._dataset)
        new._abreast = saved["abreast"]
        if here["abreast"] == saved["abreast"]:
            new._plans = self._plans  # made by the same, so that lengths are not counted a second time
        if (saved["window"] is None) != (here["window"] is None):
            raise StateError("window", _OTHER, saved["window"], here["window"], mend=_MEND)
        if saved["window"] is not None:
            new._known = (epoch, (saved["window"][0], saved["window"][1]))
        new._require_place(epoch, position, constants)
        return new

    def _require_place(self, epoch: int, position: int, constants: RunConstants) -> None:
        """Refuses a position behind the end, or one that is not in the window beside it."""
        plan = self.plan(epoch, constants)
        if plan.window is None:
            is_there = position == 0 or plan.has(position - 1)
        else:
            # Nothing before the window is looked at: that would be the pass that the pair spares.
            window, before = self._known[1]
            if position < before or plan.window_of(position) != (window, before):
                raise StateError("window", "does not hold the position", [window, before], position)
            is_there = position == before or plan.has(position)
        if not is_there:
            raise StateError("position", f"is outside of a plan of {len(plan)} batches", position)

    def _made(self, constants: RunConstants) -> tuple[Plans, str | None]:
        made = self._plans
        if made is None or made[0] != constants:
            plans = self.recipe.over(self._sampler, self._dataset, constants=constants, abreast=self._abreast)
            self._of_epochs = {}
            made = self._plans = (constants, plans, plans.digest)
        return made[1:]

    def __getstate__(self) -> dict[str, Any]:
        """A worker makes the plans again: that is less to send."""
        return {**self.__dict__, "_plans": None, "_of_epochs": {}}


def _require_plausible(saved: Mapping[str, Any]) -> None:
    """Refuses a section that no run saves, whose checksum may fit all the same."""
    if set(saved) - {"optional"} != _FIELDS:
        raise StateError("batches", "has missing or unknown fields", sorted(map(str, saved)))
    if type(saved["abreast"]) is not int or not 1 <= saved["abreast"] <= MOST_ABREAST:
        raise StateError("abreast", f"must be an integer in [1, {MOST_ABREAST}]", saved["abreast"])
    window = saved["window"]
    is_pair = isinstance(window, list | tuple) and len(window) == 2
    if window is not None and not (is_pair and all(type(n) is int and 0 <= n <= LARGEST for n in window)):
        raise StateError("window", "must be two numbers: the window, and the batches before it", window)
