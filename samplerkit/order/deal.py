"""The deal: how an order is handed out to shards.

A `Loader` and the position of a state count by `loading/run/delivery.py`, which deals steps in the same way.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from samplerkit.errors import ArgumentRangeError, CompositionError, WorldError
from samplerkit.order import arguments
from samplerkit.order.algebra import Shard
from samplerkit.order.order import Order

MAX_SHARDS = 2**32
"""The largest number of shards: positions and what is added to them stay below 2^63."""


@dataclass(frozen=True)
class World:
    """Which shard of how many this process reads; a plain value.

    Args:
        num_shards: the number of shards, which torch calls world size.
        shard_id: this process's shard in [0, num_shards), which torch calls rank.

    Raises:
        ArgumentTypeError: one of them is not an integer.
        ArgumentRangeError: one of them is out of range.

    Example:
        >>> World(8, 3).rank
        3
        >>> World()  # one process that reads everything
        World(num_shards=1, shard_id=0)
    """

    num_shards: int = 1
    shard_id: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "num_shards", arguments.positive("num_shards", self.num_shards, MAX_SHARDS))
        object.__setattr__(self, "shard_id", arguments.integer("shard_id", self.shard_id))
        if not 0 <= self.shard_id < self.num_shards:
            raise ArgumentRangeError("shard_id", f"must be in [0, {self.num_shards})", self.shard_id)

    @classmethod
    def from_mesh(cls, mesh: Any, dimension: str | None = None) -> World:
        """Makes a world from the data-parallel dimension of a device mesh.

        Ranks that differ in other dimensions only have the same shard.

        Args:
            mesh: a `torch.distributed.DeviceMesh`, or anything with `size()` and `get_local_rank()` that is
                indexed by the name of a dimension.
            dimension: the name of the dimension; None if `mesh` has no other one.

        Raises:
            WorldError: the mesh has no such dimension, or this process is not in it.
        """
        try:
            part = mesh if dimension is None else mesh[dimension]
            return cls(part.size(), part.get_local_rank())
        except (LookupError, AttributeError, TypeError, RuntimeError) as error:
            raise WorldError("mesh", f"gives no rank in the dimension {dimension}", mesh) from error

    @property
    def world_size(self) -> int:
        """torch's name for `num_shards`."""
        return self.num_shards

    @property
    def rank(self) -> int:
        """torch's name for `shard_id`."""
        return self.shard_id


@dataclass(frozen=True)
class Deal:
    """The arguments of a distributed sampler about shards: a plain value.

    Args:
        num_shards: the number of shards; None takes it from the running job.
        shard_id: the shard of this process; None takes it from the running job.
        offset: -1 gives every shard ceil(N / num_shards) samples, wrapping around; o >= 0 rotates the shards
            by o and repeats no sample.
        num_samples: samples per shard at most; None and 0 for all.
    """

    num_shards: int | None = None
    shard_id: int | None = None
    offset: int = -1
    num_samples: int | None = None

    @property
    def needs_job(self) -> bool:
        """Whether the number of shards or the shard is left to the running job."""
        return self.num_shards is None or self.shard_id is None

    def world(self, job: World | None) -> World:
        """Returns the world with these numbers; those that are None are the job's.

        Args:
            job: the world of the running job; None below another distributed sampler.

        Raises:
            ArgumentRangeError: the shard is not below the number of shards, or the offset is above it.
            CompositionError: a number is missing, and `job` is None.
        """
        if job is None and self.needs_job:
            problem = "is left to the job below another distributed sampler, so that each rank would read"
            problem += " a shard of a shard"
            hint = "set num_shards and shard_id of the inner one"
            raise CompositionError("num_shards", problem, hint=hint)
        job = job or World()
        world = World(
            job.num_shards if self.num_shards is None else self.num_shards,
            job.shard_id if self.shard_id is None else self.shard_id,
        )
        if self.offset > world.num_shards:
            problem = f"must be at most num_shards ({world.num_shards})"
            raise ArgumentRangeError("offset", problem, self.offset)
        return world

    def limit(self, num_shards: int) -> int | None:
        """Returns how many samples all shards together read at most; None for all."""
        # No order is longer than 2^62, and a state has no larger limit.
        return min(self.num_samples * num_shards, arguments.LARGEST) if self.num_samples else None

    def shard(self, undealt: Order, world: World, start: int = 0) -> Order:
        """Returns the part of the undealt order, from position `start` on, that this shard reads."""
        first = (world.shard_id - max(self.offset, 0)) % world.num_shards
        return Shard(undealt, world.num_shards, first, padded=self.offset < 0, start=start)
