"""A chain of samplers: how it is evaluated, and the algorithms by their ids."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np

from samplerkit import names
from samplerkit.errors import (
    ArgumentRangeError,
    ArgumentTypeError,
    ArgumentValueError,
    CompositionError,
    SamplerkitError,
)
from samplerkit.order import arguments
from samplerkit.order.algebra import Weave, compose, limited
from samplerkit.order.caching import cached_property
from samplerkit.order.dataset_protocol import require_one_each
from samplerkit.order.deal import Deal, World
from samplerkit.order.keys import ALGORITHM, Key
from samplerkit.order.layout import Layout
from samplerkit.order.modes import Shuffle
from samplerkit.order.order import Order
from samplerkit.order.sequences import Table
from samplerkit.samplers.iteration import checked_ids, read_sampler


@dataclass(frozen=True)
class RunConstants:
    """Numbers that are set when a run is first started, and kept when it resumes on other numbers of ranks.

    Args:
        lanes: the number of lanes of samplers without `lanes=`: the number of shards at the first start.
        limit: how many samples all shards read at most in an epoch; None for all.
        path: for a source of a mixture, the names of the parts from the root to it; empty for the run itself.

    Example:
        >>> import samplerkit as sk
        >>> sk.DistributedSampler(8, 0, num_samples=100).chain.constants()
        RunConstants(lanes=8, limit=800)
    """

    lanes: int = 1
    limit: int | None = None
    path: tuple[str, ...] = field(default=(), repr=False)


@dataclass(frozen=True)
class Context:
    """Where and when a sampler draws.

    Args:
        epoch: the epoch, from 0.
        depth: the sampler's place in the chain; the one that reads the dataset has depth 0.
        lanes: the number of lanes where the sampler leaves it out.
        dataset: the argument of `Sampler.order`: a dataset, a layout or a number.
        child: the order of the child, whose positions this sampler draws; None at depth 0.
        path: for a source of a mixture, the names of the parts from the root to it.
    """

    epoch: int
    depth: int = 0
    lanes: int = 1
    dataset: Any = None
    child: Order | None = None
    path: tuple[str, ...] = ()

    def key(self, seed: int, role: str) -> Key:
        """Returns the key for a role, at most 16 ASCII characters, of a sampler with this seed."""
        return Key(seed, self.epoch, self.depth, role)

    def values_of(self, values: np.ndarray[Any, Any], place: str) -> np.ndarray[Any, Any]:
        """Returns the values, such as labels, of the samples that are drawn from.

        Args:
            values: one for each sample of the dataset, whatever the child yields.
            place: for errors.

        Raises:
            DatasetError: there are more or fewer.
        """
        require_one_each(place, values.size, self.dataset)
        return values if self.child is None else values[np.asarray(self.child)]


class Link:
    """What a chain uses of a sampler."""

    deal: Deal | None = None
    """The sampler's arguments about shards; None except for a distributed sampler."""
    reads_below: bool = False
    """Whether `draw` evaluates the samplers below itself: the chain gives it the dataset."""
    reads_a_stream: bool = False
    """Whether it reads the samplers below it epoch after epoch, as a ledger does."""

    def draw(self, layout: Layout, context: Context) -> Order | np.ndarray[Any, Any] | list[int]:
        """Orders the samples of a layout: the one method that a sampler writes.

        Args:
            layout: how many samples there are to draw from, and in which files.
            context: the epoch, the place in the chain, and keys for randomness.

        Returns:
            An order, or integers in [0, len(layout)), repeats allowed, as an array or a list.
        """
        if not hasattr(type(self), "__iter__"):
            problem = "has neither draw(layout, context) nor __iter__"
            raise CompositionError(type(self).__name__, problem, hint="write one")
        return read_sampler(self, len(layout), context.epoch)

    def get_shuffle_mode(self) -> Shuffle:
        """Returns the shuffle mode: FALSE for a sampler without one."""
        return Shuffle.FALSE

    def lane_count(self, layout: Layout, run_lanes: int) -> int:
        """Returns into how many lanes this sampler weaves its order: 1 for all but the file-aware modes.

        Args:
            layout: how many samples there are to draw from, and in which files.
            run_lanes: the number of lanes where the sampler leaves it out.
        """
        return 1


