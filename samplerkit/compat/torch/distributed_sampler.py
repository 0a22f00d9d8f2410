"""A drop-in for torch's `DistributedSampler`: the same indices in less memory, or samplerkit's order."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
import torch.distributed

from samplerkit.compat.torch.epoch_sampler import (
    EpochSampler,
    part_of_array,
    part_of_order,
    permuted_by_torch,
)
from samplerkit.errors import ArgumentRangeError, ArgumentTypeError, ArgumentValueError, DatasetError
from samplerkit.loading.state.identity import describe_chain, describe_dataset
from samplerkit.order import arguments
from samplerkit.order.caching import Latest
from samplerkit.order.deal import World
from samplerkit.order.keys import ALGORITHM
from samplerkit.order.order import Order
from samplerkit.order.permutation import CHUNK
from samplerkit.order.sequences import Range
from samplerkit.samplers.shuffled import DistributedSampler as Recipe

REPLAY = "torch"
"""The id of the algorithm that reproduces torch's indices."""


class DistributedSampler(EpochSampler[int]):
    """Replaces torch's `DistributedSampler`: yields the indices of one rank's share of a dataset.

    With `algorithm="torch"` the indices are identical to torch's, for every size, rank, seed and epoch.
    torch's permutation is drawn when the first index is read, and only this rank's share of it is kept. With
    `algorithm="samplerkit-1"` no permutation is drawn: the order is that of
    `samplerkit.DistributedSampler(seed=seed)`, in constant memory.

    As in torch, the epoch does not change until `set_epoch` is called, with either algorithm. If a shuffled
    epoch that was read to its end is read again because `set_epoch` was not called, this warns once.

    Args:
        dataset: anything with a length.
        num_replicas: the number of ranks; None takes it from the process group.
        rank: this process's rank; None takes it from the process group.
        shuffle: whether to shuffle.
        seed: the seed, the same on all ranks; in [-2^63, 2^64) for `torch`, in [0, 2^64) for `samplerkit-1`.
        drop_last: whether the remainder, if the samples do not divide evenly by the ranks, is dropped; if
            False, the first samples of the order are repeated to fill it up.
        algorithm: `torch` or `samplerkit-1`.

    Raises:
        ArgumentTypeError: an argument has the wrong type.
        ArgumentValueError: `rank`, `seed` or `algorithm` is out of range, or a number is left to the
            process group and none is initialized.
        DatasetError: when it is read: the length of the dataset has changed so that torch would also fail.

    Source: `torch.utils.data.distributed.DistributedSampler`.

    Example:
        >>> sampler = DistributedSampler(range(5), num_replicas=2, rank=1, seed=7)
        >>> torchs = torch.utils.data.DistributedSampler(range(5), num_replicas=2, rank=1, seed=7)
        >>> list(sampler) == list(torchs)
        True
        >>> large = DistributedSampler(range(10**15), 8, 3, seed=7, algorithm="samplerkit-1")
        >>> large.order[10**12 : 10**12 + 256].shape
        (256,)
    """

    def __init__(
        self,
        dataset: Any,
        num_replicas: int | None = None,
        rank: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
        *,
        algorithm: str = REPLAY,
    ) -> None:
        self.algorithm = arguments.choice("algorithm", algorithm, (REPLAY, ALGORITHM))
        world = _world(num_replicas, rank)
        if not hasattr(dataset, "__len__"):
            raise ArgumentTypeError("dataset", "must have a length", dataset)
        self._cursor = self._new_cursor()  # before torch's constructor, which sets the epoch
        self._descriptions = Latest[str]()
        check_seed = arguments.seed if self.algorithm == ALGORITHM else _checked_seed
        number = check_seed("seed", arguments.integer("seed", seed))
        super().__init__(dataset, world.num_shards, world.shard_id, shuffle, number, drop_last)
        # torch divides in floating point, with the same result below 2^53 samples.
        self.num_samples = len(self._part_of(len(dataset)))
        self.total_size = self.num_samples * world.num_shards

    def _checked_epoch(self, epoch: Any) -> int:
        # torch accepts negative epochs, since it only adds them to the seed.
        return arguments.integer("epoch", epoch) if self.algorithm == REPLAY else arguments.epoch(epoch)

    @property
    def order(self) -> Order:
        """The indices of the next iteration, with random access, from the position of a loaded state on.

        With torch's algorithm, each access draws the whole permutation, and keeps this rank's share.
        """
        upcoming = self._cursor.upcoming
        return self._order_from(upcoming.epoch, self._start_of(upcoming))

    def _order_from(self, epoch: int, start: int) -> Order:
        size, part = len(self.dataset), self._part(start)
        if not self.shuffle:
            return part_of_order(part, Range(0, size))
        if self.algorithm == REPLAY:
            seed = _checked_seed("seed and epoch", self.seed + epoch)
            return part_of_array(part, permuted_by_torch(size, seed))
        return part_of_order(part, Recipe(1, 0, seed=self.seed).undealt_order(size, epoch))

    def _part(self, start: int) -> range:
        size = len(self.dataset)
        if start:
            return self._part_of(size, start)
        # torch fixes the total size when the sampler is made. It then accepts fewer samples (they are
        # repeated) or, with drop_last, more (they are left out).
        fits = size >= self.total_size if self.drop_last else size <= self.total_size
        if not fits or (size == 0 and self.total_size):
            problem = f"has another length than when the sampler was made, for {self.total_size} samples"
            raise DatasetError("dataset", problem, size, hint="make a new sampler")
        return range(self.rank, self.total_size, self.num_replicas)

    @property
    def world(self) -> World:
        return World(self.num_replicas, self.rank)

    def _size(self, epoch: int) -> int:
        return len(self.dataset)

    def _end(self, epoch: int, start: int) -> int:
        # As in torch, the total size of whole epochs is the one when the sampler was made.
        return super()._end(epoch, start) if start else self.total_size

    def _items(self, epoch: int, start: int) -> Iterator[list[Any]]:
        return (chunk.tolist() for chunk in self._order_from(epoch, start).chunks(CHUNK))

    def _identity(self, epoch: int) -> dict[str, Any]:
        # Computed once per length, since a state may be saved with each batch.
        dataset = self._descriptions.get(len(self.dataset), partial(describe_dataset, self.dataset))
        # The description of samplerkit's own sampler: a `Loader` or a `TorchSampler` can load the state.
        recipe = Recipe(self.num_replicas, self.rank, shuffle=bool(self.shuffle))
        names = {"dataset": dataset, "sampler": describe_chain(recipe)}
        return {"algorithm": self.algorithm, "lanes": self.num_replicas, **names}


def _checked_seed(place: str, number: int) -> int:
    if not -(2**63) <= number < 2**64:
        raise ArgumentValueError(place, "must be, also added together, in [-2^63, 2^64)", number)
    return number


def _world(num_replicas: Any, rank: Any) -> World:
    """Checks the two numbers; those that are None come from the process group, as in torch."""
    group = torch.distributed
    if (num_replicas is None or rank is None) and not (group.is_available() and group.is_initialized()):
        place = "num_replicas" if num_replicas is None else "rank"
        hint = "initialise it first, or give num_replicas and rank"
        raise ArgumentValueError(place, "comes from the process group, but none is initialised", hint=hint)
    ranks = arguments.integer(
        "num_replicas", group.get_world_size() if num_replicas is None else num_replicas
    )
    number = arguments.integer("rank", group.get_rank() if rank is None else rank)
    try:
        return World(ranks, number)
    except ArgumentRangeError:
        raise ArgumentValueError("rank", f"Invalid rank, must be in [0, {ranks})", number) from None
