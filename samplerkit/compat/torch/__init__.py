"""Drop-ins for torch's samplers: the same indices by default, samplerkit's order by an argument."""

from samplerkit.compat.torch.any_sampler import ShardedSampler, distributed
from samplerkit.compat.torch.distributed_sampler import DistributedSampler

__all__ = ["DistributedSampler", "ShardedSampler", "distributed"]
