"""The samplers that draw at random: all samples in a shuffle mode, those of one shard, or by weight."""

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any, final

import numpy as np

from samplerkit.errors import ArgumentRangeError, ArgumentTypeError, OutOfDatasetError, ShuffleModeError
from samplerkit.order import arguments
from samplerkit.order.algebra import limited
from samplerkit.order.caching import cached_property
from samplerkit.order.deal import MAX_SHARDS, Deal, World
from samplerkit.order.keys import ALGORITHM
from samplerkit.order.layout import Layout
from samplerkit.order.mixing.weights import draw_without_replacement, integer_weights
from samplerkit.order.modes import DEFAULT_ADAPTIVE_THRESHOLD, DEFAULT_PARTIAL_SIZE, Mode, Shuffle
from samplerkit.order.order import Order
from samplerkit.order.sequences import DrawsWithReplacement, Range, Table
from samplerkit.samplers.base import Sampler
from samplerkit.samplers.chain import Context


@dataclass(eq=False, repr=False)
class ModedSampler(Sampler):
    """A sampler with a shuffle mode: the arguments that all of them have but `shuffle`."""

    _: KW_ONLY
    seed: int = 0
    partial_size: int = DEFAULT_PARTIAL_SIZE
    pools: int = 1
    adaptive_threshold: int = DEFAULT_ADAPTIVE_THRESHOLD
    lanes: int | None = None
    algorithm: str = ALGORITHM

    def _check(self, **checks: Callable[[str, Any], Any]) -> None:
        checks["shuffle"] = lambda name, value: Shuffle.parse(value, name)
        checks["adaptive_threshold"] = partial(arguments.at_least, least=0)
        super()._check(partial_size=arguments.positive, pools=arguments.integer, **checks)
        if self.pools not in {1, 2}:
            raise ArgumentRangeError("pools", "must be 1 or 2", self.pools)

    @cached_property
    def mode(self) -> Mode:
        """The arguments of the mode together; each is also a separate attribute."""
        sampler: Any = self  # each subclass has the argument `shuffle` at another place
        sizes, owner = (self.partial_size, self.adaptive_threshold), type(self).__name__
        return Mode(sampler.shuffle, *sizes, self.lanes, self.pools, owner)

    def get_shuffle_mode(self) -> Shuffle:
        """Returns the shuffle mode."""
        return self.mode.shuffle

    def lane_count(self, layout: Layout, run_lanes: int) -> int:
        return self.mode.lane_count(layout, run_lanes)

    def draw(self, layout: Layout, context: Context) -> Order:
        """Orders the samples of a layout by the mode."""
        return self.mode.order(layout, partial(context.key, self.seed), context.lanes)


@final
@dataclass(eq=False, repr=False)
class RandomSampler(ModedSampler):
    """Reads samples in a random order, another one each epoch.

    Args:
        replacement: draw each time from all samples, so that a sample may come twice.
        num_samples: how many samples, at most all; None and 0 mean all. With `replacement`, it may be more
            than a dataset of files has, as in MindSpore.
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
        ShuffleModeError: `replacement` with a mode that does not support it; or, when the order is made,
            FILES or INFILE over a dataset without files.

    Source: `mindspore.dataset.RandomSampler`.

    Example:
        >>> sampler = RandomSampler(seed=7)
        >>> sorted(sampler.order(5, epoch=0)), list(sampler.order(5, 0)) == list(sampler.order(5, 1))
        ([0, 1, 2, 3, 4], False)
    """

    replacement: bool = False
    num_samples: int | None = None
    shuffle: Shuffle | str | bool = Shuffle.GLOBAL

    def __post_init__(self) -> None:
        given = self.shuffle
        self._check(replacement=arguments.boolean)
        if self.mode.shuffle is Shuffle.FALSE:
            hint = "use SequentialSampler"
            raise ArgumentTypeError("shuffle", "must be a mode that shuffles", given, hint=hint)
        if self.replacement and self.mode.shuffle not in (Shuffle.GLOBAL, Shuffle.ADAPTIVE):
            problem = "cannot be combined with replacement=True, which draws from all samples"
            raise ShuffleModeError("shuffle", problem, self.mode.shuffle.value, hint="use GLOBAL")

    def draw(self, layout: Layout, context: Context) -> Order:
        """Orders the samples of a layout."""
        size = len(layout)
        if not self.replacement:
            return limited(super().draw(layout, context), self.num_samples or None)
        if size == 0:
            return Range(0, 0)
        requested = self.num_samples or size
        count = requested if layout.has_files else min(requested, size)
        return DrawsWithReplacement(count, context.key(self.seed, "replacement"), population=size)


