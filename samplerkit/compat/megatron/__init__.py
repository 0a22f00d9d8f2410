"""Reproduces Megatron-LM's pretraining order exactly, so that a run of Megatron can be resumed here.

Example:
    >>> from samplerkit.compat import megatron
    >>> resumed = megatron.loader(range(16), 2, 2, consumed_samples=4)
    >>> [batch.tolist() for batch in resumed][:2]
    [[4, 6], [5, 7]]
"""

from samplerkit.compat.megatron.dataset import MegatronDataset, compare_cache
from samplerkit.compat.megatron.samplers import (
    MegatronPretrainingRandomSampler,
    MegatronPretrainingSampler,
    loader,
    micro_batches,
)

__all__ = [
    "MegatronDataset",
    "MegatronPretrainingRandomSampler",
    "MegatronPretrainingSampler",
    "compare_cache",
    "loader",
    "micro_batches",
]
