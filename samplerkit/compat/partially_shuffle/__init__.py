"""A drop-in for both samplers of Microsoft's PartiallyShuffleDistributedSampler."""

from samplerkit.compat.partially_shuffle.sampler import (
    DistributedSamplerViaLocallyShuffle,
    DistributedSamplerViaLocallyShuffleV2,
)

__all__ = ["DistributedSamplerViaLocallyShuffle", "DistributedSamplerViaLocallyShuffleV2"]
