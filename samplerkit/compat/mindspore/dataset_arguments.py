"""The sampler that a MindSpore dataset makes of its own arguments."""

from __future__ import annotations

from samplerkit.compat.mindspore.samplers import DistributedSampler, RandomSampler
from samplerkit.errors import ArgumentValueError
from samplerkit.order.modes import FILE_AWARE, Shuffle
from samplerkit.samplers.base import Sampler
from samplerkit.samplers.subset import SequentialSampler


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
        shard_id: the shard; given if and only if `num_shards` is.
        seed: in [0, 2^32); None for the seed that was set.
        quirks: whether to do as well what is a bug of MindSpore's.

    Raises:
        ArgumentValueError: only one of `num_shards` and `shard_id` is given, or `num_samples` with FILES or
            INFILE.

    Source: the arguments of MindSpore's datasets.

    Example:
        >>> dataset_sampler(shuffle=False)
        SequentialSampler(start_index=None, num_samples=None)
    """
    if (num_shards is None) != (shard_id is None):
        raise ArgumentValueError("num_shards and shard_id", "must be given together", (num_shards, shard_id))
    mode = Shuffle.parse(True if shuffle is None else shuffle)
    if mode in (Shuffle.FILES, Shuffle.INFILE) and num_samples is not None:
        raise ArgumentValueError("num_samples", f"cannot be said together with {mode.value}", num_samples)
    if num_shards is not None:
        return DistributedSampler(num_shards, shard_id, mode, num_samples, seed=seed, quirks=quirks)
    if mode is Shuffle.FALSE:
        return SequentialSampler(num_samples=num_samples)
    # MindSpore asks for replacement here and forgets about it in the modes that know files.
    replacement = num_samples is not None and mode not in FILE_AWARE
    return RandomSampler(replacement, num_samples, mode, seed=seed, quirks=quirks)
