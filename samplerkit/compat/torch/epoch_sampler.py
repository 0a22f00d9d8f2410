"""What torch's samplers of ours share: an epoch that stays until it is set, and a state."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import torch.utils.data

from samplerkit.errors import StateError
from samplerkit.loading.state import State
from samplerkit.order import arguments
from samplerkit.order.world import World

Item_co = TypeVar("Item_co", covariant=True)

Opened = tuple[int, Iterator[list[Any]]]
"""How many items an iteration yields, and the items in lists."""


class EpochSampler(torch.utils.data.DistributedSampler[Item_co]):
    """A torch sampler that reads one epoch until `set_epoch` names another one, and can be resumed.

    It is a torch `DistributedSampler`, so that trainers which replace other samplers leave it alone.
    Subclasses say what an epoch holds: `_size`, `_open` and `_state`.
    """

    dataset: Any
    epoch: int
    drop_last: bool
    _start = 0
    _yielded = 0
    _count = 0
    _is_over = False
    _was_told = False
    _read_to_its_end: int | None = None
    _has_warned = False
    _iteration: object | None = None

    @property
    @abstractmethod
    def world(self) -> World:
        """Which rank of how many this process is."""

    @abstractmethod
    def _size(self, epoch: int) -> int:
        """Tells how many positions the ranks share in an epoch, repeats not counted."""

    @abstractmethod
    def _open(self, start: int) -> Callable[[], Opened]:
        """Fixes what an iteration of the current epoch reads from a position on; calling it reads."""

    @abstractmethod
    def _state(self, epoch: int, position: int) -> State:
        """Describes this sampler at a position of an epoch."""

    @property
    @abstractmethod
    def _is_shuffled(self) -> bool:
        """Whether two epochs may differ."""

    @property
    def yielded(self) -> int:
        """How many of this rank's items of the epoch were handed out: torchdata's name. It cannot be set."""
        return self._start // self.world.num_shards + self._yielded

    @property
    def next_yielded(self) -> int | None:
        """What `yielded` is where the next iteration goes on with a loaded state; None without one."""
        is_loaded = self._start > 0 and self._iteration is None
        return self._start // self.world.num_shards if is_loaded else None

    def __iter__(self) -> Iterator[Item_co]:
        # As in torch, an iteration belongs to the epoch that is set when it is made, not when it is read.
        start = 0 if self._yielded else self._start
        return self._read(self.epoch, start, self._open(start))

    def _read(self, epoch: int, start: int, read: Callable[[], Opened]) -> Iterator[Item_co]:
        self._warn_of_a_repeated(epoch)
        count, chunks = read()
        iteration = self._iteration = object()
        self._start, self._yielded, self._count, self._is_over = start, 0, count, False
        for chunk in chunks:
            for item in chunk:
                # An older iteration that somebody still holds must not count for a newer one.
                if self._iteration is iteration:
                    self._yielded += 1
                yield item
        if self._iteration is iteration:
            self._start = self._yielded = 0
            self._is_over = True
            self._read_to_its_end = epoch

    def _warn_of_a_repeated(self, epoch: int) -> None:
        if self._read_to_its_end != epoch or self._has_warned or not self._is_shuffled:
            return
        self._has_warned = True
        warnings.warn(
            f"{type(self).__name__} reads epoch {epoch} again, in the same order as before, since nobody "
            "called set_epoch; call sampler.set_epoch(epoch) before each epoch",
            UserWarning,
            stacklevel=3,
        )

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch that the next iteration reads; the current one keeps the position of a loaded state.

        Raises:
            ArgumentTypeError: no integer.
            ArgumentValueError: out of range.
        """
        epoch = self._checked_epoch(epoch)
        if epoch != self.epoch or self._is_all:
            self._start, self._yielded, self._iteration = 0, 0, None
        self.epoch, self._is_over, self._was_told = epoch, False, True
        self._read_to_its_end = None

    def _checked_epoch(self, epoch: Any) -> int:
        return arguments.epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """Gives the state after the items that were handed out, for torchdata's `StatefulDataLoader`.

        That loader keeps the state that belongs to each batch. A plain DataLoader does not: its workers take
        items ahead of what the loop has received, so there this state is ahead too.

        After the last item of an epoch, the state is the beginning of the next one; of the same one if
        `set_epoch` was never called, since that is what comes next then.
        """
        position = self._start + self._yielded * self.world.num_shards
        if self._is_over or self._is_all or (position and position >= self._size(self.epoch)):
            return self._state(self.epoch + self._was_told, 0).to_dict()
        return self._state(self.epoch, position).to_dict()

    @property
    def _is_all(self) -> bool:
        """Whether all items were handed out: a reader that counts them does not ask for the end."""
        return 0 < self._yielded >= self._count

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Makes the next iteration begin where a saved state stands, on any number of ranks.

        Where `set_epoch` has set the epoch before that of a state at the beginning of an epoch, the state was
        saved after the last item of the set epoch, and the next iteration yields nothing.

        Raises:
            StateError: the state is damaged, of a newer schema, or of another run.
        """
        saved = State.from_dict(state)
        saved.require_equal(self._state(saved.epoch, 0))
        if not 0 <= saved.position <= self._size(saved.epoch):
            raise StateError(
                "position", f"is outside of an order of {self._size(saved.epoch)}", saved.position
            )
        if self._was_told and saved.position == 0 and saved.epoch == self.epoch + 1:
            self._start = self._size(self.epoch)
        else:
            self.epoch, self._start = saved.epoch, saved.position
        self._yielded, self._is_over, self._iteration = 0, False, None
        self._read_to_its_end = None
