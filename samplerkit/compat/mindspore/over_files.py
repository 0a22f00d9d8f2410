"""What MindSpore draws over files: the rules of its MindDataset."""

from __future__ import annotations

from samplerkit.compat.mindspore.replay import record_files
from samplerkit.compat.mindspore.replay.epochs import carried
from samplerkit.errors import NotSupportedError
from samplerkit.order.layout import Layout
from samplerkit.order.order import Order
from samplerkit.order.sequences import Range, Table
from samplerkit.order.shuffle import Shuffle
from samplerkit.order.typing import Ids
from samplerkit.samplers.context import Context
from samplerkit.samplers.distributed import DistributedSampler
from samplerkit.samplers.random import RandomSampler


def random(sampler: RandomSampler, layout: Layout, context: Context) -> Order:
    """Orders the samples of files for a random sampler."""
    size, num_samples, seed = len(layout), sampler.num_samples or None, sampler.seed
    shuffle = sampler.mode.resolve(layout)
    if sampler.replacement:
        count = num_samples or size

        def draw(epoch: int, before: int) -> Ids:
            # Each epoch draws from what the one before drew.
            return record_files.drawn_rows(before or size, count, seed + 1 + epoch)

        return carried(("draws", size, count, seed), context.epoch, draw)
    if shuffle is Shuffle.PARTIAL:
        block = sampler.mode.partial_size
        return Table(record_files.partial_order(layout, seed + 1 + context.epoch, block, 1, num_samples))

    def arrange(epoch: int, before: int) -> Ids:
        if shuffle is not Shuffle.GLOBAL:
            return _rows(shuffle, layout, seed + 1 + epoch)
        # The first epoch cuts, and the later ones only rearrange what it left.
        return record_files.global_order(before or size, seed + 1 + epoch)[:num_samples]

    return carried(("files", shuffle, layout, num_samples, seed), context.epoch, arrange)


def distributed(sampler: DistributedSampler, layout: Layout, context: Context, *, quirks: bool) -> Order:
    """Orders the samples of files for a distributed sampler, undealt.

    Raises:
        NotSupportedError: MindSpore does here what only its quirks replay, or leaves shards empty.
    """
    mode, deal, num_shards = sampler.mode, sampler.deal, context.lanes
    shuffle, seed = mode.resolve(layout), sampler.seed + 1 + context.epoch
    size, is_offset = len(layout), deal.offset >= 0
    if shuffle is Shuffle.PARTIAL:
        if is_offset and not quirks:
            raise NotSupportedError(
                "offset", "MindSpore pads PARTIAL whatever the offset", deal.offset, mend="say quirks=True"
            )
        if quirks and -(-size // num_shards) * num_shards > 2 * size:
            raise NotSupportedError(
                "num_shards",
                "MindSpore leaves shards empty when PARTIAL has more than twice as many as samples",
                num_shards,
                mend="say quirks=False, or use fewer shards",
            )
        return Table(
            record_files.partial_order(layout, seed, mode.partial_size, num_shards, deal.num_samples)
        )
    rows = None if shuffle is Shuffle.FALSE else _rows(shuffle, layout, seed)
    if quirks and is_offset:
        dealt = record_files.contiguous_blocks(size, num_shards, deal.offset)
        rows = dealt if rows is None else rows[dealt]
    return Range(0, size) if rows is None else Table(rows)


def _rows(shuffle: Shuffle, layout: Layout, seed: int) -> Ids:
    if shuffle is Shuffle.FILES:
        return record_files.files_order(layout, seed)
    if shuffle is Shuffle.INFILE:
        return record_files.infile_order(layout, seed)
    return record_files.global_order(len(layout), seed)
