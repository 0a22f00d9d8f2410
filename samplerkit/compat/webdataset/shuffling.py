"""In which order an epoch is read."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from samplerkit.order.keys import Key
from samplerkit.order.order import Order
from samplerkit.order.shuffle import DEFAULT_PARTIAL_SIZE, Shuffle
from samplerkit.order.world import World
from samplerkit.samplers.distributed import DistributedSampler
from samplerkit.samplers.random import RandomSampler
from samplerkit.samplers.sequential import SequentialSampler


@final
@dataclass(frozen=True)
class Shuffling:
    """How a dataset is shuffled.

    Args:
        seed: of the order, in [0, 2^64).
        shards: whether the shards are read in a random order.
        window: samples that are shuffled among themselves; 0 for no shuffle within shards.
        lanes: into how many lanes the order is woven; None for the number of ranks.

    Example:
        >>> import samplerkit as sk
        >>> order = Shuffling(seed=7, shards=True).order(sk.Layout([3, 3, 3]), 0, World(1, 0))
        >>> sorted(order) == list(range(9)), order[0] % 3, order[1] - order[0]
        (True, 0, 1)
    """

    seed: int = 0
    shards: bool = False
    window: int = 0
    lanes: int | None = None

    @property
    def mode(self) -> Shuffle:
        """The shuffle mode: PARTIAL for a window, FILES for shards alone."""
        if self.window:
            return Shuffle.PARTIAL
        return Shuffle.FILES if self.shards else Shuffle.FALSE

    def order(self, dataset: Any, epoch: int, world: World) -> Order:
        """Gives the order of all ranks together."""
        # Lanes also where nothing is shuffled: so each rank reads shards of its own.
        sampler = DistributedSampler(
            world.num_shards,
            world.shard_id,
            shuffle=self.mode,
            seed=self.seed,
            partial_size=self.window or DEFAULT_PARTIAL_SIZE,
            lanes=self.lanes or world.num_shards,
        )
        return sampler.undealt_order(dataset, epoch)

    def of_shards(self, count: int, epoch: int) -> Order:
        """Gives the order of shards that cannot be read at any place."""
        sampler = RandomSampler(seed=self.seed) if self.shards or self.window else SequentialSampler()
        return sampler.order(count, epoch, world=World())

    def draws(self, seat: int, epoch: int, role: str) -> Callable[[int], np.random.Generator]:
        """Gives the generators of what cannot be computed: one for each place in the pipeline.

        Args:
            seat: which of all workers of all ranks draws.
            epoch: the epoch.
            role: what for.
        """
        key = Key(self.seed, epoch, 0, role)
        return lambda place: np.random.Generator(np.random.Philox(key=key.words(2, seat, place)))


def in_buffer(items: Iterator[Any], generator: np.random.Generator, size: int) -> Generator[Any, None, None]:
    """Shuffles a stream: each item that is given is drawn from as many as the buffer holds."""
    held: list[Any] = []
    for item in items:
        if len(held) < size:
            held.append(item)
            continue
        place = int(generator.integers(size))
        yield held[place]
        held[place] = item
    for place in generator.permutation(len(held)).tolist():
        yield held[place]


def by_chance(items: Iterator[Any], generator: np.random.Generator, p: float) -> Iterator[Any]:
    """Keeps each item of a stream with probability `p`."""
    return (item for item in items if generator.random() < p)
