"""In which order an epoch is read, and which part of it one worker of one rank reads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, final

import numpy as np
from torch.utils.data import get_worker_info

from samplerkit.loading.job.world import detect_world
from samplerkit.order.algebra import Shard
from samplerkit.order.deal import World
from samplerkit.order.files import LaneWeave
from samplerkit.order.keys import Key
from samplerkit.order.modes import DEFAULT_PARTIAL_SIZE, Shuffle
from samplerkit.order.order import Order
from samplerkit.order.typing import Ids
from samplerkit.samplers.shuffled import DistributedSampler, RandomSampler
from samplerkit.samplers.subset import SequentialSampler

EqualSteps = Literal["pad", "drop"]
"""How all ranks get the same number of samples: the first ones repeated, or the last ones left out."""

AT_ONCE = 4096
"""Ids that are computed in one go."""


@dataclass(frozen=True)
class Seat:
    """Who reads: which worker of which rank.

    Args:
        world: which rank of how many.
        worker: which worker of that rank.
        workers: how many workers each rank has.

    Example:
        >>> Seat(World(2, 1), worker=0, workers=4).number
        4
    """

    world: World
    worker: int = 0
    workers: int = 1

    @classmethod
    def here(cls, world: World | None = None) -> Seat:
        """Asks torch, and the running job where the user does not say the world."""
        worker = get_worker_info()
        found = detect_world() if world is None else world
        return cls(found) if worker is None else cls(found, worker.id, worker.num_workers)

    @property
    def number(self) -> int:
        """Which of all workers of all ranks this is."""
        return self.world.shard_id * self.workers + self.worker

    @property
    def count(self) -> int:
        """How many workers all ranks have."""
        return self.world.num_shards * self.workers


@dataclass(frozen=True)
class Split:
    """How an epoch is split: by rank like cards, and by worker into runs of neighbours.

    The order is woven of as many lanes as there are ranks, so a rank reads one lane: files that follow one
    another. A run of it is a worker's. No sample is read twice, and none is left out, unless `equal_steps`
    says so.

    Args:
        equal_steps: an `EqualSteps`; None for each sample once: ranks may differ by one sample then.
        block: the samples of a batch: where one worker ends and the next begins is a border of batches.

    Example:
        >>> from samplerkit.order.sequences import Range
        >>> seats = [Seat(World(2, rank), worker, 2) for rank in range(2) for worker in range(2)]
        >>> [[ids.tolist() for ids in Split().ids(Range(0, 7), seat)] for seat in seats]
        [[[0, 2]], [[4, 6]], [[1, 3]], [[5]]]
    """

    equal_steps: str | None = None
    block: int = 1

    def rows_of_rank(self, total: int, world: World) -> int:
        """Returns how many samples of `total` a rank reads."""
        least, more = divmod(total, world.num_shards)
        return least + {"pad": more > 0, "drop": False}.get(self.equal_steps or "", world.shard_id < more)

    def rows(self, total: int, seat: Seat, *, never_none: bool = False) -> range:
        """Returns the rows of its rank that a worker reads.

        Args:
            total: the samples of the epoch.
            seat: who reads.
            never_none: whether one for whom there is nothing reads what its rank reads.
        """
        of_rank = self.rows_of_rank(total, seat.world)
        starts = LaneWeave(-(-of_rank // self.block), seat.workers).starts * self.block
        first, end = starts[seat.worker : seat.worker + 2].tolist()
        rows = range(min(first, of_rank), min(end, of_rank))
        return rows if rows or not never_none else range(of_rank)

    def ids(
        self,
        order: Order,
        seat: Seat,
        start: int = 0,
        *,
        never_none: bool = False,
        at_once: int = AT_ONCE,
    ) -> Iterator[Ids]:
        """Yields the ids that a worker reads, some at a time.

        Args:
            order: the undealt order of the epoch.
            seat: who reads.
            start: how many of them to leave out at the beginning.
            never_none: as for `rows`.
            at_once: how many.
        """
        world = seat.world
        mine = Shard(order, world.num_shards, world.shard_id, padded=self.equal_steps == "pad")
        rows = self.rows(len(order), seat, never_none=never_none)[start:]
        for first in range(rows.start, rows.stop, at_once):
            yield mine[first : min(first + at_once, rows.stop)]


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
        """Returns the order of all ranks together."""
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
        """Returns the order of shards that cannot be read at any place."""
        sampler = RandomSampler(seed=self.seed) if self.shards or self.window else SequentialSampler()
        return sampler.order(count, epoch, world=World())

    def draws(self, seat: int, epoch: int, role: str) -> Callable[[int], np.random.Generator]:
        """Returns the generators of what cannot be computed: one for each place in the pipeline.

        Args:
            seat: which of all workers of all ranks draws.
            epoch: the epoch.
            role: what for.
        """
        key = Key(self.seed, epoch, 0, role)
        return lambda place: np.random.Generator(np.random.Philox(key=key.words(2, seat, place)))
