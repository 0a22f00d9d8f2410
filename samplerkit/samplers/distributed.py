"""The samples of one shard, in each shuffle mode."""

from __future__ import annotations

from typing import Final, final

from samplerkit.errors import ArgumentRangeError
from samplerkit.order import arguments
from samplerkit.order.deal import Deal
from samplerkit.order.keys import ALGORITHM
from samplerkit.order.layout import Layout
from samplerkit.order.once import once
from samplerkit.order.order import Order
from samplerkit.order.shuffle import (
    DEFAULT_ADAPTIVE_THRESHOLD,
    DEFAULT_PARTIAL_SIZE,
    Shuffle,
)
from samplerkit.order.world import MOST_SHARDS
from samplerkit.samplers.algorithm import checked_algorithm
from samplerkit.samplers.context import Context
from samplerkit.samplers.moded import ModedSampler


@final
class DistributedSampler(ModedSampler):
    """Deals samples to shards: all shards share one order, and each reads its own part of it.

    Args:
        num_shards: the number of shards. None asks the running job when the order is first wanted: an
            initialised process group, then RANK and WORLD_SIZE, then SLURM, else one shard.
        shard_id: the shard of this process, in [0, num_shards). None asks the running job.
        shuffle: the shuffle mode; True means GLOBAL and False means FALSE.
        num_samples: how many samples a shard reads at most; None and 0 mean all.
        offset: -1 gives every shard the same number of samples, wrapping around to the first ones. o >= 0
            gives each what there is and repeats nothing, the first sample to shard o.
        seed: the seed of the order, in [0, 2^64); the same on every shard.
        partial_size: samples in a block of PARTIAL.
        pools: 1, or 2 for samples that cross the borders of blocks: PARTIAL then shuffles blocks of twice
            `partial_size`, and a second time those that begin half a block later.
        adaptive_threshold: the largest number of samples that ADAPTIVE shuffles GLOBAL.
        lanes: into how many lanes the order is woven; None for the number of shards at the first start in
            the file-aware modes, so that each shard reads its own files, and 1 in the others.
        algorithm: the id of the algorithm.

    Raises:
        ArgumentTypeError: an argument has the wrong type.
        ArgumentValueError: `num_samples` or `seed` is negative, or `algorithm` is not known.
        ArgumentRangeError: `num_shards` is not positive, `shard_id` or `offset` is out of range, or
            `partial_size` or `lanes` is not positive, or `pools` is neither 1 nor 2.
        ShuffleModeError: when the order is asked for: FILES or INFILE over a dataset without files.

    Source: `mindspore.dataset.DistributedSampler`; the lanes are what MosaicML streaming calls canonical
    nodes.

    Example:
        >>> shards = [DistributedSampler(3, shard, seed=7).order(9) for shard in range(3)]
        >>> sorted(id for shard in shards for id in shard)
        [0, 1, 2, 3, 4, 5, 6, 7, 8]
    """

    def __init__(
        self,
        num_shards: int | None = None,
        shard_id: int | None = None,
        shuffle: Shuffle | str | bool = True,
        num_samples: int | None = None,
        offset: int = -1,
        *,
        seed: int = 0,
        partial_size: int = DEFAULT_PARTIAL_SIZE,
        pools: int = 1,
        adaptive_threshold: int = DEFAULT_ADAPTIVE_THRESHOLD,
        lanes: int | None = None,
        algorithm: str = ALGORITHM,
    ) -> None:
        super().__init__(num_samples, seed, shuffle, partial_size, pools, adaptive_threshold, lanes)
        self.num_shards: Final = arguments.optional_integer("num_shards", num_shards)
        self.shard_id: Final = arguments.optional_integer("shard_id", shard_id)
        self.offset: Final = arguments.integer("offset", offset)
        self.algorithm: Final = checked_algorithm(algorithm, self)
        self._check_ranges()

    def _check_ranges(self) -> None:
        shards, shard, offset = self.num_shards, self.shard_id, self.offset
        if shards is not None:
            arguments.positive("num_shards", shards, MOST_SHARDS)
        if shard is not None and (shard < 0 or (shards is not None and shard >= shards)):
            end = "num_shards" if shards is None else shards
            raise ArgumentRangeError("shard_id", f"must be in [0, {end})", shard)
        if offset < -1 or (shards is not None and offset > shards):
            end = "num_shards" if shards is None else shards
            raise ArgumentRangeError("offset", f"must be in [-1, {end}]", offset)

    @once
    def deal(self) -> Deal:
        """What this sampler says of shards."""
        return Deal(self.num_shards, self.shard_id, self.offset, self.num_samples)

    def draw(self, layout: Layout, context: Context) -> Order:
        """Orders the samples of a layout, undealt."""
        return self._in_mode(layout, context)
