"""The order in which a dataset is read when no sampler says another one."""

from __future__ import annotations

from typing import Any

from samplerkit.order.shuffle import Shuffle
from samplerkit.samplers.base import Sampler
from samplerkit.samplers.random import RandomSampler
from samplerkit.samplers.sequential import SequentialSampler


def default_sampler(dataset: Any) -> Sampler:
    """Gives the sampler that a dataset asks for.

    Args:
        dataset: where it has `default_partial_size`, an integer, as a tar dataset has after
            `.shuffle(size)`, it is read PARTIAL with blocks of that size; else as it stands.

    Example:
        >>> default_sampler([1, 2, 3])
        SequentialSampler(start_index=None, num_samples=None)
    """
    window = getattr(dataset, "default_partial_size", None)
    if window is None:
        return SequentialSampler()
    return RandomSampler(shuffle=Shuffle.PARTIAL, partial_size=window)
