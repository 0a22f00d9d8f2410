"""A run: a sampler over a dataset in a job, a frozen value: an edit or a loaded state gives another one."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, cast, get_args

from samplerkit.batches.recipe import BatchRecipe
from samplerkit.errors import ArgumentTypeError, ArgumentValueError, CompositionError, NotSupportedError
from samplerkit.loading.run.batch_unit import BatchUnit
from samplerkit.loading.run.delivery import Delivery, Reading, Tail
from samplerkit.loading.run.token_windows import TokenWindowUnit
from samplerkit.loading.run.units import EpochUnits, RunFacts, Unit
from samplerkit.loading.state import identity
from samplerkit.loading.state.edits import EditHistory
from samplerkit.loading.state.state import Past, Place, Section, State
from samplerkit.loading.world import world_of
from samplerkit.order import arguments
from samplerkit.order.arguments import LARGEST
from samplerkit.order.caching import Latest, cached_property
from samplerkit.order.deal import World
from samplerkit.order.layout import Layout
from samplerkit.order.modes import Shuffle
from samplerkit.samplers.base import Sampler
from samplerkit.samplers.chain import RunConstants
from samplerkit.samplers.mixing.ledger import Ledger
from samplerkit.samplers.shuffled import RandomSampler
from samplerkit.samplers.subset import SequentialSampler


@dataclass(frozen=True, eq=False)
class Run:
    """The common part of all readers of a sampler: loaders, samplers for torch, and inspections.

    Args:
        sampler: the chain of samplers.
        dataset: what is read; anything that `Sampler.order` takes.
        unit: what is counted and dealt.
        batch_size: units a rank and step: samples, or one batch.
        tail: how the last units, which do not fill a step of all ranks, are handled.
        given_world: which shard of how many this process reads; None asks the running job at first use.
        fixed: the constants of the first start, from a state; None in the first start itself.
    """

    sampler: Sampler
    dataset: Any
    unit: Unit
    batch_size: int
    tail: Tail
    given_world: World | None
    fixed: RunConstants | None = None
    _readings: Latest[Reading] = field(default_factory=Latest, init=False, repr=False)
    _given_ids: Latest[Section] = field(default_factory=Latest, init=False, repr=False)

    @classmethod
    def of(
        cls,
        sampler: Any,
        dataset: Any,
        world: Any,
        batches: Any = None,
        *,
        batch_size: int = 1,
        tail: Tail = "pad",
    ) -> Run:
        """Makes a run of what a user gives.

        Args:
            sampler: a samplerkit sampler; None for the dataset's own order.
            dataset: what is read.
            world: a World or None.
            batches: a recipe for batches, which are then dealt in place of samples; None for samples.
            batch_size: units a rank and step.
            tail: what becomes of the last units.

        Raises:
            ArgumentTypeError: one of them is something else.
            NotSupportedError: batches cannot be made of this chain.
        """
        sampler = default_sampler(dataset) if sampler is None else sampler
        if not isinstance(sampler, Sampler):
            # One that deals to ranks, as torch's DistributedSampler, would be dealt twice.
            hint = "give one such as RandomSampler(), or IterSampler(yours) if yours is not distributed"
            raise ArgumentTypeError("sampler", "must be a samplerkit sampler", sampler, hint=hint)
        if world is not None and not isinstance(world, World):
            raise ArgumentTypeError("world", "must be a World or None", world)
        # The only place that knows all kinds of units.
        samples = TokenWindowUnit.of(sampler, dataset) or Unit()
        unit = samples if batches is None else BatchUnit.of(sampler, batches, samples)
        return cls(sampler, dataset, unit, batch_size, tail, world)

    @cached_property
    def world(self) -> World:
        """Which shard of how many this process reads; taken from the running job once."""
        return world_of(self.sampler, self.given_world)

    @cached_property
    def constants(self) -> RunConstants:
        """What the first start of the run fixed."""
        return self.sampler.chain.constants(self.world) if self.fixed is None else self.fixed

    def epoch(self, epoch: int) -> EpochUnits:
        """Returns the units of an epoch; the latest are kept."""
        return self._epochs.get(epoch, lambda: self.unit.of_epoch(self._facts, epoch))

    def reading(self, epoch: int, start: int) -> Reading:
        """Returns what this process reads from a position of an epoch on; the latest is kept."""
        return self._readings.get((epoch, start), lambda: self._reading(epoch, start))

    def _reading(self, epoch: int, start: int) -> Reading:
        chain, units = self.sampler.chain, self.epoch(epoch)
        deal = chain.root_deal(self.dataset)
        delivery = Delivery(
            total=units.total,
            start=start,
            num_shards=self.world.num_shards,
            batch_size=self.batch_size,
            tail=self.tail,
            rotation=0 if deal is None else max(0, deal.offset),
            # Batches do not come in the lanes of the order.
            lanes=1 if units.plan is not None else chain.woven_lanes(self.dataset, self.constants),
            ramp=self.edits.ramp(units, start, self.world.num_shards),
        )
        return Reading(units, delivery, self.world.shard_id)

    @cached_property
    def edits(self) -> EditHistory:
        """The edits by which it is read."""
        return EditHistory.of(self.sampler, self.dataset)

    def edited(self, ledger: Ledger) -> Run:
        """Returns the run that reads by a ledger with one more edit."""
        run = self.replaced(sampler=ledger, fixed=self.constants)
        for epoch, units in self._epochs.items():
            run.epoch(epoch).learn(units, ledger.edits[-1])
        return run

    @cached_property
    def described(self) -> tuple[str, str]:
        """Descriptions of the dataset and of the chain of samplers."""
        return self._described_as(self.dataset), identity.describe_chain(self.sampler)

    def state(self, place: Place, past: Past | None = None) -> State:
        """Returns the state of this run at a place, with what was read up to there, if that is known."""
        dataset, sampler = self.described
        units = self.epoch(place.epoch)
        sections = units.saved(place.position) | ({} if past is None else past.saved())
        sections |= self.edits.saved(partial(units.run_position, place.position))
        if place.position and (ids := self.given_ids(place.epoch)) is not None:
            sections["ids"] = ids
        # The number of shards of a distributed sampler below the root is a constant.
        is_dealt_below = self.sampler.deal is None and self.sampler.chain.deal is not None
        return State(
            algorithm=self.sampler.chain.algorithm,
            seed=tuple(identity.seeds_of(self.sampler)),
            **place._asdict(),
            lanes=self.constants.lanes,
            limit=self.constants.limit,
            tail=self.tail,
            dataset=dataset,
            sampler=sampler,
            num_shards=self.world.num_shards if is_dealt_below else None,
            unit=self.unit.name,
            sections=sections,
        )

    def given_ids(self, epoch: int) -> Section | None:
        """Returns the digest of ids that come from the user's code; None where there are none."""
        if not any(link.is_foreign for link in self.sampler._tree()):
            return None
        return self._given_ids.get(epoch, lambda: identity.section_of_ids(self.epoch(epoch).order))

    def restored(self, saved: Any, allow: Collection[str] | None = None) -> tuple[Run, State]:
        """Returns the run that a saved state is of, and the state, in the units of this run.

        Args:
            saved: the state, as JSON values.
            allow: the fields that may differ; None for a reader that has no such argument, which errors
                then do not advise.

        Raises:
            StateError: it is damaged, of a newer schema or of another run.
        """
        state = State.from_dict(saved)
        self.unit.require_resumable(state)
        current = self.state(Place(0, 0))
        of_smaller_trees = map(self._described_as, self.edits.smaller_trees())
        if state.dataset != current.dataset and state.dataset in of_smaller_trees:
            state = replace(state, dataset=current.dataset)
        state.require_equal(current, allow)
        if {*state.differing(current)} - {"tail"}:
            # This order cannot find the samples that another one has read.
            state = Past.of(state).forgotten().in_state(state)
        state = self.unit.converted(state, self.world.num_shards * self.batch_size)
        constants = RunConstants(state.lanes, state.limit)
        unit = self.unit.restored(self._facts._replace(constants=constants), state)
        run = self.replaced(fixed=constants, unit=unit)
        if (saved_ids := state.sections.get("ids")) is not None:
            identity.require_same_ids(saved_ids, run.given_ids(state.epoch))
        units = run.epoch(state.epoch)
        units.require_position(state)
        run.edits.require_fits(state, units, self.world.num_shards)
        return run, state

    def _described_as(self, dataset: Any) -> str:
        described = identity.describe_dataset(dataset, self.unit.described_layout(dataset))
        return described + identity.describe_used_values(self.sampler, dataset)

    def replaced(self, **changed: Any) -> Run:
        """Returns the run with some fields replaced, and its cached values: the world is found only once."""
        run = replace(self, **changed)
        run.__dict__.update(world=self.world, described=self.described)
        if (run.sampler, run.unit, run.constants) == (self.sampler, self.unit, self.constants):
            run.__dict__.update(_epochs=self._epochs, _given_ids=self._given_ids)
        return run

    @property
    def _facts(self) -> RunFacts:
        return RunFacts(self.sampler, self.dataset, self.constants)

    @cached_property
    def _epochs(self) -> Latest[EpochUnits]:
        return Latest(self.unit.epochs_cached)

    def __getstate__(self) -> dict[str, Any]:
        """A worker does not ask the job."""
        return {**self.__dict__, "world": self.world, "constants": self.constants}