def class_name(kind: type) -> str:
    """Names a class as states do: a user's class with its module."""
    is_ours = kind.__module__.startswith("samplerkit.")
    return kind.__name__ if is_ours else f"{kind.__module__}.{kind.__qualname__}"


@dataclass(frozen=True)
class Chain:
    """Samplers that draw from one another, and how they are evaluated: the default algorithm.

    Another algorithm, such as the replay of another library, is a subclass, which `samplerkit.names` lists by
    its id. It may override `check`, `deal_at`, `draw_at` and `lanes_at`, and nothing else.

    The outermost distributed sampler deals. At the root, it deals the order below it. Further down, the
    samplers above it are evaluated on each shard separately. Distributed samplers below the dealer are plain
    recipes: each gives the one shard that it names.

    Args:
        links: the samplers, the one that reads the dataset first.
        algorithm: the id of that of all random samplers.
    """

    links: Sequence[Link]
    algorithm: str = ALGORITHM

    @classmethod
    def check(cls, sampler: Link) -> None:
        """Refuses, when a sampler is made, arguments that this algorithm does not support."""

    def deal_at(self, depth: int, dataset: Any) -> Deal | None:
        """Returns how the sampler at a depth deals the shards of a dataset; None if it deals none."""
        return self.links[depth].deal

    def draw_at(self, depth: int, layout: Layout, context: Context) -> Any:
        """Orders the samples of a layout by the sampler at a depth."""
        return self.links[depth].draw(layout, context)

    def lanes_at(self, depth: int, layout: Layout, run_lanes: int) -> int:
        """Returns into how many lanes the order of the sampler at a depth is woven."""
        return self.links[depth].lane_count(layout, run_lanes)

    @cached_property
    def _dealer(self) -> int | None:
        """The depth of the sampler that deals."""
        depths = range(len(self.links) - 1, -1, -1)
        return next((depth for depth in depths if self.links[depth].deal is not None), None)

    @cached_property
    def deal(self) -> Deal | None:
        """The dealer's arguments about shards; None for a chain without a distributed sampler."""
        return None if self._dealer is None else self.links[self._dealer].deal

    def root_deal(self, dataset: Any) -> Deal | None:
        """How the root deals the shards of a dataset; None if it deals none."""
        return self.deal_at(len(self.links) - 1, dataset)

    def world(self, world: World | None = None) -> World:
        """Resolves the world: from the dealer, then `world`, then, if allowed, the running job.

        A chain without a dealer is one shard unless `world` says otherwise.
        """
        if world is not None and not isinstance(world, World):
            raise ArgumentTypeError("world", "must be a World or None", world)
        if self.deal is None:
            return world or World()
        if world is None:
            # The job is imported only here, since samplers know none.
            job = names.load("loading.world", "detect_world")() if self.deal.needs_job else World()
            return self.deal.world(job)
        resolved = self.deal.world(world)
        if resolved != world:
            problem = f"differs from that of the distributed sampler, {resolved}"
            raise ArgumentRangeError("world", problem, world)
        return resolved

    def constants(self, world: World | None = None) -> RunConstants:
        """Returns the constants of a run that is first started in this world."""
        num_shards = self.world(world).num_shards
        return RunConstants(num_shards, self.deal.limit(num_shards) if self.deal else None)

    def undealt(self, dataset: Any, epoch: int, constants: RunConstants) -> Order:
        """Returns the order of all shards together: their weave if the dealer is not the root."""
        order = self._order_to_deal(dataset, epoch, constants)
        deal = None if self._dealer is None else self.deal_at(self._dealer, dataset)
        if deal is None or self._dealer == len(self.links) - 1:
            return order
        # If the job decides it, the number of shards below the root is a constant of the run too.
        num_shards = deal.num_shards or constants.lanes
        shards = (deal.shard(order, World(num_shards, shard)) for shard in range(num_shards))
        return Weave([self._draw(self._above, shard, dataset, epoch, constants) for shard in shards])

    def shard(self, dataset: Any, epoch: int, constants: RunConstants, world: World) -> Order:
        """Returns the order of one shard."""
        deal = None if self._dealer is None else self.deal_at(self._dealer, dataset)
        order = (deal or Deal()).shard(self._order_to_deal(dataset, epoch, constants), world)
        return self._draw(self._above, order, dataset, epoch, constants)

    def woven_lanes(self, dataset: Any, constants: RunConstants) -> int:
        """Returns into how many lanes the undealt order is woven, 1 if it is not."""
        parents = [parent for parent in self.links[1:] if not parent.reads_a_stream]
        if any(parent.deal is None or parent.get_shuffle_mode() is not Shuffle.FALSE for parent in parents):
            return 1
        return self.lanes_at(0, Layout.of(dataset), constants.lanes)

    @cached_property
    def _above(self) -> range:
        """The depths above the dealer."""
        return range(len(self.links) if self._dealer is None else self._dealer + 1, len(self.links))

    def _order_to_deal(self, dataset: Any, epoch: int, constants: RunConstants) -> Order:
        # A sampler that evaluates the samplers below it starts a new chain, from the dataset.
        end = self._above.start
        first = next((depth for depth in range(end - 1, 0, -1) if self.links[depth].reads_below), 0)
        order = self._draw(range(first, end), None, dataset, epoch, constants)
        return limited(order, constants.limit)

    def _draw(self, depths: range, order: Any, dataset: Any, epoch: int, constants: RunConstants) -> Order:
        """Draws from the dataset or from an order, and at each further depth from the previous order."""
        for depth in depths:
            inner = None if depth == self._dealer else self.deal_at(depth, dataset)
            world = None if inner is None else inner.world(None)
            layout = Layout.of(dataset) if order is None else order.layout
            lanes = constants.lanes if world is None else world.num_shards
            context = Context(epoch, depth, lanes, dataset, order, constants.path)
            try:
                drawn = self.draw_at(depth, layout, context)
            except SamplerkitError as error:
                # The innermost one: a sampler that draws from a mixture passes the mixture's error on.
                if error._sampler_id is None:
                    error._sampler_id = id(self.links[depth])
                raise
            if not isinstance(drawn, Order):
                drawn = Table(checked_ids(drawn, len(layout), type(self.links[depth]).__name__))
            if len(drawn) > arguments.LARGEST:
                hint = "use a smaller one, and more epochs"
                raise ArgumentRangeError("num_samples", "must be at most 2^62", len(drawn), hint=hint)
            order = drawn if order is None else compose(drawn, order)
            if inner is not None and world is not None:
                order = inner.shard(limited(order, inner.limit(world.num_shards)), world)
        final_order: Order = order
        return final_order


def chain_type(algorithm: str) -> type[Chain]:
    """Returns the class that evaluates the chains of an algorithm; it is imported when it is first needed."""
    return cast("type[Chain]", names.load(*names.ALGORITHMS[algorithm]))


def check_algorithm(sampler: Any) -> None:
    """Checks the argument `algorithm` of a sampler, after its other arguments.

    Raises:
        ArgumentTypeError: no string.
        ArgumentValueError: not known; or an argument of the sampler is not one that the algorithm knows.
    """
    if arguments.text("algorithm", sampler.algorithm) not in names.ALGORITHMS:
        listing = ", ".join(names.ALGORITHMS)
        raise ArgumentValueError("algorithm", "is not known", sampler.algorithm, hint=f"known: {listing}")
    chain_type(sampler.algorithm).check(sampler)
