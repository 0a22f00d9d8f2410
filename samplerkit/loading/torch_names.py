"""torch's names for the numbers of a distributed sampler, which trainers read."""

from __future__ import annotations

from abc import ABC, abstractmethod

from samplerkit.order.world import World


class TorchNames(ABC):
    """What torch's `DistributedSampler` has as plain numbers, asked for when somebody wants to know them.

    It stands in front of torch's class, whose constructor is not called: that asks for a process group.
    """

    @property
    @abstractmethod
    def world(self) -> World:
        """Which shard of how many this process reads."""

    @abstractmethod
    def __len__(self) -> int: ...

    @property
    def num_replicas(self) -> int:
        """torch's name for the number of shards."""
        return self.world.num_shards

    @property
    def rank(self) -> int:
        """torch's name for the shard."""
        return self.world.shard_id

    @property
    def num_samples(self) -> int:
        """torch's name for the number of samples of this shard."""
        return len(self)

    @property
    def total_size(self) -> int:
        """torch's name for the number of samples of all shards, repeats included."""
        return self.num_samples * self.num_replicas
