"""The way of a batch from the host to the loop: which copies, events and waits, in which order.

Batch j is copied on the side stream once the loop's work on batch j - (depth + 1) is done. The loop's stream
waits for the copy, and the host never does. `record_stream` keeps memory from being given away while the
loop uses it, however early its last handle is dropped. The window keeps the loading thread from allocating
ahead of a device that is behind. One without the other is wrong, or unbounded.

The batch is loaded before the wait for the window, as loading takes no memory of the device. It goes from the
loading thread to the loop through a `Channel`: bounded, closeable, and never polled.
"""

from __future__ import annotations

import collections
import contextlib
import queue
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar, final

from samplerkit.loading.device.batch import is_opaque, leaves, map_leaves, storages
from samplerkit.loading.device.streams import Streams


@dataclass(frozen=True, eq=False)
class BatchSlot:
    """The slot for one batch, as the loop gives it back.

    Args:
        fence: the event behind the loop's work on the batch that must be done with; None at the beginning.
        kept: what of that batch lives until then; emptied once the fence has passed.
    """

    fence: Any = None
    kept: list[Any] = field(default_factory=list)


@dataclass(frozen=True, eq=False)
class Sent:
    """A batch that is on its way to the device.

    Args:
        value: the batch on the device.
        ready: the event behind its copies.
        storages: what of it the allocator must know of.
        opaque: leaves that may hold more than those.
    """

    value: Any
    ready: Any
    storages: list[Any]
    opaque: list[Any]


@final
class Sender:
    """The loading thread's side.

    Args:
        streams: the driver.
        pins: whether to pin what is on the host.
    """

    def __init__(self, streams: Streams, *, pins: bool) -> None:
        self._streams: Final = streams
        self._pins: Final = pins
        self._sources: Final[collections.deque[tuple[Any, list[Any]]]] = collections.deque()

    def send(self, batch: Any, slot: BatchSlot) -> Sent:
        """Begins to copy a batch; waits until the window allows it."""
        streams = self._streams
        host = map_leaves(streams.pin, batch) if self._pins else batch
        if slot.fence is not None:
            streams.wait(slot.fence)
        slot.kept.clear()
        self._forget_sources()
        # An object may move itself in place: then only its tensors still know where they came from.
        sources = [storage for leaf in leaves(host) for storage in (leaf, *storages(leaf))]
        with streams.side(sources):
            try:
                value = map_leaves(streams.copy, host)
            finally:
                ready = streams.record_ready()
                self._sources.append((ready, sources))
        # The tree is walked here, in the loading thread, rather than in the loop.
        found = leaves(value)
        used = [storage for leaf in found for storage in storages(leaf)]
        return Sent(value, ready, used, [leaf for leaf in found if is_opaque(leaf)])

    def finish(self) -> None:
        """Waits for the copies that are under way: their sources must live until then."""
        while self._sources:
            self._streams.wait(self._sources[0][0])
            self._sources.popleft()

    def _forget_sources(self) -> None:
        while self._sources and self._streams.has_passed(self._sources[0][0]):
            self._sources.popleft()


@final
class Receiver:
    """The loop's side.

    Args:
        streams: the driver.
    """

    def __init__(self, streams: Streams) -> None:
        self._streams: Final = streams
        self._stream: Any = None
        self._lent: list[Any] | None = None
        self._slot = BatchSlot()

    def release(self) -> None:
        """Ends the loop's work on the batch received last: it has asked for the next one."""
        if self._lent is not None:
            self._slot = BatchSlot(self._streams.fence(self._stream), self._lent)
            self._stream = self._lent = None

    def receive(self, sent: Sent) -> tuple[Any, BatchSlot]:
        """Gives a batch that the caller's stream may use, and the slot that it leaves behind."""
        slot, self._slot = self._slot, BatchSlot()
        self._stream = self._streams.receive(sent.ready, sent.storages)
        # What the allocator does not know of lives as long as the loop's work on it.
        self._lent = sent.opaque
        return sent.value, slot


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
