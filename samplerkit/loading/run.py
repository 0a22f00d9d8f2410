"""A recipe over a dataset in a job: what is resolved once, at first use, and then holds for the run."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from functools import partial
from typing import Any, Final, final

from samplerkit.batches.plan import BatchPlan
from samplerkit.errors import ArgumentTypeError, ArgumentValueError, NotSupportedError, StateError
from samplerkit.loading.agreement import job_agreement
from samplerkit.loading.default_order import default_sampler
from samplerkit.loading.identity import describe_chain, describe_dataset, describe_looks, seeds_of
from samplerkit.loading.reading import Reading
from samplerkit.loading.run_batches import RunBatches
from samplerkit.loading.run_edits import (
    Looks,
    Requested,
    require_divided,
    require_past,
    section_of,
    smaller_trees,
)
from samplerkit.loading.run_tokens import RunTokens, ledger_below
from samplerkit.loading.sections import Section
from samplerkit.loading.state import State
from samplerkit.loading.units import BatchUnits, SampleUnits
from samplerkit.loading.world import require_still, world_of
from samplerkit.order.once import once
from samplerkit.order.order import Order
from samplerkit.order.world import World
from samplerkit.samplers.base import Sampler
from samplerkit.samplers.context import RunConstants
from samplerkit.samplers.edit import Edit
from samplerkit.samplers.ledger import Ledger


@final
class Run:
    """What a loader and a sampler for torch share.

    Args:
        recipe: the chain of samplers; None for the dataset's own order.
        dataset: what is read; anything that `Sampler.order` takes.
        world: which shard of how many this process reads; None asks the running job at first use.
        batches: a recipe for batches, which are then dealt in place of samples; None for samples.

    Raises:
        ArgumentTypeError: `recipe` is no samplerkit sampler, `world` no World or `batches` no such recipe.
    """

    def __init__(self, recipe: Any, dataset: Any, world: Any, batches: Any = None) -> None:
        recipe = default_sampler(dataset) if recipe is None else recipe
        if not isinstance(recipe, Sampler):
            raise ArgumentTypeError(
                "sampler", "must be a samplerkit sampler", recipe, mend="wrap another one in IterSampler"
            )
        if world is not None and not isinstance(world, World):
            raise ArgumentTypeError("world", "must be a World or None", world)
        # A dataset that wants to be read in an order is content now.
        order_is_given = getattr(dataset, "order_is_given", None)
        if callable(order_is_given):
            order_is_given()
        self.recipe: Sampler = recipe
        self.dataset: Final = dataset
        self._batches = None if batches is None else RunBatches(batches, recipe, dataset)
        if batches is not None and isinstance(recipe, Ledger) and recipe.ramp:
            problem = "says a global_batch, and a step is one batch of the recipe a rank"
            raise NotSupportedError("sampler", problem, recipe)
        if batches is not None and ledger_below(recipe) is not None:
            raise NotSupportedError("batches", "are not counted in blocks, as the ledger below is", recipe)
        self.requested: Final = Requested()
        self.agreed: Sampler = recipe
        self._given_world = world
        self._constants: RunConstants | None = None
        self._undealt: tuple[tuple[int, RunConstants, Sampler], Order] | None = None
        self._looks: Final = Looks(dataset)

    @once
    def world(self) -> World:
        """Which shard of how many this process reads; the running job is asked once."""
        return world_of(self.recipe, self._given_world)

    @property
    def constants(self) -> RunConstants:
        """What the first start of the run fixed."""
        if self._constants is None:
            self._constants = self.recipe.run_constants(self.world)
        return self._constants

    @property
    def deals_below_the_root(self) -> bool:
        """Whether a distributed sampler below the root deals, whose number of shards is then a constant."""
        return self.recipe.deal is None and self.recipe.is_distributed

    def undealt(self, epoch: int) -> Order:
        """Gives the order that all shards read together; the last one asked for is kept."""
        recipe = self.recipe
        wanted = (epoch, self.constants, recipe)
        # Looked at once: a thread that reads may ask for another epoch at the same time.
        kept = self._undealt
        if kept is None or kept[0] != wanted:
            order = recipe.undealt_order(self.dataset, epoch, constants=self.constants)
            kept = self._undealt = (wanted, order)
        return kept[1]

    def plan(self, epoch: int) -> BatchPlan | None:
        """Gives the plan of an epoch; None where samples are dealt."""
        return None if self._batches is None else self._batches.plan(epoch, self.constants)

    def units(self, epoch: int) -> SampleUnits | BatchUnits:
        """Gives what is dealt in an epoch: the samples of its order, or the batches of its plan."""
        if self._batches is None:
            return SampleUnits(self.undealt(epoch))
        return BatchUnits(self._batches.plan(epoch, self.constants), self._batches.recipe.count_multiple)

    @once
    def tokens(self) -> RunTokens | None:
        """How windows of tokens are cut; None where windows are no part of blocks."""
        return RunTokens.of(self.recipe, self.dataset)

    @property
    def ledger(self) -> Ledger | None:
        """The ledger by which the run is read, if it is read by one."""
        return self.recipe if isinstance(self.recipe, Ledger) else None

    def run_position(self, epoch: int, position: int) -> int:
        """Gives the position of the run, in samples, up to which those of an epoch lead.

        With batches that is the border of a window: all of a window is looked at for its first batch.
        """
        if self._batches is not None:
            position = self._batches.reached(epoch, position, self.constants)
        return epoch * len(self.undealt(epoch)) + position

    @property
    def _edits(self) -> Ledger | None:
        """The ledger whose edits a state names: the recipe itself, or the one below a `BlockSampler`."""
        below = None if self.tokens is None else ledger_below(self.recipe)
        return self.ledger if below is None else below

    def _edits_position(self, epoch: int, position: int) -> int:
        """Gives the position of the run as edits count: in samples, or below a `BlockSampler` in blocks."""
        if self.tokens is None or self._edits is self.ledger:
            return self.run_position(epoch, position)
        begun, blocks = self.tokens.pools_begun(position, len(self.undealt(epoch)))
        return epoch * blocks + begun

    def at_a_border(self, edit: Edit) -> Edit:
        """Gives an edit as it applies: with batches, at the next border of a window."""
        if self._batches is None:
            return edit
        if edit.global_batch is not None:
            problem = "says a global_batch, and a step is one batch of the recipe a rank"
            raise NotSupportedError("edit", problem, edit)
        size = len(self.undealt(0))
        epoch, position = divmod(edit.at, size)
        return replace(edit, at=epoch * size + min(size, self._batches.border(position, self.constants)))

    def take_edit(self, ledger: Ledger) -> None:
        """Reads by a ledger with one more edit from now on."""
        if self._batches is not None:
            self._batches = self._batches.edited(ledger, ledger.edits[-1].at, self.constants)
        self.recipe = ledger
        self.requested.made = ledger.edits
        self.requested.edition += 1

    def state(self, epoch: int, position: int, tail: str) -> State:
        """Gives the state of this run at a position of an epoch."""
        dataset, sampler = self.described
        return State(
            algorithm=self.recipe.chain_algorithm,
            seed=tuple(seeds_of(self.recipe)),
            epoch=epoch,
            position=position,
            lanes=self.constants.lanes,
            limit=self.constants.limit,
            tail=tail,
            dataset=dataset,
            sampler=sampler,
            num_shards=self.world.num_shards if self.deals_below_the_root else None,
            unit="samples" if self._batches is None else "batches",
            sections=self._sections(epoch, position),
        )

    def require_agreement(self, reading: Reading, tail: str, seconds: float) -> None:
        """Compares what the ranks of the job begin to read.

        Args:
            reading: what this one begins.
            tail: what becomes of the last samples.
            seconds: how long the ranks wait for one another.

        Raises:
            DisagreementError: another rank begins something else.
            WorldError: the process group says other numbers than were taken.
        """
        require_still(self.world, partial(world_of, self.recipe, self._given_world))
        recipe = self.recipe
        agreement = job_agreement() if self.world.num_shards > 1 else None
        if agreement is not None:
            state = self.state(reading.epoch, reading.start, tail)
            identity = {
                **state.to_dict(),
                "order": state.fingerprint,
                "batch_size": reading.delivery.batch_size,
            }
            del identity["checksum"]
            agreement.require(identity, seconds)
        self.agreed = recipe

    def restore(
        self, saved: Any, tail: str, allow: Collection[str] = (), *, samples_a_step: int | None = None
    ) -> State:
        """Takes over the constants of a saved state that fits this run.

        Returns:
            The state; where its windows have another length, in those of this run. `samples_a_step`, of all
            ranks, is for an error that counts steps.

        Raises:
            StateError: it is damaged, of a newer schema or of another run, and the run is as it was.
        """
        state = State.from_dict(saved)
        if self.tokens is not None:
            self.tokens.require_survivable(state)
        dataset, sampler = self.described
        if state.sampler != sampler and state.sampler == describe_chain(self.recipe, names_shard=True):
            state = replace(state, sampler=sampler)
        if state.dataset != dataset and any(
            state.dataset == self._described_as(tree) for tree in smaller_trees(self.ledger, self.dataset)
        ):
            state = replace(state, dataset=dataset)
        state.require_equal(self.state(0, 0, tail), allow)
        if self.tokens is not None:
            state = self.tokens.rescaled(state, self.recipe, self.dataset, samples_a_step)
        constants = RunConstants(state.lanes, state.limit)
        before, self._constants = self._constants, constants
        try:
            if self._batches is None:
                self.requested.position = self._required_position(state)
            else:
                self._batches = self._restored_batches(self._batches, state, constants)
        except StateError:
            self._constants = before
            raise
        return state

    def _required_position(self, state: State) -> int:
        """Gives the position of the run at which a state stands, if this run has been there."""
        size = len(self.undealt(state.epoch))
        if not 0 <= state.position <= size:
            raise StateError("position", f"is outside of an order of {size}", state.position)
        position = self.run_position(state.epoch, state.position)
        edited = self._edits_position(state.epoch, state.position)
        require_past(self._edits, state.sections.get("ledger"), edited, self._looks(self._edits))
        try:
            require_divided(self.ledger, position, self.world.num_shards)
        except ArgumentValueError as error:
            ranks = f"{self.world.num_shards} ranks"
            raise StateError("ledger", f"{error.place}: {error.problem}", error.value, ranks) from None
        return position

    def _restored_batches(self, batches: RunBatches, state: State, constants: RunConstants) -> RunBatches:
        section, edits = state.sections["batches"], state.sections.get("ledger")
        position = 0
        if self.ledger is not None or edits is not None:
            size = len(self.undealt(state.epoch))
            reached = batches.saved_reach(section, state.position, constants)
            position = state.epoch * size + min(size, reached)
            require_past(self.ledger, edits, position, self._looks(self.ledger))
        restored = batches.restored(section, state.epoch, state.position, constants)
        self.requested.position = position
        return restored

    def _sections(self, epoch: int, position: int) -> dict[str, Section]:
        sections: dict[str, Section] = {}
        if self.tokens is not None:
            sections["tokens"] = self.tokens.section(position if self._batches is None else None)
        if (ledger := self._edits) is not None:
            section = section_of(ledger, self._edits_position(epoch, position), self._looks(ledger))
            sections |= {} if section is None else {"ledger": section}
        if self._batches is not None:
            sections["batches"] = self._batches.section(epoch, position, self.constants)
        return sections

    def __getstate__(self) -> dict[str, Any]:
        """A worker makes the order again: that is less to send."""
        return {**self.__dict__, "world": self.world, "_constants": self.constants, "_undealt": None}

    @once
    def described(self) -> tuple[str, str]:
        """The dataset and the chain in words."""
        return self._described_as(self.dataset), describe_chain(self.recipe)

    def _described_as(self, dataset: Any) -> str:
        looks = describe_looks(self.recipe, dataset)
        blocks = None if self.tokens is None else self.tokens.blocks(dataset)
        return describe_dataset(dataset, blocks) + looks
