"""Drop-ins for torch's samplers: the same indices first, the better order when you say so."""

from samplerkit.compat.torch.any_sampler import ShardedSampler, distributed
from samplerkit.compat.torch.distributed_sampler import DistributedSampler

__all__ = ["DistributedSampler", "ShardedSampler", "distributed"]
