"""The world: which rank of how many this process is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from samplerkit.errors import ArgumentRangeError, WorldError
from samplerkit.order import arguments

MOST_SHARDS = 2**32
"""The largest number of shards: positions and what is added to them stay below 2^63."""


@dataclass(frozen=True)
class World:
    """Which shard of how many this process reads; a plain value.

    Args:
        num_shards: the number of shards, which torch calls world size.
        shard_id: this process's shard in [0, num_shards), which torch calls rank.

    Raises:
        ArgumentTypeError: one of them is no integer.
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
        object.__setattr__(self, "num_shards", arguments.positive("num_shards", self.num_shards, MOST_SHARDS))
        object.__setattr__(self, "shard_id", arguments.integer("shard_id", self.shard_id))
        if not 0 <= self.shard_id < self.num_shards:
            raise ArgumentRangeError("shard_id", f"must be in [0, {self.num_shards})", self.shard_id)

    @classmethod
    def from_mesh(cls, mesh: Any, dimension: str | None = None) -> World:
        """Takes the data-parallel part of a device mesh, whose other ranks share their data.

        Args:
            mesh: a `torch.distributed.DeviceMesh`, or anything with `size()` and `get_local_rank()` that is
                indexed by the name of a dimension.
            dimension: the dimension over which data is dealt; left out, `mesh` has that one only.

        Raises:
            WorldError: the mesh has no such dimension, or this process is not in it.
        """
        try:
            part = mesh if dimension is None else mesh[dimension]
            return cls(part.size(), part.get_local_rank())
        except (KeyError, AttributeError, TypeError, RuntimeError) as error:
            raise WorldError("mesh", f"gives no rank in the dimension {dimension}", mesh) from error

    @property
    def world_size(self) -> int:
        """torch's name for `num_shards`."""
        return self.num_shards

    @property
    def rank(self) -> int:
        """torch's name for `shard_id`."""
        return self.shard_id
