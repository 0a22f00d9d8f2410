"""Samples in a random order, in each shuffle mode."""

from __future__ import annotations

from typing import Final, final

from samplerkit.errors import ArgumentTypeError, ShuffleModeError
from samplerkit.order import arguments
from samplerkit.order.deal import limited
from samplerkit.order.keys import ALGORITHM
from samplerkit.order.layout import Layout
from samplerkit.order.order import Order
from samplerkit.order.sequences import DrawsWithReplacement, Range
from samplerkit.order.shuffle import (
    DEFAULT_ADAPTIVE_THRESHOLD,
    DEFAULT_PARTIAL_SIZE,
    Shuffle,
)
from samplerkit.samplers.algorithm import checked_algorithm
from samplerkit.samplers.context import Context
from samplerkit.samplers.moded import ModedSampler


@final
class RandomSampler(ModedSampler):
    """Reads samples in a random order, another one each epoch.

    Args:
        replacement: draw each time from all samples, so that a sample may come twice.
        num_samples: how many samples, at most those that there are; None and 0 mean all. With
            `replacement`, a dataset of files may be asked for more than it has, as in MindSpore.
        shuffle: the shuffle mode, any but FALSE; only GLOBAL and ADAPTIVE with `replacement`.
        seed: the seed of the order, in [0, 2^64).
        partial_size: samples in a block of PARTIAL.
        pools: 1, or 2 for samples that cross the borders of blocks: PARTIAL then shuffles blocks of twice
            `partial_size`, and a second time those that begin half a block later.
        adaptive_threshold: the largest number of samples that ADAPTIVE shuffles GLOBAL.
        lanes: into how many lanes the order is woven; None for the number of shards at the first start in
            the file-aware modes, and 1 in the others.
        algorithm: the id of the algorithm.

    Raises:
        ArgumentTypeError: an argument has the wrong type.
        ArgumentValueError: `num_samples` or `seed` is negative, or `algorithm` is not known.
        ArgumentRangeError: `partial_size` or `lanes` is not positive, or `pools` neither 1 nor 2.
        ShuffleModeError: `replacement` with a mode that it does not go with; or, when the order is asked
            for, FILES or INFILE over a dataset without files.

    Source: `mindspore.dataset.RandomSampler`.

    Example:
        >>> sampler = RandomSampler(seed=7)
        >>> sorted(sampler.order(5, epoch=0)), list(sampler.order(5, 0)) == list(sampler.order(5, 1))
        ([0, 1, 2, 3, 4], False)
    """

    def __init__(
        self,
        replacement: bool = False,
        num_samples: int | None = None,
        shuffle: Shuffle | str | bool = Shuffle.GLOBAL,
        *,
        seed: int = 0,
        partial_size: int = DEFAULT_PARTIAL_SIZE,
        pools: int = 1,
        adaptive_threshold: int = DEFAULT_ADAPTIVE_THRESHOLD,
        lanes: int | None = None,
        algorithm: str = ALGORITHM,
    ) -> None:
        super().__init__(num_samples, seed, shuffle, partial_size, pools, adaptive_threshold, lanes)
        self.replacement: Final = arguments.boolean("replacement", replacement)
        self.algorithm: Final = checked_algorithm(algorithm, self)
        if self.shuffle is Shuffle.FALSE:
            raise ArgumentTypeError(
                "shuffle", "must be a mode that shuffles", shuffle, mend="use SequentialSampler"
            )
        if self.replacement and self.shuffle not in (Shuffle.GLOBAL, Shuffle.ADAPTIVE):
            raise ShuffleModeError(
                "shuffle",
                "does not go with replacement=True, which draws from all samples",
                self.shuffle.value,
                mend="use GLOBAL",
            )

    def draw(self, layout: Layout, context: Context) -> Order:
        """Orders the samples of a layout."""
        size = len(layout)
        if not self.replacement:
            order = self._in_mode(layout, context)
            return limited(order, self.num_samples or None)
        if size == 0:
            return Range(0, 0)
        wanted = self.num_samples or size
        count = wanted if layout.has_files else min(wanted, size)
        return DrawsWithReplacement(count, context.key(self.seed, "replacement"), population=size)
