"""torch's names, by which trainers look for the numbers of a sampler and for a way to set its epoch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Protocol, final

from samplerkit.loading.cursor import Cursor
from samplerkit.order import arguments
from samplerkit.order.deal import World


class TorchNames(ABC):
    """What torch's `DistributedSampler` has as plain numbers, computed when they are read.

    It comes before torch's class in the order of bases, whose constructor is not called: that asks for a
    process group.
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


class EpochByCursor:
    """The epoch of a sampler for torch, by its cursor; as with torch's own, it can be assigned too."""

    _cursor: Cursor

    @property
    def epoch(self) -> int:
        """The current epoch: the one being read, or the one that the next iteration reads."""
        return self._cursor.epoch

    @epoch.setter
    def epoch(self, epoch: int) -> None:
        self._cursor.go_to(epoch)

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch that the next iteration reads; the current one keeps the position of a loaded state.

        Raises:
            ArgumentTypeError: no integer.
            ArgumentValueError: out of range.
        """
        self._cursor.set_epoch(self._checked_epoch(epoch))

    def _checked_epoch(self, epoch: int) -> int:
        return arguments.epoch(epoch)


class HasEpochs(Protocol):
    """What has `set_epoch`."""

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch that the next iteration reads."""


@final
@dataclass(frozen=True)
class ForTrainers:
    """Leads trainers that set the epoch of samplers to a loader: Lightning to `loader.batch_sampler.sampler`.

    Args:
        sampler: the loader.
    """

    sampler: HasEpochs

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch that the next iteration reads."""
        self.sampler.set_epoch(epoch)
