"""The second version of the original: two pools."""

from __future__ import annotations

from samplerkit.compat.partially_shuffle.sampler import DistributedSamplerViaLocallyShuffle


class DistributedSamplerViaLocallyShuffleV2(DistributedSamplerViaLocallyShuffle):
    """The same with two pools, so that samples cross the borders of blocks: the original's second version.

    Arguments, methods and errors are those of `DistributedSamplerViaLocallyShuffle`.

    Example:
        >>> import types
        >>> dataset = types.SimpleNamespace(files=["a.npz"])
        >>> DistributedSamplerViaLocallyShuffleV2(dataset, "npz", 1, 0, shuffle_buffer=100).pools
        2
    """

    _default_pools = 2
