"""Samplers as users write them, in each of the ways there are."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from samplerkit.order.layout import Layout
from samplerkit.order.typing import Ids
from samplerkit.samplers.base import Sampler
from samplerkit.samplers.chain import Context


class EvenOdd(Sampler):
    """A user's sampler with `draw`."""

    def draw(self, layout: Layout, context: Context) -> Ids:
        """Returns the even samples, then the odd ones."""
        ids = np.arange(len(layout))
        return np.concatenate([ids[::2], ids[1::2]])[: self.num_samples or None]


class Rotated(Sampler):
    """A user's sampler with `draw` and randomness from a key: a random rotation, as a list."""

    def draw(self, layout: Layout, context: Context) -> list[int]:
        """Returns the samples from a random one on, wrapping around."""
        start = int(context.key(seed=3, role="rotated").words(1)[0]) % max(1, len(layout))
        ids = list(range(len(layout)))
        return ids[start:] + ids[:start]


class Backwards(Sampler):
    """A user's sampler in MindSpore's way."""

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.dataset_size - 1, -1, -1))


class Turning:
    """An iterable with `set_epoch` and without a length, as torch's samplers have it."""

    def __init__(self, ids: list[int]) -> None:
        self.ids = ids
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch, by which the ids turn."""
        self.epoch = epoch

    def __iter__(self) -> Iterator[int]:
        turn = self.epoch % len(self.ids)
        return iter(self.ids[turn:] + self.ids[:turn])
