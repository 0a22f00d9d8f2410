"""The order in which a dataset is read when no sampler says another one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from samplerkit.order.layout import Layout
from samplerkit.order.permutation import CHUNK
from samplerkit.order.shuffle import Shuffle
from samplerkit.order.typing import Ids
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
    return _windowed(window)


def default_ids(layout: Layout, window: int, epoch: int) -> Iterator[Ids]:
    """Gives the ids of a dataset's default order, for an iteration without a loader.

    Args:
        layout: of the dataset.
        window: its `default_partial_size`.
        epoch: from 0.

    Example:
        >>> sorted(id for ids in default_ids(Layout([3, 2]), 2, 0) for id in ids.tolist())
        [0, 1, 2, 3, 4]
    """
    return _windowed(window).order(layout, epoch).chunks(CHUNK)


def _windowed(window: int) -> Sampler:
    return RandomSampler(shuffle=Shuffle.PARTIAL, partial_size=window)