@final
@dataclass(eq=False, repr=False)
class DistributedSampler(ModedSampler):
    """Deals samples to shards: all shards share one order, and each reads its own part of it.

    Args:
        num_shards: the number of shards. None takes it from the running job when the order is first used: an
            initialised process group, then RANK and WORLD_SIZE, then MPI, then SLURM, otherwise one shard.
        shard_id: the shard of this process, in [0, num_shards). None takes it from the running job.
        shuffle: the shuffle mode; True means GLOBAL and False means FALSE.
        num_samples: how many samples a shard reads at most; None and 0 mean all.
        offset: -1 gives every shard the same number of samples, wrapping around to the first ones. o >= 0
            repeats nothing, and gives the first sample to shard o.
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
        ShuffleModeError: when the order is made: FILES or INFILE over a dataset without files.

    Source: `mindspore.dataset.DistributedSampler`; the lanes are what MosaicML streaming calls canonical
    nodes.

    Example:
        >>> shards = [DistributedSampler(3, shard, seed=7).order(9) for shard in range(3)]
        >>> sorted(id for shard in shards for id in shard)
        [0, 1, 2, 3, 4, 5, 6, 7, 8]
    """

    num_shards: int | None = None
    shard_id: int | None = None
    shuffle: Shuffle | str | bool = True
    num_samples: int | None = None
    offset: int = -1

    def __post_init__(self) -> None:
        optional = arguments.optional_integer
        self._check(num_shards=optional, shard_id=optional, offset=arguments.integer)
        largest = MAX_SHARDS if self.num_shards is None else self.num_shards
        World(largest, self.shard_id or 0)  # which checks them
        if not -1 <= self.offset <= largest:
            raise ArgumentRangeError("offset", f"must be in [-1, {largest}]", self.offset)

    @cached_property
    def deal(self) -> Deal:
        """The sampler's arguments about shards."""
        return Deal(self.num_shards, self.shard_id, self.offset, self.num_samples)


@final
@dataclass(eq=False, repr=False)
class WeightedRandomSampler(Sampler):
    """Draws samples with probabilities in proportion to weights, other ones each epoch.

    The draws are made of integers: the weights are scaled by a power of two so that their sum is just below
    2^62, and rounded down, a positive one to no less than 1.

    Args:
        weights: the weight of each sample: a list, tuple or array of numbers, any number of them. Above a
            child, `weights[i]` is of the i-th sample that the child yields. There may be fewer than samples;
            those without a weight are never drawn.
        num_samples: how many draws; None and 0 mean as many as the dataset has samples.
        replacement: whether a sample may be drawn again. Without, samples are drawn one after another, each
            in proportion to the weights of the remaining ones.
        seed: the seed of the draws, in [0, 2^64).
        algorithm: the id of the algorithm.

    Raises:
        ArgumentTypeError: an argument has the wrong type.
        ArgumentRangeError: `weights` is empty, all zero, or holds a negative, NaN or infinite one; or, as
            soon as it can be known, without replacement, more draws than positive weights.
        ArgumentValueError: `num_samples` or `seed` is negative, or `algorithm` is not known.
        OutOfDatasetError: when the order is made: there are more weights than samples.

    Source: `mindspore.dataset.WeightedRandomSampler`, whose draws are the same in every epoch.

    Example:
        >>> draws = np.asarray(WeightedRandomSampler([3.0, 0.0, 1.0], num_samples=4000).order(4000))
        >>> np.bincount(draws, minlength=3) // 100
        array([29,  0, 10])
    """

    weights: Sequence[float] | np.ndarray[Any, Any]
    num_samples: int | None = None
    replacement: bool = True
    _: KW_ONLY
    seed: int = 0
    algorithm: str = ALGORITHM

    def __post_init__(self) -> None:
        self._check(weights=arguments.weights, replacement=arguments.boolean)
        requested = self.num_samples or 0
        if requested <= len(self.weights):
            self._require_positive(requested)

    def draw(self, layout: Layout, context: Context) -> Order:
        """Orders the samples of a layout."""
        self.check_over(layout)
        key, integers = context.key(self.seed, "weighted"), integer_weights(np.asarray(self.weights))
        count = self.num_samples or len(layout)
        if self.replacement:
            return DrawsWithReplacement(count, key, cumulative=np.cumsum(integers))
        count = min(count, len(layout))
        return Table(draw_without_replacement(integers, count, key)) if count else Range(0, 0)

    def check_over(self, layout: Layout) -> None:
        """Refuses weights that do not fit the samples."""
        size = len(layout)
        if len(self.weights) > size:
            problem = f"are more than the {size} samples of the dataset"
            raise OutOfDatasetError("weights", problem, len(self.weights))
        self._require_positive(min(self.num_samples or size, size))

    def _require_positive(self, count: int) -> None:
        positive = int(np.count_nonzero(self.weights))
        if not self.replacement and count > positive:
            problem = f"without replacement, only the {positive} samples of positive weight can be drawn"
            hint = f"use num_samples={positive} or replacement=True"
            raise ArgumentRangeError("num_samples", problem, count, hint=hint)
