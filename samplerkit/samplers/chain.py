"""The evaluation of a chain: composition, and the deal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, cast

import numpy as np

from samplerkit import names
from samplerkit.errors import ArgumentRangeError, ArgumentTypeError, OutOfDatasetError
from samplerkit.order.algebra import Weave, compose
from samplerkit.order.arguments import LARGEST
from samplerkit.order.deal import Deal, limited
from samplerkit.order.layout import Layout
from samplerkit.order.once import once
from samplerkit.order.order import Order
from samplerkit.order.sequences import Table
from samplerkit.order.shuffle import Shuffle
from samplerkit.order.typing import Ids
from samplerkit.order.world import World
from samplerkit.samplers.context import Context, RunConstants


class Link(Protocol):
    """What a chain needs to know of a sampler."""

    @property
    def deal(self) -> Deal | None:
        """What the sampler says of shards, if it is a distributed one."""

    @property
    def reads_below(self) -> bool:
        """Whether the sampler evaluates what is below it by itself."""

    @property
    def reads_a_stream(self) -> bool:
        """Whether it reads that epoch after epoch."""

    def draw(self, layout: Layout, context: Context) -> Any:
        """Orders the samples of a layout."""

    def get_shuffle_mode(self) -> Shuffle:
        """Gives the shuffle mode."""

    def lane_count(self, layout: Layout, run_lanes: int) -> int:
        """Tells into how many lanes the sampler weaves its order."""


@dataclass(frozen=True)
class Chain:
    """Samplers that draw from one another, and how they are evaluated: the default algorithm.

    Another algorithm, such as the replay of another library, is a subclass, which `samplerkit.names` lists by
    its id. It may override `check`, `deal_at`, `draw_at` and `lanes_at`, and nothing else.

    The outermost distributed sampler deals. At the root, it deals the order below it. Further down, the
    samplers above it are evaluated on each shard by itself. Distributed samplers below the dealer are plain
    recipes: each gives the one shard that it names.

    Args:
        links: the samplers, the one that reads the dataset first.
    """

    links: Sequence[Link]

    @classmethod
    def check(cls, sampler: Link) -> None:
        """Refuses, when a sampler is made, what this algorithm does not know of its arguments."""

    def deal_at(self, depth: int, dataset: Any) -> Deal | None:
        """Tells how the sampler at a depth deals the shards of a dataset; None if it deals none."""
        return self.links[depth].deal

    def draw_at(self, depth: int, layout: Layout, context: Context) -> Any:
        """Orders the samples of a layout by the sampler at a depth."""
        return self.links[depth].draw(layout, context)

    def lanes_at(self, depth: int, layout: Layout, run_lanes: int) -> int:
        """Tells into how many lanes the order of the sampler at a depth is woven."""
        return self.links[depth].lane_count(layout, run_lanes)

    @once
    def _dealer(self) -> int | None:
        """The depth of the sampler that deals."""
        depths = range(len(self.links) - 1, -1, -1)
        return next((depth for depth in depths if self.links[depth].deal is not None), None)

    @once
    def deal(self) -> Deal | None:
        """What the dealer says of shards; None for a chain without a distributed sampler."""
        return None if self._dealer is None else self.links[self._dealer].deal

    def root_deal(self, dataset: Any) -> Deal | None:
        """How the root deals the shards of a dataset; None if it deals none."""
        return self.deal_at(len(self.links) - 1, dataset)

    def world(self, world: World | None = None) -> World:
        """Resolves the world: what the dealer says, then `world`, then, where it is asked, the running job.

        A chain without a dealer is one shard unless `world` says otherwise.
        """
        if world is not None and not isinstance(world, World):
            raise ArgumentTypeError("world", "must be a World or None", world)
        if self.deal is None:
            return world or World()
        if world is None:
            return self.deal.world(running_job() if self.deal.asks_the_job else World())
        resolved = self.deal.world(world)
        if resolved != world:
            raise ArgumentRangeError(
                "world", f"contradicts the distributed sampler, which says {resolved}", world
            )
        return resolved

    def constants(self, world: World | None = None) -> RunConstants:
        """Tells what a first start in this world fixes for the whole run."""
        num_shards = self.world(world).num_shards
        return RunConstants(num_shards, self.deal.limit(num_shards) if self.deal else None)

    def undealt(self, dataset: Any, epoch: int, constants: RunConstants) -> Order:
        """Gives the order of all shards together: their weave, where the dealer is not the root."""
        order = self._up_to_the_deal(dataset, epoch, constants)
        deal = None if self._dealer is None else self.deal_at(self._dealer, dataset)
        if deal is None or self._dealer == len(self.links) - 1:
            return order
        # Left to the job, the number of shards below the root is a constant of the run too.
        num_shards = deal.num_shards or constants.lanes
        return Weave(
            [
                self._above_the_deal(deal.shard(order, World(num_shards, shard)), dataset, epoch, constants)
                for shard in range(num_shards)
            ]
        )

    def shard(self, dataset: Any, epoch: int, constants: RunConstants, world: World) -> Order:
        """Gives the order of one shard."""
        deal = None if self._dealer is None else self.deal_at(self._dealer, dataset)
        order = (deal or Deal()).shard(self._up_to_the_deal(dataset, epoch, constants), world)
        return self._above_the_deal(order, dataset, epoch, constants)

    def woven_lanes(self, dataset: Any, constants: RunConstants) -> int:
        """Tells into how many lanes the undealt order is woven, 1 if it is not."""
        parents = [parent for parent in self.links[1:] if not parent.reads_a_stream]
        if any(parent.deal is None or parent.get_shuffle_mode() is not Shuffle.FALSE for parent in parents):
            return 1
        return self.lanes_at(0, Layout.of(dataset), constants.lanes)

    def _up_to_the_deal(self, dataset: Any, epoch: int, constants: RunConstants) -> Order:
        dealer = len(self.links) - 1 if self._dealer is None else self._dealer
        order: Order | None = None
        # What evaluates the links below it by itself begins anew, with the dataset.
        first = max((depth for depth in range(dealer + 1) if self.links[depth].reads_below), default=0)
        for depth in range(first, dealer):
            deal = self.deal_at(depth, dataset)
            if deal is None:
                order = self._drawn(depth, order, dataset, epoch, constants)
                continue
            world = deal.world(None)
            order = self._drawn(depth, order, dataset, epoch, replace(constants, lanes=world.num_shards))
            order = deal.shard(limited(order, deal.limit(world.num_shards)), world)
        order = self._drawn(dealer, order, dataset, epoch, constants)
        return limited(order, constants.limit)

    def _above_the_deal(self, order: Order, dataset: Any, epoch: int, constants: RunConstants) -> Order:
        first = len(self.links) if self._dealer is None else self._dealer + 1
        for depth in range(first, len(self.links)):
            order = self._drawn(depth, order, dataset, epoch, constants)
        return order

    def _drawn(
        self, depth: int, child: Order | None, dataset: Any, epoch: int, constants: RunConstants
    ) -> Order:
        """Draws from the dataset or from the child, and reads the child at what was drawn."""
        layout = Layout.of(dataset) if child is None else child.layout
        context = Context(epoch, depth, constants.lanes, dataset, child, constants.path)
        drawn = self.draw_at(depth, layout, context)
        if not isinstance(drawn, Order):
            drawn = Table(checked_ids(drawn, len(layout), type(self.links[depth]).__name__))
        if len(drawn) > LARGEST:
            raise ArgumentRangeError(
                "num_samples", "must be at most 2^62", len(drawn), mend="say a smaller one, and more epochs"
            )
        return drawn if child is None else compose(drawn, child)


def running_job() -> World:
    """Asks the running job for its world. This floor knows none: who asks is imported when it is wanted."""
    return cast("World", names.found("loading.world", "detect_world")())


def checked_ids(ids: Any, size: int, place: str) -> Ids:
    """Checks ids that a user gave against the number of samples there are to draw from.

    Raises:
        ArgumentTypeError: an id is no integer.
        OutOfDatasetError: an id lies outside of [0, size).
    """
    try:
        array = np.asarray(ids)
    except ValueError:  # lists of different lengths
        raise ArgumentTypeError(place, "must draw integers", ids) from None
    if array.size == 0:
        return np.zeros(0, dtype=np.int64)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise ArgumentTypeError(place, "must draw integers", ids)
    outside = (array < 0) | (array >= size)
    if outside.any():
        raise OutOfDatasetError(
            place, f"draws an index outside of a dataset of {size} samples", int(array[outside][0])
        )
    return array.astype(np.int64)