def checked_tail(tail: str, batch_size: int | None, batches: Any, *, drop_last: bool = False) -> Tail:
    """Validates a tail against `batch_size`, `batches` and `drop_last`, which means "drop"; returns it.

    Raises:
        ArgumentTypeError: the tail is not a string.
        ArgumentValueError: the tail is not known, or is one of batches where none are given, or where they
            must stay whole, or not that of `drop_last`; or `batch_size` and `batches` are both given, or
            neither.
    """
    checked = cast("Tail", arguments.choice("tail", tail, get_args(Tail)))
    if drop_last and checked not in {"drop", "pad"}:  # "pad" may be the default
        problem = 'means tail="drop", and another tail is given'
        raise ArgumentValueError("drop_last", problem, tail, hint="give one of the two")
    if (batch_size is None) == (batches is None):
        hint = "use batch_size= for batches of one size, or batches= for those of a recipe"
        problem = "must be given, or batches, but not both"
        raise ArgumentValueError("batch_size", problem, batch_size, hint=hint)
    if tail == "split" and batches is None:
        hint = 'use "ragged": there each sample comes once'
        raise ArgumentValueError("tail", "splits batches of a recipe, but none is given", tail, hint=hint)
    if tail == "split" and isinstance(batches, BatchRecipe) and not batches.can_be_split:
        hint = 'use "pad" or "drop"'
        raise ArgumentValueError("tail", "splits batches, but these must stay whole", tail, hint=hint)
    return "drop" if drop_last else checked


