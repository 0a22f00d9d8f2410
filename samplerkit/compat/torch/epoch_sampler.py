"""Base classes of the drop-ins for torch's samplers: the share of a rank, the epoch and the state."""

import warnings
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

import numpy as np
import torch.utils.data

from samplerkit.errors import StateError
from samplerkit.loading.agreement import agree
from samplerkit.loading.iteration import FunctionCursor, Iteration
from samplerkit.loading.state.state import Place, State
from samplerkit.loading.torch_sampler import EpochByCursor, TorchNames
from samplerkit.loading.world import detect_world, require_same_world
from samplerkit.order import arguments
from samplerkit.order.algebra import Shard
from samplerkit.order.caching import cached_property
from samplerkit.order.deal import Deal, World
from samplerkit.order.order import Order
from samplerkit.order.sequences import Table
from samplerkit.order.typing import Ids


def part_of_order(part: range, undealt: Order) -> Order:
    """Returns a part of an order; ids are computed when they are read."""
    return Shard(undealt, part.step, part.start, length=len(part))


def part_of_array(part: range, undealt: Ids) -> Order:
    """Returns a part of an array of ids as a copy, so that the array can be freed."""
    within = undealt[part.start : part.stop : part.step]
    wrapped = np.array(part[within.size :])
    return Table(np.append(within, undealt[wrapped % len(undealt)]) if wrapped.size else within)


def permuted_by_torch(size: int, seed: int) -> Ids:
    """Returns torch's own permutation, from a new generator with this seed."""
    generator = torch.Generator().manual_seed(seed)
    shuffled: Ids = torch.randperm(size, generator=generator).numpy()
    return shuffled


Item_co = TypeVar("Item_co", covariant=True)


class GivenRank(TorchNames):
    """The rank given by two arguments, or taken from the running job at first use."""

    _given: Deal

    def _set_rank(self, num_replicas: Any, rank: Any) -> None:
        ranks = arguments.optional_integer("num_replicas", num_replicas)
        self._given = Deal(ranks, arguments.optional_integer("rank", rank))
        if not self._given.needs_job:
            self._given.world(None)

    @cached_property
    def world(self) -> World:
        """The rank of this process and the number of ranks; the running job is asked once."""
        return self._current_world()

    def _current_world(self) -> World:
        return self._given.world(detect_world() if self._given.needs_job else None)

    def _require_still(self) -> None:
        require_same_world(self.world, self._current_world)


