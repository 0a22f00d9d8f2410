"""MindSpore's random samplers: samplerkit's samplers with MindSpore's algorithm and process-wide seed.

Each function makes a sampler of samplerkit. By default, `seed` is the seed that `set_seed` set. `quirks`
reproduces MindSpore's bugs; all samplers of a chain must have the same `quirks`. Arguments and errors are
those of the samplerkit class of the same name.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from samplerkit.compat.mindspore.algorithm import MINDSPORE, MINDSPORE_QUIRKS
from samplerkit.compat.mindspore.config import get_seed
from samplerkit.errors import ArgumentValueError
from samplerkit.order import arguments
from samplerkit.order.modes import DEFAULT_ADAPTIVE_THRESHOLD, DEFAULT_PARTIAL_SIZE, FILE_AWARE, Shuffle
from samplerkit.order.typing import Ids
from samplerkit.samplers import groups, shuffled, subset
from samplerkit.samplers.base import Sampler
from samplerkit.samplers.subset import SequentialSampler

SamplerT = TypeVar("SamplerT")


def RandomSampler(  # noqa: N802  # MindSpore's name
    replacement: bool = False,
    num_samples: int | None = None,
    shuffle: Shuffle | str | bool = Shuffle.GLOBAL,
    *,
    seed: int | None = None,
    quirks: bool = False,
    partial_size: int = DEFAULT_PARTIAL_SIZE,
    adaptive_threshold: int = DEFAULT_ADAPTIVE_THRESHOLD,
) -> shuffled.RandomSampler:
    """Reads samples in MindSpore's random order.

    Args:
        replacement: as in `samplerkit.RandomSampler`; so are all other arguments but `seed` and `quirks`.
        num_samples: how many samples.
        shuffle: the shuffle mode.
        seed: the seed in [0, 2^32); None for the seed that `set_seed` set.
        quirks: whether to reproduce MindSpore's bugs.
        partial_size: samples in a block of PARTIAL; a million in MindSpore.
        adaptive_threshold: the largest number of samples that ADAPTIVE shuffles GLOBAL.

    Source: `mindspore.dataset.RandomSampler`.

    Example:
        >>> list(RandomSampler(seed=1).order(10))
        [9, 0, 2, 5, 7, 4, 6, 3, 1, 8]
    """
    return _make(shuffled.RandomSampler, **locals())


def DistributedSampler(  # noqa: N802  # MindSpore's name
    num_shards: int | None = None,
    shard_id: int | None = None,
    shuffle: Shuffle | str | bool = True,
    num_samples: int | None = None,
    offset: int = -1,
    *,
    seed: int | None = None,
    quirks: bool = False,
    partial_size: int = DEFAULT_PARTIAL_SIZE,
    adaptive_threshold: int = DEFAULT_ADAPTIVE_THRESHOLD,
) -> shuffled.DistributedSampler:
    """Deals samples to shards as MindSpore does.

    Args:
        num_shards: as in `samplerkit.DistributedSampler`; so are all others but `seed` and `quirks`.
        shard_id: the shard of this process.
        shuffle: the shuffle mode. True means GLOBAL; for more than 10^8 samples in files, MindSpore then uses
            ADAPTIVE, so give ADAPTIVE for such datasets.
        num_samples: how many samples a shard reads at most.
        offset: -1 pads; over a ConcatDataset it is always 0.
        seed: the seed in [0, 2^32); None for the seed that `set_seed` set.
        quirks: whether to reproduce MindSpore's bugs.
        partial_size: samples in a block of PARTIAL; a million in MindSpore.
        adaptive_threshold: the largest number of samples that ADAPTIVE shuffles GLOBAL.

    Source: `mindspore.dataset.DistributedSampler`.

    Example:
        >>> list(DistributedSampler(2, 0, seed=1).order(10))
        [5, 3, 8, 6, 7]
    """
    return _make(shuffled.DistributedSampler, **locals())


def SubsetRandomSampler(  # noqa: N802  # MindSpore's name
    indices: Sequence[int] | Ids,
    num_samples: int | None = None,
    *,
    seed: int | None = None,
    quirks: bool = False,
) -> subset.SubsetRandomSampler:
    """Reads the listed samples in MindSpore's random order.

    Args:
        indices: as in `samplerkit.SubsetRandomSampler`.
        num_samples: how many of them, from the first.
        seed: the seed in [0, 2^32); None for the seed that `set_seed` set.
        quirks: whether every epoch shuffles with the same seed, as in MindSpore; if False, with seed + epoch.

    Source: `mindspore.dataset.SubsetRandomSampler`.

    Example:
        >>> list(SubsetRandomSampler([9, 7, 5, 3, 1], seed=1).order(10))
        [7, 9, 5, 3, 1]
    """
    return _make(subset.SubsetRandomSampler, **locals())


def WeightedRandomSampler(  # noqa: N802  # MindSpore's name
    weights: Sequence[float] | np.ndarray[Any, Any],
    num_samples: int | None = None,
    replacement: bool = True,
    *,
    seed: int | None = None,
    quirks: bool = False,
) -> shuffled.WeightedRandomSampler:
    """Draws samples by weight as MindSpore does.

    Args:
        weights: as in `samplerkit.WeightedRandomSampler`.
        num_samples: how many draws.
        replacement: whether a sample may be drawn again.
        seed: the seed in [0, 2^32); None for the seed that `set_seed` set.
        quirks: whether every epoch has the same draws, as in MindSpore; if False, draws use seed + epoch.

    Source: `mindspore.dataset.WeightedRandomSampler`.

    Example:
        >>> list(WeightedRandomSampler([1.0] * 10, seed=1).order(10))
        [9, 9, 1, 9, 2, 3, 3, 6, 9, 8]
    """
    return _make(shuffled.WeightedRandomSampler, **locals())


def PKSampler(  # noqa: N802  # MindSpore's name
    num_val: int,
    num_class: int | None = None,
    shuffle: bool = False,
    class_column: str = groups.DEFAULT_COLUMN,
    num_samples: int | None = None,
    *,
    seed: int | None = None,
    quirks: bool = False,
    labels: Sequence[Any] | np.ndarray[Any, Any] | None = None,
) -> groups.PKSampler:
    """Draws samples of each class as MindSpore does.

    Args:
        num_val: as in `samplerkit.PKSampler`.
        num_class: not supported.
        shuffle: whether the classes are in random order, the same in every epoch.
        class_column: the column of the labels in the dataset.
        num_samples: how many samples, from the first.
        seed: the seed in [0, 2^32); None for the seed that `set_seed` set.
        quirks: has no effect here, but must be the same in all samplers of a chain.
        labels: the label of each sample; None to read them from the dataset.

    Source: `mindspore.dataset.PKSampler`.

    Example:
        >>> list(PKSampler(1, labels=[0, 0, 1, 1, 2, 2, 2, 2], seed=7).order(8))
        [0, 2, 7]
    """
    return _make(groups.PKSampler, **locals())


def _make(kind: Callable[..., SamplerT], *, seed: int | None, quirks: Any, **given: Any) -> SamplerT:
    algorithm = MINDSPORE_QUIRKS if arguments.boolean("quirks", quirks) else MINDSPORE
    return kind(**given, seed=get_seed() if seed is None else seed, algorithm=algorithm)


def dataset_sampler(
    num_samples: int | None = None,
    shuffle: Shuffle | str | bool | None = None,
    num_shards: int | None = None,
    shard_id: int | None = None,
    *,
    seed: int | None = None,
    quirks: bool = False,
) -> Sampler:
    """Makes the sampler that `GeneratorDataset(source, shuffle=..., num_shards=...)` would make.

    Args:
        num_samples: how many samples; with a shuffle and without shards, MindSpore draws them with
            replacement.
        shuffle: a mode or a bool; None means True.
        num_shards: the number of shards; None for no shards.
        shard_id: the shard; required with `num_shards`, and only then.
        seed: the seed in [0, 2^32); None for the seed that `set_seed` set.
        quirks: whether to reproduce MindSpore's bugs.

    Raises:
        ArgumentValueError: only one of `num_shards` and `shard_id` is given, or `num_samples` with FILES or
            INFILE.

    Source: the arguments of MindSpore's datasets.

    Example:
        >>> dataset_sampler(shuffle=False)
        SequentialSampler()
    """
    if (num_shards is None) != (shard_id is None):
        raise ArgumentValueError("num_shards and shard_id", "must be given together", (num_shards, shard_id))
    mode = Shuffle.parse(True if shuffle is None else shuffle)
    if mode in (Shuffle.FILES, Shuffle.INFILE) and num_samples is not None:
        raise ArgumentValueError("num_samples", f"cannot be given together with {mode.value}", num_samples)
    if num_shards is not None:
        return DistributedSampler(num_shards, shard_id, mode, num_samples, seed=seed, quirks=quirks)
    if mode is Shuffle.FALSE:
        return SequentialSampler(num_samples=num_samples)
    # MindSpore sets replacement here, and ignores it in the modes that depend on files.
    replacement = num_samples is not None and mode not in FILE_AWARE
    return RandomSampler(replacement, num_samples, mode, seed=seed, quirks=quirks)
