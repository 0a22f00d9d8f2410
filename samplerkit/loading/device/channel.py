"""What goes from the loading thread to the loop, and slots back: bounded, closeable, and never polled."""

from __future__ import annotations

import contextlib
import queue
from typing import Final, Generic, TypeVar, final

ItemT = TypeVar("ItemT")
SlotT = TypeVar("SlotT")


@final
class Channel(Generic[ItemT, SlotT]):
    """Carries items one way, and free slots for them back. After `close`, both sides get None.

    The producer takes a slot before it makes an item, so that at most as many items are made ahead as there
    are slots. The consumer gives slots back, each with what the producer has to know before it uses it.

    Both ways are `queue.SimpleQueue`s. They may be used by a finalizer that runs in the middle of another of
    their calls; a lock, or a condition variable, would wait for itself there.

    Args:
        slots: those that are free at first, one for each item that may be under way.

    Attributes:
        is_closed: whether `close` was called.

    Example:
        >>> channel = Channel([0, 0])
        >>> channel.take_slot()
        0
        >>> channel.put("a batch")
        >>> len(channel), channel.get()
        (1, 'a batch')
        >>> channel.close()
        >>> channel.take_slot() is None
        True
    """

    def __init__(self, slots: list[SlotT]) -> None:
        self._items: Final[queue.SimpleQueue[ItemT | None]] = queue.SimpleQueue()
        self._slots: Final[queue.SimpleQueue[SlotT | None]] = queue.SimpleQueue()
        self.is_closed = False
        for slot in slots:
            self._slots.put(slot)

    def __len__(self) -> int:
        """The number of items that wait."""
        return self._items.qsize()

    def take_slot(self) -> SlotT | None:
        """Waits until a slot is free, and takes it. The producer calls this."""
        return None if self.is_closed else self._slots.get()

    def put(self, item: ItemT) -> None:
        """Hands an item to the consumer, without waiting: the slot was taken before."""
        self._items.put(item)

    def get(self) -> ItemT | None:
        """Waits for the next item. The consumer calls this."""
        item = None if self.is_closed else self._items.get()
        return None if self.is_closed else item

    def drop_items(self) -> None:
        """Drops what waits in a channel that was closed."""
        with contextlib.suppress(queue.Empty):
            while True:
                self._items.get_nowait()

    def give_slot(self, slot: SlotT) -> None:
        """Gives a slot back to the producer."""
        self._slots.put(slot)

    def close(self) -> None:
        """Wakes both sides, now and from then on; items under way are not handed out any more."""
        self.is_closed = True
        self._items.put(None)
        self._slots.put(None)