class ResumableSampler(EpochByCursor, torch.utils.data.DistributedSampler[Item_co]):
    """A torch sampler with a state: the position of all ranks together in an epoch.

    It subclasses torch's `DistributedSampler`, so that trainers that replace other samplers do not replace
    it. Subclasses make the cursor, and implement `_size` and `_identity`.
    """

    dataset: Any
    drop_last: bool
    seed: int

    @property
    @abstractmethod
    def world(self) -> World:
        """The rank of this process and the number of ranks."""

    @abstractmethod
    def _size(self, epoch: int) -> int:
        """Returns the number of positions of all ranks in an epoch, without repeated ones."""

    def _end(self, epoch: int, start: int) -> int:
        """Returns the position at which ranks that began at `start` are done, including repeated ones."""
        return self._part_of(self._size(epoch), start).stop

    def _part_of(self, size: int, start: int = 0) -> range:
        """Returns those of `size` positions that this rank reads: start + rank, start + rank + W, ...

        W is the number of ranks. All ranks read equally many: the positions after `start` are rounded up to a
        multiple of W, or down. Positions beyond the number of samples wrap around, as often as needed, as in
        torch's padding.
        """
        remaining, ranks = max(0, size - start), self.world.num_shards
        rows = remaining // ranks if self.drop_last else -(-remaining // ranks)
        return range(start + self.world.shard_id, start + rows * ranks, ranks)

    @abstractmethod
    def _identity(self, epoch: int) -> dict[str, Any]:
        """Returns the fields of a state that describe this sampler: algorithm, lanes, dataset and recipe."""

    def _state(self, place: Place) -> State:
        tail = "drop" if self.drop_last else "pad"
        run: dict[str, Any] = {"seed": (self.seed,), "limit": None, "tail": tail, "num_shards": None}
        return State(**place._asdict(), **run, **self._identity(place.epoch))

    def _require_agreement(self, place: Place, seconds: float, **others: Any) -> None:
        """Compares, through the process group's store, the orders that the ranks of the job begin to read.

        If ranks list or draw samples differently, some would be read twice and others never; if a shard has
        no rank, its samples would never be read. A rank with one shard is not compared.

        Args:
            place: where this rank begins.
            seconds: how long to wait for the other ranks.
            others: further values that must be equal on all ranks.

        Raises:
            DisagreementError: another rank begins another order, or no rank reads some shard.
        """
        begins = {"seed": self.seed, "drop_last": self.drop_last, **place._asdict()}
        agree(self.world, seconds, lambda: {**begins, **self._identity(place.epoch), **others})

    def _reached(self, epoch: int, start: int, items: int) -> tuple[int, bool]:
        position = start + items * self.world.num_shards
        # At the beginning the size is not needed; computing it may require a draw.
        return position, position > 0 and position >= min(self._size(epoch), self._end(epoch, start))

    def _start_of(self, iteration: Iteration) -> int:
        return self._size(iteration.epoch) if iteration.is_spent else iteration.start

    def state_dict(self) -> dict[str, Any]:
        """Returns the state after the items that were yielded, for torchdata's `StatefulDataLoader`.

        That loader keeps the state of each batch. A plain DataLoader does not: its workers prefetch, so this
        state is ahead of the batches that the loop has received.

        After the last item of an epoch, the state is the beginning of the next epoch; or of the same epoch if
        `set_epoch` was never called, since that one is read next.
        """
        return self._state(self._cursor.place()).to_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Makes the next iteration resume at a saved state, on any number of ranks.

        If the state was saved at the end of an epoch, an iteration of that epoch, set before or after this
        call, yields nothing.

        Raises:
            StateError: the state is damaged, of a newer schema, or of another run.
        """
        saved = State.from_dict(state)
        saved.require_equal(self._state(Place(saved.epoch, 0)))
        self._load_fields(saved)
        size = self._size(saved.epoch)
        if not 0 <= saved.position <= size:
            raise StateError("position", f"is outside of an order of {size}", saved.position)
        self._cursor.load(saved.place)

    def _load_fields(self, saved: State) -> None:
        """Loads further fields of a state; there are none here."""


class EpochSampler(ResumableSampler[Item_co]):
    """A sampler that reads the same epoch until `set_epoch` is called; subclasses implement `_items`."""

    _has_warned = False

    def _new_cursor(self) -> FunctionCursor:
        return FunctionCursor(self._reached, advances=False)

    @abstractmethod
    def _items(self, epoch: int, start: int) -> Iterator[list[Any]]:
        """Returns the items of this rank in an epoch, from a position on, in lists."""

    @property
    def yielded(self) -> int:
        """The number of this rank's items of the epoch that were yielded: torchdata's name. Read-only."""
        return self._cursor.current.start // self.world.num_shards + self._cursor.current.taken

    @property
    def next_yielded(self) -> int | None:
        """The value of `yielded` at which the next iteration resumes a loaded state; None without one."""
        place = self._cursor.current
        return place.start // self.world.num_shards if place.start > 0 and not place.is_open else None

    def __iter__(self) -> Iterator[Item_co]:
        # As in torch, an iteration belongs to the epoch that is set when it is made, not when it is read.
        return self._read(self._cursor.upcoming)

    def _read(self, upcoming: Iteration) -> Iterator[Item_co]:
        self._warn_if_repeated(upcoming)
        chunks = self._items(upcoming.epoch, self._start_of(upcoming))
        iteration = self._cursor.begin(upcoming)
        for chunk in chunks:
            for item in chunk:
                iteration.taken += 1
                yield item
        self._cursor.end(iteration, at_its_end=True)

    def _warn_if_repeated(self, upcoming: Iteration) -> None:
        is_repeated = upcoming.ended == upcoming.epoch and not (upcoming.is_spent or upcoming.is_loaded)
        if not is_repeated or self._has_warned or not self.shuffle:
            return
        self._has_warned = True
        problem = f"{type(self).__name__} reads epoch {upcoming.epoch} again, in the same order as before"
        hint = "call sampler.set_epoch(epoch) before each epoch"
        warnings.warn(f"{problem}; {hint}", UserWarning, stacklevel=3)
