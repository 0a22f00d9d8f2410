"""The channel between the loading thread and the loop: bounded, closeable, and never polled."""

from __future__ import annotations

import contextlib
import queue
from typing import Final, Generic, TypeVar, final

Item = TypeVar("Item")
Room = TypeVar("Room")


@final
class Closed:
    """What either side gets from a channel that was closed."""


CLOSED: Final = Closed()


@final
class Channel(Generic[Item, Room]):
    """Carries items one way, and the room for them back.

    The producer takes room before it makes an item, so that at most as many items are made ahead as there is
    room. The consumer gives room back, and with it what the producer has to know before it uses it.

    Both ways are `queue.SimpleQueue`s. They may be used by a finalizer that runs in the middle of another of
    their calls; a lock, or a condition variable, would wait for itself there.

    Args:
        rooms: what the producer finds at first, one for each item that may be under way.

    Example:
        >>> channel = Channel([0, 0])
        >>> channel.take_room()
        0
        >>> channel.put("a batch")
        >>> len(channel), channel.get()
        (1, 'a batch')
        >>> channel.close()
        >>> channel.take_room() is CLOSED
        True
    """

    def __init__(self, rooms: list[Room]) -> None:
        self._items: Final[queue.SimpleQueue[Item | Closed]] = queue.SimpleQueue()
        self._rooms: Final[queue.SimpleQueue[Room | Closed]] = queue.SimpleQueue()
        self._is_closed = False
        for room in rooms:
            self._rooms.put(room)

    def __len__(self) -> int:
        """The number of items that wait."""
        return self._items.qsize()

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called."""
        return self._is_closed

    def take_room(self) -> Room | Closed:
        """Waits until there is room, and takes it. The producer calls this."""
        return CLOSED if self._is_closed else self._rooms.get()

    def put(self, item: Item) -> None:
        """Hands an item to the consumer, without waiting: the room was taken before."""
        self._items.put(item)

    def get(self) -> Item | Closed:
        """Waits for the next item. The consumer calls this."""
        item = CLOSED if self._is_closed else self._items.get()
        return CLOSED if self._is_closed else item

    def drop_items(self) -> None:
        """Drops what waits in a channel that was closed."""
        with contextlib.suppress(queue.Empty):
            while True:
                self._items.get_nowait()

    def give_room(self, room: Room) -> None:
        """Gives room back to the producer."""
        self._rooms.put(room)

    def close(self) -> None:
        """Wakes both sides, for ever; items under way are not handed out any more."""
        self._is_closed = True
        self._items.put(CLOSED)
        self._rooms.put(CLOSED)
