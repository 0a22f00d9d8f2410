"""The deal: how an order is handed out to shards."""

from __future__ import annotations

from dataclasses import dataclass

from samplerkit.errors import ArgumentRangeError, CompositionError
from samplerkit.order.algebra import Prefix, Shard
from samplerkit.order.order import Order
from samplerkit.order.world import World


@dataclass(frozen=True)
class Deal:
    """What a distributed sampler says of shards: a plain value.

    Args:
        num_shards: the number of shards; None to ask the running job.
        shard_id: which one is ours; None to ask the running job.
        offset: -1 gives every shard ceil(N / num_shards) samples, wrapping around; o >= 0 rotates the
            shards by o and gives each what there is.
        num_samples: samples a shard at most; None and 0 for all.
    """

    num_shards: int | None = None
    shard_id: int | None = None
    offset: int = -1
    num_samples: int | None = None

    @property
    def asks_the_job(self) -> bool:
        """Whether the number of shards or the shard is left to the running job."""
        return self.num_shards is None or self.shard_id is None

    def world(self, job: World | None) -> World:
        """Completes what was left out from the job's world.

        Raises:
            ArgumentRangeError: shard and number of shards do not fit, or explicit ones contradict `job`.
        """
        if job is None:
            if self.num_shards is None or self.shard_id is None:
                raise CompositionError(
                    "num_shards",
                    "is left to the job below another distributed sampler, so that each rank "
                    "would read a shard of a shard",
                    mend="say num_shards and shard_id of the inner one",
                )
            return World(self.num_shards, self.shard_id)
        world = World(
            job.num_shards if self.num_shards is None else self.num_shards,
            job.shard_id if self.shard_id is None else self.shard_id,
        )
        if self.offset > world.num_shards:
            raise ArgumentRangeError(
                "offset", f"must be at most num_shards ({world.num_shards})", self.offset
            )
        return world

    def limit(self, num_shards: int) -> int | None:
        """Tells how many samples all shards together read at most; None for all."""
        return self.num_samples * num_shards if self.num_samples else None

    def shard(self, undealt: Order, world: World, start: int = 0) -> Order:
        """Gives the part of the undealt order, from position `start` on, that this shard reads."""
        first = (world.shard_id - max(self.offset, 0)) % world.num_shards
        return Shard(undealt, world.num_shards, first, padded=self.offset < 0, start=start)


def limited(order: Order, limit: int | None) -> Order:
    """Cuts an order to its first `limit` positions; None for all."""
    return order if limit is None or limit >= len(order) else Prefix(order, limit)
