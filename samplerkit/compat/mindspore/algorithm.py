"""mindspore-2.10: reproduces the orders of MindSpore 2.10, id for id.

MindSpore has different rules for three kinds of datasets: mappable datasets, here a layout without files;
MindDataset, here a layout with files; and ConcatDataset.
"""

from collections.abc import Callable
from dataclasses import dataclass
from dataclasses import replace as replaced
from enum import Enum
from functools import partial
from typing import Any, ClassVar

import numpy as np

from samplerkit.compat.mindspore import orders
from samplerkit.compat.mindspore.generators import Mt19937, drawn_rows, uniform_integers
from samplerkit.compat.mindspore.orders import rearranged, weighted_distinct, weighted_draws
from samplerkit.compat.mindspore.orders import shuffle as shuffled
from samplerkit.errors import ArgumentTypeError, ArgumentValueError, NotSupportedError, ShuffleModeError
from samplerkit.order import arguments
from samplerkit.order.algebra import compose, limited
from samplerkit.order.deal import Deal, World
from samplerkit.order.layout import Layout
from samplerkit.order.modes import FILE_AWARE, Mode, Shuffle
from samplerkit.order.order import Order
from samplerkit.order.sequences import Range, Table
from samplerkit.order.typing import Ids
from samplerkit.samplers.chain import Chain, Context
from samplerkit.samplers.groups import PKSampler
from samplerkit.samplers.shuffled import DistributedSampler, RandomSampler, WeightedRandomSampler
from samplerkit.samplers.subset import SubsetRandomSampler

MINDSPORE = "mindspore-2.10"
"""The id of MindSpore 2.10's algorithm, without its bugs."""

MINDSPORE_QUIRKS = "mindspore-2.10-quirks"
"""The id of MindSpore 2.10's algorithm, with its bugs."""

_SEEDS = 2**32


class DatasetKind(Enum):
    """The kinds of datasets that MindSpore orders by different rules.

    Attributes:
        PLAIN: samples without files; MindSpore's mappable datasets.
        FILES: samples in files; MindSpore's MindDataset.
        CONCAT: datasets one after another; MindSpore's and torch's ConcatDataset.
    """

    PLAIN = 0
    FILES = 1
    CONCAT = 2


def kind_of(dataset: Any) -> DatasetKind:
    """Returns the kind of a dataset.

    Args:
        dataset: anything that `Sampler.order` accepts.

    Example:
        >>> kind_of(5).name, kind_of(Layout([2, 3])).name
        ('PLAIN', 'FILES')
    """
    if not Layout.of(dataset).has_files:
        return DatasetKind.PLAIN
    has_layout = isinstance(dataset, Layout) or isinstance(getattr(dataset, "layout", None), Layout)
    return DatasetKind.FILES if has_layout else DatasetKind.CONCAT


