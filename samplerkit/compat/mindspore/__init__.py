"""MindSpore's samplers by their own names: same arguments, same seed, same ids.

Example:
    >>> from samplerkit.compat import mindspore as ds
    >>> ds.config.set_seed(7)
    >>> list(ds.DistributedSampler(num_shards=2, shard_id=0).order(10))
    [3, 0, 4, 1, 9]
"""

from samplerkit.compat.mindspore import config
from samplerkit.compat.mindspore.config import get_seed, set_seed
from samplerkit.compat.mindspore.samplers import (
    DistributedSampler,
    PKSampler,
    RandomSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
    dataset_sampler,
)
from samplerkit.order.modes import Shuffle
from samplerkit.samplers.base import Sampler
from samplerkit.samplers.subset import IterSampler, SequentialSampler, SubsetSampler

__all__ = [
    "DistributedSampler",
    "IterSampler",
    "PKSampler",
    "RandomSampler",
    "Sampler",
    "SequentialSampler",
    "Shuffle",
    "SubsetRandomSampler",
    "SubsetSampler",
    "WeightedRandomSampler",
    "config",
    "dataset_sampler",
    "get_seed",
    "set_seed",
]
