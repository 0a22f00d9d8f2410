"""Batches of a recipe, one per rank and step: their plans in each epoch, and their section of a state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np

from samplerkit.batches.cutting import halved
from samplerkit.batches.plan import BatchPlan, BatchSamples
from samplerkit.batches.recipe import MAX_ABREAST, BatchRecipe, Plans
from samplerkit.batches.window_plan import WindowPlan
from samplerkit.errors import ArgumentTypeError, NotSupportedError, StateError
from samplerkit.loading.run.units import EpochUnits, RunFacts, StepSamples, Unit
from samplerkit.loading.state.state import TEXT, State, int_in, list_of, mismatch, optional, require_fields
from samplerkit.order.arguments import LARGEST
from samplerkit.order.caching import Latest, cached_property
from samplerkit.order.intervals import distinct, edges_of, interval_of, numbers_in
from samplerkit.order.layout import Layout
from samplerkit.order.order import Located, Order
from samplerkit.order.sequences import Occurrences
from samplerkit.order.typing import Ids
from samplerkit.samplers.base import Sampler
from samplerkit.samplers.block import ledger_below
from samplerkit.samplers.mixing.edit import Edit
from samplerkit.samplers.mixing.ledger import Ledger

_CHECKS = {
    "recipe": TEXT,
    "lengths": optional(TEXT),
    "abreast": int_in(1, MAX_ABREAST),
    "window": optional(list_of(int_in(0, LARGEST), 2)),
}
_HINT = "make the batches as they were made when the state was saved"
_GLOBAL_BATCH = "sets a global_batch, but a step is one batch of the recipe for each rank"


@dataclass(frozen=True, eq=False)
class EpochBatches(EpochUnits):
    """The batches of a plan, one a unit.

    Args:
        unit: how they are made.
        plans: of all epochs.
        inner: that of which the batches are made.
    """

    unit: BatchUnit
    plans: Plans
    inner: EpochUnits

    @property
    def saved_window(self) -> tuple[int, int]:
        """The window that a state names in this epoch, and the batches before it."""
        return self.unit.saved_windows.get(self.epoch, (0, 0))

    @cached_property
    def plan(self) -> BatchPlan:
        """The plan of the epoch."""
        return self.plans.plan(self.epoch, self.saved_window)

    @property
    def num_draws(self) -> int:
        """The number of draws of the epoch, pads not counted."""
        return self.plan.num_draws

    def samples(self, dealt: Sequence[range | Ids]) -> list[StepSamples]:
        """Returns what is read in some steps; a unit behind the last one repeats a whole batch.

        Args:
            dealt: the number of the one unit of each step.
        """
        numbers = np.array([units[0] for units in dealt], dtype=np.int64)
        repeats = np.zeros_like(numbers)
        if not self.plan.has(int(numbers.max())):
            repeats, numbers = np.divmod(numbers, len(self.plan))
        samples = self.plan.samples(numbers)
        draws = samples.positions + np.repeat(repeats * self.num_draws, np.diff(samples.edges))
        return [_step_samples(samples, slice(a, b), draws[a:b]) for a, b in pairwise(samples.edges.tolist())]

    def passes(self, draws: range | Ids) -> Ids:
        """Returns the pass over its source of each draw."""
        return self.plan.passes_at(self._wrapped(draws))

    def epochs(self, draws: range | Ids) -> Ids:
        """Returns the epoch of its source of each draw."""
        return self.plan.epochs_at(self.epoch, self._wrapped(draws))

    def in_sequence(self, begin: int, end: int) -> FlattenedBatches:
        """Returns the samples of the batches from one to another."""
        return FlattenedBatches(self.plan, begin, end)

    def parts(self, first: int, count: int) -> list[StepSamples]:
        """Splits all batches from a number on into as many smaller ones.

        Args:
            first: the number.
            count: how many. With fewer samples, the last parts are pads that repeat the first ones.
        """
        samples = self.plan.samples(np.arange(first, len(self.plan)))
        places = np.split(np.arange(samples.ids.size), samples.edges[1:-1])
        parts = halved(places, count, self.plans.recipe.count_multiple)
        turns = [divmod(number, len(parts)) for number in range(count)]
        return [
            _step_samples(samples, parts[part], samples.positions[parts[part]] + turn * self.num_draws)
            for turn, part in turns
        ]

    def tokens(self, samples: StepSamples) -> int:
        """Returns the number of tokens."""
        if samples.segments is not None:
            return int(samples.segments.lengths.sum())
        return int(self.plan.measure.tokens(samples.ids).sum())

    def saved(self, position: int | None) -> dict[str, Mapping[str, Any]]:
        """Returns the sections of a state: JSON values, under 300 bytes."""
        window = None if self.plans.window is None else list(self.plan.window_of(position or 0))
        own = {
            "recipe": self.unit.words,
            "lengths": self.plans.digest,
            "abreast": self.plans.abreast,
            "window": window,
        }
        return {**self.inner.saved(None), "batches": own}

    def require_position(self, state: State) -> None:
        """Refuses a position behind the end, or one that is not in the window that is named with it."""
        position, named = state.position, self.saved_window
        # Nothing before the window is evaluated: the pair saves that pass.
        is_in_it = position >= named[1] and self.plan.window_of(position) == named
        if self.plans.window is not None and not is_in_it:
            raise StateError("window", "does not hold the position", list(named), position)
        if position != named[1] and not self.plan.has(position - 1):
            raise StateError("position", f"is outside of a plan of {len(self.plan)} batches", position)

    def run_position(self, position: int) -> int:
        """Returns the position of the run: behind all windows that have a batch before this one."""
        window, before = self.plan.window_of(position)  # which evaluates none of them
        samples = min((window + (position > before)) * (self.plans.window or 0), self.num_draws)
        return self.epoch * len(self.order) + samples

    def applied(self, edit: Edit) -> Edit:
        """Returns an edit at the next border of a window."""
        if edit.global_batch is not None:
            raise NotSupportedError("edit", _GLOBAL_BATCH, edit)
        length, window = len(self.order), self.plans.window or 1
        epoch, position = divmod(edit.at, length)
        return replace(edit, at=epoch * length + min(length, -(-position // window) * window))

    def learn(self, before: EpochUnits, edit: Edit) -> None:
        """Reuses which batches are in the windows before an edit."""
        if isinstance(self.plan, WindowPlan) and isinstance(before.plan, WindowPlan):
            self.plan.learn(before.plan, edit.at - self.epoch * self.num_draws)


@dataclass(frozen=True, eq=False)
class BatchUnit(Unit):
    """Counts batches of a recipe.

    Args:
        recipe: how batches are made.
        inner: of what they are made: samples, or windows of tokens.
        words: the description of the recipe, made once: a user's recipe may change its attributes as it cuts.
        abreast: what a state has fixed; None before.
        saved_windows: the window that a state names in its epoch, and the batches before that.
        plans: those of the run, by its constants: made at first use, and again in a worker.
    """

    name = "batches"
    epochs_cached = 2  # the next one may be begun ahead of its time, while batches of this one are looked up

    recipe: BatchRecipe = field()  # no default, though samples have None there
    inner: Unit
    words: str
    abreast: int | None = None
    saved_windows: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    plans: Latest[Plans] = field(default_factory=Latest)

    @classmethod
    def of(cls, sampler: Sampler, batches: Any, inner: Unit) -> BatchUnit:
        """Returns the batches of a run.

        Args:
            sampler: the chain of samplers.
            batches: the recipe for batches.
            inner: of what they are made.

        Raises:
            ArgumentTypeError: `batches` is not a recipe for batches.
            NotSupportedError: the chain holds a ledger that counts something else.
        """
        if not isinstance(batches, BatchRecipe):
            hint = "use for instance TokenBatches(32768)"
            raise ArgumentTypeError("batches", "must be a recipe for batches", batches, hint=hint)
        if isinstance(sampler, Ledger) and sampler.ramp:
            raise NotSupportedError("sampler", _GLOBAL_BATCH, sampler)
        if ledger_below(sampler) is not None:
            problem = "cannot be used with a ledger below a BlockSampler, whose edits count blocks"
            raise NotSupportedError("batches", problem, sampler)
        return cls(batches, inner, batches.words)

    def of_epoch(self, run: RunFacts, epoch: int) -> EpochBatches:
        """Returns the batches of an epoch."""

        def make() -> Plans:
            return self.recipe.over(run.sampler, run.dataset, constants=run.constants, abreast=self.abreast)

        # An edit of a ledger changes the order alone.
        plans = self.plans.get(run.constants, make).read_by(run.sampler)
        inner = self.inner.of_epoch(run, epoch)
        return EpochBatches(epoch, inner.make_order, self, plans, inner)

    def described_layout(self, dataset: Any) -> Layout | None:
        """Returns the layout that describes a dataset, where it is not its own."""
        return self.inner.described_layout(dataset)

    def require_resumable(self, state: State) -> None:
        """Refuses a state of windows of another length."""
        self.inner.require_resumable(state)

    def restored(self, run: RunFacts, state: State) -> BatchUnit:
        """Returns the batches of a state, if they are made as these are.

        Raises:
            StateError: the section is missing, damaged, or of another recipe or other lengths.
        """
        saved, current = state.sections.get(self.name, {}), self.of_epoch(run, 0).saved(0)[self.name]
        require_fields(self.name, saved, _CHECKS)
        for name in ("recipe", "lengths"):
            if saved[name] != current[name]:
                raise mismatch(name, saved[name], current[name], _HINT)
        if self.recipe.abreast not in (None, saved["abreast"]):
            hint = "leave it out of the recipe: the state fixes it"
            raise mismatch("abreast", saved["abreast"], self.recipe.abreast, hint)
        window = saved["window"]
        if (window is None) != (current["window"] is None):
            raise mismatch("window", window, current["window"], _HINT)
        saved_windows = {} if window is None else {state.epoch: (window[0], window[1])}
        # Plans of the same recipe are kept, so that lengths are not counted again.
        plans = self.plans if current["abreast"] == saved["abreast"] else Latest[Plans]()
        return replace(self, abreast=saved["abreast"], saved_windows=saved_windows, plans=plans)


def _step_samples(samples: BatchSamples, places: Any, draws: Ids) -> StepSamples:
    """Returns what is read of a batch, or of a part of one."""
    segments = None if samples.segments is None else samples.segments.at(places).of_one_batch()
    return StepSamples(samples.ids[places], draws, segments)


_COUNTED_AT_ONCE = 1024
"""Batches that are looked up together to count their samples."""


@dataclass(frozen=True, eq=False, repr=False)
class FlattenedBatches(Order):
    """The samples of successive batches; of packs, a sample comes once for each of its parts.

    Args:
        plan: which samples are in a batch.
        begin: the first batch.
        end: behind the last one, at most the number of batches.

    Example:
        >>> import samplerkit as sk
        >>> plan = sk.TokenBatches(12, lengths=[3, 6, 2, 3, 5]).plan(sk.RandomSampler(seed=7), 5, epoch=0)
        >>> order = FlattenedBatches(plan, 0, len(plan))
        >>> order[:].tolist() == [id for batch in plan for id in batch.tolist()]
        True
    """

    plan: BatchPlan
    begin: int
    end: int

    @cached_property
    def _edges(self) -> Ids:
        """Where each batch begins and, last, where the last one ends: one pass over the batches."""
        sizes = [np.zeros(0, dtype=np.int64)]
        for first in range(self.begin, self.end, _COUNTED_AT_ONCE):
            numbers = np.arange(first, min(first + _COUNTED_AT_ONCE, self.end))
            sizes.append(np.diff(self.plan.samples(numbers).edges))
        return edges_of(np.concatenate(sizes))

    def __len__(self) -> int:
        return int(self._edges[-1])

    def ids_at(self, positions: Ids) -> Ids:
        batches = interval_of(self._edges, positions)
        numbers, inverse = distinct(batches)
        samples = self.plan.samples(self.begin + numbers)
        ids: Ids = samples.ids[samples.edges[inverse] + positions - self._edges[batches]]
        return ids

    def locate(self, ids: Ids) -> Located:
        batches = np.unique(self.plan.locate(ids)[1])
        batches = batches[(batches >= self.begin) & (batches < self.end)]
        samples, begins = self.plan.samples(batches), self._edges[batches - self.begin]
        # An id that is given twice is found twice.
        places, indices = Occurrences(ids).locate(samples.ids)
        return indices, numbers_in(begins, np.diff(samples.edges))[places]