@dataclass(frozen=True)
class MindSporeChain(Chain):
    """Orders samples by a chain of samplers as MindSpore 2.10 does.

    Attributes:
        quirks: whether to reproduce MindSpore's bugs. `docs/migration.md` lists them.
    """

    quirks: ClassVar[bool] = False

    @classmethod
    def check(cls, sampler: Any) -> None:
        mode: Mode | None = getattr(sampler, "mode", None)
        arguments.below("seed", sampler.seed, _SEEDS, "must be in [0, 2^32), as MindSpore's")
        if mode is not None and (mode.lanes is not None or mode.pools != 1):
            raise NotSupportedError("lanes and pools", "do not exist in MindSpore", (mode.lanes, mode.pools))
        if mode is not None and mode.shuffle in (Shuffle.FILES, Shuffle.INFILE) and sampler.num_samples:
            raise ShuffleModeError(
                "num_samples", f"cannot be given together with {mode.shuffle.value}", sampler.num_samples
            )

    def deal_at(self, depth: int, dataset: Any) -> Deal | None:
        sampler = self.links[depth]
        if not isinstance(sampler, DistributedSampler):
            return super().deal_at(depth, dataset)
        kind, deal = kind_of(dataset), sampler.deal
        if kind is DatasetKind.CONCAT:
            return replaced(deal, offset=0)
        if not self.quirks:
            return deal
        if kind is DatasetKind.PLAIN:
            return DealOfAtLeastOne(**vars(deal))
        is_partial = sampler.mode.resolve(Layout.of(dataset)) is Shuffle.PARTIAL
        return replaced(deal, offset=-1) if is_partial else deal

    def lanes_at(self, depth: int, layout: Layout, run_lanes: int) -> int:
        sampler = self.links[depth]
        if not isinstance(sampler, RandomSampler | DistributedSampler):
            return super().lanes_at(depth, layout, run_lanes)
        is_partial = layout.has_files and sampler.mode.resolve(layout) is Shuffle.PARTIAL
        return run_lanes if is_partial else 1

    def draw_at(self, depth: int, layout: Layout, context: Context) -> Any:
        sampler = self.links[depth]
        draws = _DRAWS.get(type(sampler))
        if draws is None:
            return sampler.draw(layout, context)
        kind = self._kind(context)
        draw = draws[kind.value]
        if draw is not None:
            return draw(self, sampler, layout, context)
        if kind is DatasetKind.CONCAT:
            raise ArgumentTypeError(
                "sampler", "over a ConcatDataset must be a DistributedSampler or a RandomSampler"
            )
        hint = 'use algorithm="samplerkit-1"'
        raise ArgumentValueError("sampler", "is not supported over files by MindSpore", hint=hint)

    def _random(self, sampler: RandomSampler, layout: Layout, context: Context) -> Order:
        size, seed = len(layout), sampler.seed
        if sampler.replacement:
            count = min(sampler.num_samples or size, size)
            generator = Mt19937((seed + context.epoch) % _SEEDS)
            return Table(uniform_integers(generator, np.full(count, size)))
        _require_global(sampler.mode)
        order = rearranged(("random", size, seed), context.epoch, _shuffle_of(size, lambda e: seed + e))
        return limited(order, sampler.num_samples or None)

    def _random_over_concat(self, sampler: RandomSampler, layout: Layout, context: Context) -> Order:
        if sampler.replacement:
            raise ArgumentValueError("replacement", "must be False over a ConcatDataset", True)
        _require_global(sampler.mode)
        _refuse_num_samples(sampler.num_samples or None)
        return Table(orders.random_concat(layout.sizes, sampler.seed, context.epoch))

    def _random_over_files(self, sampler: RandomSampler, layout: Layout, context: Context) -> Order:
        size, num_samples, first = len(layout), sampler.num_samples or None, sampler.seed + 1
        shuffle, replacement = sampler.mode.resolve(layout), sampler.replacement
        if replacement and not size:
            return Range(0, 0)
        if shuffle is Shuffle.PARTIAL and not replacement:
            block = sampler.mode.partial_size
            return Table(orders.partial_order(layout, first + context.epoch, block, 1, num_samples))

        def arrange(epoch: int, before: int) -> Ids:
            if replacement:
                # Each epoch draws from the draws of the epoch before.
                return drawn_rows(before or size, num_samples or size, first + epoch)
            if shuffle is not Shuffle.GLOBAL:
                return _rows(shuffle, layout, first + epoch)
            # The first epoch selects `num_samples`, and later epochs only rearrange these.
            return orders.global_order(before or size, first + epoch)[:num_samples]

        name = ("files", replacement, shuffle, layout, num_samples, sampler.seed)
        return rearranged(name, context.epoch, arrange)

    def _distributed(self, sampler: DistributedSampler, layout: Layout, context: Context) -> Order:
        size, seed = len(layout), sampler.seed
        if sampler.mode.shuffle is Shuffle.FALSE:
            return Range(0, size)
        _require_global(sampler.mode)
        first = seed if seed + 1 == _SEEDS - 1 else seed + 1
        return rearranged(("distributed", size, seed), context.epoch, _shuffle_of(size, lambda e: first + e))

    def _distributed_over_concat(
        self, sampler: DistributedSampler, layout: Layout, context: Context
    ) -> Order:
        shuffle = sampler.mode.shuffle
        if shuffle is not Shuffle.FALSE:
            raise ArgumentValueError("shuffle", "must be False over a ConcatDataset", shuffle.value)
        _refuse_num_samples(sampler.num_samples)
        return Range(0, len(layout))

    def _distributed_over_files(self, sampler: DistributedSampler, layout: Layout, context: Context) -> Order:
        """Orders the samples of files for a distributed sampler, undealt.

        Raises:
            NotSupportedError: only `quirks` reproduces MindSpore's order, or MindSpore leaves shards empty.
        """
        mode, deal, num_shards = sampler.mode, sampler.deal, context.lanes
        shuffle, seed = mode.resolve(layout), sampler.seed + 1 + context.epoch
        size, is_offset = len(layout), deal.offset >= 0
        if shuffle is Shuffle.PARTIAL:
            if is_offset and not self.quirks:
                raise NotSupportedError(
                    "offset",
                    "MindSpore pads PARTIAL whatever the offset",
                    deal.offset,
                    hint="use quirks=True",
                )
            if self.quirks and -(-size // num_shards) * num_shards > 2 * size:
                raise NotSupportedError(
                    "num_shards",
                    "MindSpore leaves shards empty when PARTIAL has more than twice as many as samples",
                    num_shards,
                    hint="use quirks=False, or use fewer shards",
                )
            return Table(orders.partial_order(layout, seed, mode.partial_size, num_shards, deal.num_samples))
        order = Range(0, size) if shuffle is Shuffle.FALSE else Table(_rows(shuffle, layout, seed))
        if self.quirks and is_offset:
            return compose(Table(orders.contiguous_blocks(size, num_shards, deal.offset)), order)
        return order

    def _subset(self, sampler: SubsetRandomSampler, layout: Layout, context: Context) -> Order:
        listed, seed = sampler._listed(layout), sampler.seed
        name = ("subset", len(listed), seed, self.quirks)
        arrange = _shuffle_of(len(listed), lambda e: self._drawn_seed(seed, e))
        return compose(rearranged(name, context.epoch, arrange), listed)

    def _subset_over_files(self, sampler: SubsetRandomSampler, layout: Layout, _: Context) -> Order:
        listed = sampler._listed(layout)
        return compose(Table(orders.global_order(len(listed), sampler.seed + 1)), listed)

    def _weighted(self, sampler: WeightedRandomSampler, layout: Layout, context: Context) -> Order:
        sampler.check_over(layout)
        generator = Mt19937(self._drawn_seed(sampler.seed, context.epoch) % _SEEDS)
        draw = weighted_draws if sampler.replacement else weighted_distinct
        count = min(sampler.num_samples or len(layout), len(layout))
        return Table(draw(np.asarray(sampler.weights), count, generator))

    def _classes(self, sampler: PKSampler, _: Layout, context: Context) -> Order:
        return sampler.drawn(context, partial(_pick, sampler, context.epoch))

    def _drawn_seed(self, seed: int, epoch: int) -> int:
        return seed if self.quirks else seed + epoch

    def _kind(self, context: Context) -> DatasetKind:
        kind = kind_of(context.dataset)
        if kind is DatasetKind.CONCAT and len(self.links) > 1:
            raise NotSupportedError(
                "sampler", "MindSpore takes no chain of samplers over a ConcatDataset", len(self.links)
            )
        if self.quirks and kind is DatasetKind.FILES and len(self.links) > 1 and context.epoch:
            raise NotSupportedError(
                "epoch",
                "MindSpore runs only a part of a chain over files again after epoch 0; not replayed",
                context.epoch,
                hint="use quirks=False to run the whole chain in each epoch",
            )
        return kind


_Draw = Callable[[MindSporeChain, Any, Layout, Context], Order]
_Of = MindSporeChain

_DRAWS: dict[type, tuple[_Draw, _Draw | None, _Draw | None]] = {
    DistributedSampler: (_Of._distributed, _Of._distributed_over_files, _Of._distributed_over_concat),
    PKSampler: (_Of._classes, None, None),
    RandomSampler: (_Of._random, _Of._random_over_files, _Of._random_over_concat),
    SubsetRandomSampler: (_Of._subset, _Of._subset_over_files, None),
    WeightedRandomSampler: (_Of._weighted, None, None),
}
"""MindSpore's own ways to draw, by sampler and kind of dataset; None for combinations that are refused."""


@dataclass(frozen=True)
class QuirkyMindSporeChain(MindSporeChain):
    """Orders samples as MindSpore 2.10 does, including its bugs."""

    quirks: ClassVar[bool] = True


@dataclass(frozen=True)
class DealOfAtLeastOne(Deal):
    """A deal in which a shard without samples reads the first sample."""

    def shard(self, undealt: Order, world: World, start: int = 0) -> Order:
        shard = super().shard(undealt, world, start)
        return shard if len(shard) else Range(0, 1)


def _shuffle_of(size: int, seed_of: Callable[[int], int]) -> Callable[[int, int], Ids]:
    return lambda epoch, _: shuffled(size, Mt19937(seed_of(epoch) % _SEEDS))


def _pick(sampler: PKSampler, epoch: int, counts: Ids) -> tuple[Ids, Ids]:
    generator = Mt19937(sampler.seed)
    classes = shuffled(counts.size, generator) if sampler.shuffle else np.arange(counts.size)
    classes = sampler.each_class(classes).astype(np.int64)
    if epoch:
        generator = Mt19937((sampler.seed + epoch) % _SEEDS)
    return classes, uniform_integers(generator, counts[classes])


def _require_global(mode: Mode) -> None:
    if mode.shuffle in FILE_AWARE or mode.shuffle is Shuffle.ADAPTIVE:
        raise ShuffleModeError("shuffle", "is not supported with a dataset without files", mode.shuffle.value)


def _refuse_num_samples(num_samples: int | None) -> None:
    if num_samples is not None:
        raise ArgumentValueError("num_samples", "cannot be set over a ConcatDataset", num_samples)


def _rows(shuffle: Shuffle, layout: Layout, seed: int) -> Ids:
    if shuffle is Shuffle.FILES:
        return orders.files_order(layout, seed)
    if shuffle is Shuffle.INFILE:
        return orders.infile_order(layout, seed)
    return orders.global_order(len(layout), seed)