def default_sampler(dataset: Any) -> Sampler:
    """Returns the default sampler of a dataset.

    Args:
        dataset: where it has `default_partial_size`, an integer, as a tar dataset has after
            `.shuffle(size)`, it is read PARTIAL with blocks of that size; else in storage order.

    Example:
        >>> default_sampler([1, 2, 3])
        SequentialSampler()
    """
    window = getattr(dataset, "default_partial_size", None)
    if window is None:
        return SequentialSampler()
    return RandomSampler(shuffle=Shuffle.PARTIAL, partial_size=window)


def beginning_of(sampler: Sampler, dataset: Any, batches: BatchRecipe | None = None) -> tuple[int, int]:
    """Returns the epoch and the position at which a run begins.

    A sampler that continues a run of another package has `run_beginning(num_samples)`. The size of the
    dataset is needed only there.

    Raises:
        CompositionError: a sampler that continues another run is not the outermost one.
        NotSupportedError: the run counts batches, and such a sampler begins within an epoch, at a sample.
        ArgumentRangeError: all samples have been read there, or there is no whole step.
        ArgumentValueError: there is no run.
    """
    outermost, *others = ((link, getattr(link, "run_beginning", None)) for link in sampler._tree())
    for link, beginning in others:
        # It is unknown which of its samples the samplers above it read.
        if beginning is not None and beginning(LARGEST) != (0, 0):
            problem = "continues a run, but is below another sampler"
            hint = "leave the outer one out: a loader deals"
            raise CompositionError(type(link).__name__, problem, hint=hint)
    start = (0, 0) if outermost[1] is None else outermost[1](len(Layout.of(dataset)))
    if batches is not None and start[1]:
        problem = "cannot be used with a sampler that begins within an epoch, at sample"
        raise NotSupportedError("batches", problem, start[1])
    return start
