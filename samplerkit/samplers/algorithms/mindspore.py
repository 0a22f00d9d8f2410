"""mindspore-2.10: the orders of MindSpore 2.10, id for id.

MindSpore orders datasets of three kinds by three sets of rules: what it calls mappable, here a layout without
files; a MindDataset, here a layout with files; and a ConcatDataset.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from dataclasses import replace as replaced
from typing import Any, final

import numpy as np

from samplerkit.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    NotSupportedError,
    ShuffleModeError,
)
from samplerkit.order.deal import Deal, limited
from samplerkit.order.layout import Layout
from samplerkit.order.modes import FILE_AWARE, Mode
from samplerkit.order.order import Order
from samplerkit.order.replay import record_files
from samplerkit.order.replay.concat import random_concat
from samplerkit.order.replay.distributions import uniform_integers
from samplerkit.order.replay.epochs import carried
from samplerkit.order.replay.generators import Mt19937
from samplerkit.order.replay.shuffle import shuffle as shuffled
from samplerkit.order.replay.weighted import weighted_distinct, weighted_draws
from samplerkit.order.sequences import Range, Table
from samplerkit.order.shuffle import Shuffle
from samplerkit.order.typing import Ids
from samplerkit.samplers.algorithms.algorithm import Algorithm, Weights, each_class
from samplerkit.samplers.algorithms.dataset_kind import DatasetKind, kind_of
from samplerkit.samplers.context import Context

_SEEDS = 2**32


@final
@dataclass(frozen=True)
class MindSpore(Algorithm):
    """What MindSpore 2.10 does.

    Args:
        quirks: whether to do as well what is a bug of MindSpore's. `docs/migration.md` lists them.
    """

    quirks: bool

    def check(self, seed: int, mode: Mode | None = None, num_samples: int | None = None) -> None:
        if seed >= _SEEDS:
            raise ArgumentValueError("seed", "must be in [0, 2^32), as MindSpore's", seed)
        if mode is not None and (mode.lanes is not None or mode.pools != 1):
            raise NotSupportedError("lanes and pools", "are not MindSpore's", (mode.lanes, mode.pools))
        if mode is not None and mode.shuffle in (Shuffle.FILES, Shuffle.INFILE) and num_samples:
            raise ShuffleModeError(
                "num_samples", f"cannot be said together with {mode.shuffle.value}", num_samples
            )

    def random(
        self, mode: Mode, num_samples: int | None, layout: Layout, seed: int, context: Context
    ) -> Order:
        kind = self._kind(context)
        if kind is DatasetKind.FILES:
            return self._random_over_files(mode, num_samples, layout, seed, context)
        self._require_global(mode)
        if kind is DatasetKind.CONCAT:
            if num_samples is not None:
                raise ArgumentValueError("num_samples", "cannot be set over a ConcatDataset", num_samples)
            return Table(random_concat(layout.sizes, seed, context.epoch))
        name = ("random", len(layout), seed)
        order = carried(name, context.epoch, _shuffle_of(len(layout), lambda e: seed + e))
        return limited(order, num_samples)

    def draws(self, num_samples: int | None, layout: Layout, seed: int, context: Context) -> Order:
        kind, size = self._kind(context), len(layout)
        if kind is DatasetKind.CONCAT:
            raise ArgumentValueError("replacement", "must be False over a ConcatDataset", True)
        if kind is DatasetKind.FILES:
            count = num_samples or size

            def draw(epoch: int, before: int) -> Ids:
                return record_files.drawn_rows(before or size, count, seed + 1 + epoch)

            # Here too each epoch draws from what the one before drew.
            return carried(("draws", size, count, seed), context.epoch, draw)
        generator = Mt19937((seed + context.epoch) % _SEEDS)
        return Table(uniform_integers(generator, np.full(min(num_samples or size, size), size)))

    def distributed(self, mode: Mode, deal: Deal, layout: Layout, seed: int, context: Context) -> Order:
        kind, size = self._kind(context), len(layout)
        if kind is DatasetKind.CONCAT:
            if mode.shuffle is not Shuffle.FALSE:
                raise ArgumentValueError("shuffle", "must be False over a ConcatDataset", mode.shuffle.value)
            if deal.num_samples is not None:
                raise ArgumentValueError(
                    "num_samples", "cannot be set over a ConcatDataset", deal.num_samples
                )
        if kind is DatasetKind.FILES:
            return self._distributed_over_files(mode, deal, layout, seed, context)
        if mode.shuffle is Shuffle.FALSE:
            return Range(0, size)
        self._require_global(mode)
        first = seed if seed + 1 == _SEEDS - 1 else seed + 1
        return carried(("distributed", size, seed), context.epoch, _shuffle_of(size, lambda e: first + e))

    def deal(self, deal: Deal, mode: Mode, dataset: Any) -> Deal:
        kind = kind_of(dataset)
        if kind is DatasetKind.CONCAT:
            return replaced(deal, offset=0)
        if not self.quirks:
            return deal
        if kind is DatasetKind.PLAIN:
            return replaced(deal, placeholder=0)
        is_partial = mode.resolve(Layout.of(dataset)) is Shuffle.PARTIAL
        return replaced(deal, offset=-1) if is_partial else deal

    def lane_count(self, mode: Mode, layout: Layout, run_lanes: int) -> int:
        is_partial = layout.has_files and mode.resolve(layout) is Shuffle.PARTIAL
        return run_lanes if is_partial else 1

    def subset(self, size: int, seed: int, context: Context) -> Order:
        kind = self._kind(context)
        self._refuse_over_concat(kind)
        if kind is DatasetKind.FILES:
            return Table(record_files.global_order(size, seed + 1))
        name = ("subset", size, seed, self.quirks)
        return carried(name, context.epoch, _shuffle_of(size, lambda e: self._drawn_seed(seed, e)))

    def weighted(
        self,
        weights: Weights,
        num_samples: int | None,
        replacement: bool,
        layout: Layout,
        seed: int,
        context: Context,
    ) -> Order:
        self._refuse_over_files(self._kind(context))
        generator = Mt19937(self._drawn_seed(seed, context.epoch) % _SEEDS)
        draw = weighted_draws if replacement else weighted_distinct
        return Table(draw(weights, min(num_samples or len(layout), len(layout)), generator))

    def class_draws(
        self, counts: Ids, num_val: int, shuffle: bool, num_samples: int | None, seed: int, context: Context
    ) -> tuple[Ids, Ids]:
        self._refuse_over_files(self._kind(context))
        generator = Mt19937(seed)
        classes = shuffled(counts.size, generator) if shuffle else np.arange(counts.size)
        classes = classes[each_class(counts.size, num_val, num_samples)].astype(np.int64)
        if context.epoch:
            generator = Mt19937((seed + context.epoch) % _SEEDS)
        return classes, uniform_integers(generator, counts[classes])

    def _random_over_files(
        self, mode: Mode, num_samples: int | None, layout: Layout, seed: int, context: Context
    ) -> Order:
        shuffle = mode.resolve(layout)
        if shuffle is Shuffle.PARTIAL:
            return Table(
                record_files.partial_order(
                    layout, seed + 1 + context.epoch, mode.partial_size, 1, num_samples
                )
            )

        def arrange(epoch: int, before: int) -> Ids:
            if shuffle is not Shuffle.GLOBAL:
                return _of_files(shuffle, layout, seed + 1 + epoch)
            # The first epoch cuts, and the later ones only rearrange what it left.
            return record_files.global_order(before or len(layout), seed + 1 + epoch)[:num_samples]

        return carried(("files", shuffle, layout, num_samples, seed), context.epoch, arrange)

    def _distributed_over_files(
        self, mode: Mode, deal: Deal, layout: Layout, seed: int, context: Context
    ) -> Order:
        shuffle = mode.resolve(layout)
        size, num_shards, is_offset = len(layout), context.lanes, deal.offset >= 0
        if is_offset and shuffle is Shuffle.PARTIAL and not self.quirks:
            raise NotSupportedError(
                "offset", "MindSpore pads PARTIAL whatever the offset", deal.offset, mend="say quirks=True"
            )
        if shuffle is Shuffle.PARTIAL:
            if self.quirks and -(-size // num_shards) * num_shards > 2 * size:
                raise NotSupportedError(
                    "num_shards",
                    "MindSpore leaves shards empty when PARTIAL has more than twice as many as samples",
                    num_shards,
                    mend="say quirks=False, or use fewer shards",
                )
            return Table(
                record_files.partial_order(
                    layout, seed + 1 + context.epoch, mode.partial_size, num_shards, deal.num_samples
                )
            )
        blocks = self.quirks and is_offset
        if shuffle is Shuffle.FALSE:
            rows: Ids | None = None
        else:
            rows = _of_files(shuffle, layout, seed + 1 + context.epoch)
        if blocks:
            dealt = record_files.contiguous_blocks(size, num_shards, deal.offset)
            rows = dealt if rows is None else rows[dealt]
        return Range(0, size) if rows is None else Table(rows)

    def _require_global(self, mode: Mode) -> None:
        if mode.shuffle in FILE_AWARE or mode.shuffle is Shuffle.ADAPTIVE:
            raise ShuffleModeError(
                "shuffle", "is not supported with a dataset without files", mode.shuffle.value
            )

    def _drawn_seed(self, seed: int, epoch: int) -> int:
        return seed if self.quirks else seed + epoch

    def _kind(self, context: Context) -> DatasetKind:
        kind = kind_of(context.dataset)
        if kind is DatasetKind.CONCAT and context.links > 1:
            raise NotSupportedError(
                "sampler", "MindSpore takes no chain of samplers over a ConcatDataset", context.links
            )
        if self.quirks and kind is DatasetKind.FILES and context.links > 1 and context.epoch:
            raise NotSupportedError(
                "epoch",
                "MindSpore runs only a part of a chain over files again after epoch 0; not replayed",
                context.epoch,
                mend="say quirks=False to run the whole chain in each epoch",
            )
        return kind

    def _refuse_over_concat(self, kind: DatasetKind) -> None:
        if kind is DatasetKind.CONCAT:
            raise ArgumentTypeError(
                "sampler", "over a ConcatDataset must be a DistributedSampler or a RandomSampler"
            )

    def _refuse_over_files(self, kind: DatasetKind) -> None:
        self._refuse_over_concat(kind)
        if kind is DatasetKind.FILES:
            raise ArgumentValueError(
                "sampler",
                "is not supported over files by MindSpore",
                mend='say algorithm="samplerkit-1"',
            )


def _shuffle_of(size: int, seed_of: Callable[[int], int]) -> Callable[[int, int], Ids]:
    return lambda epoch, _: shuffled(size, Mt19937(seed_of(epoch) % _SEEDS))


def _of_files(shuffle: Shuffle, layout: Layout, seed: int) -> Ids:
    if shuffle is Shuffle.FILES:
        return record_files.files_order(layout, seed)
    if shuffle is Shuffle.INFILE:
        return record_files.infile_order(layout, seed)
    return record_files.global_order(len(layout), seed)
