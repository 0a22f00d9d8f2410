"""The way of a batch from the host to the loop: which copies, events and waits, in which order.

Batch j is copied on the side stream once the loop's work on batch j - (depth + 1) is done. The loop's stream
waits for the copy, and the host never does. `record_stream` keeps memory from being given away while the
loop uses it, however early its last handle is dropped. The window keeps the loading thread from allocating
ahead of a device that is behind. One without the other is wrong, or unbounded.

The batch is loaded before the wait for the window, as loading takes no memory of the device.
"""

from __future__ import annotations

import collections
from dataclasses import dataclass, field
from typing import Any, Final, final

from samplerkit.loading.device.batch import is_opaque, leaves, map_leaves, storages
from samplerkit.loading.device.streams import Streams


@dataclass(frozen=True, eq=False)
class Room:
    """The room for one batch, as the loop gives it back.

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
        storages: what of it the allocator must be told of.
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

    def send(self, batch: Any, room: Room) -> Sent:
        """Begins to copy a batch; waits until the window allows it."""
        streams = self._streams
        host = map_leaves(streams.pin, batch) if self._pins else batch
        if room.fence is not None:
            streams.wait(room.fence)
        room.kept.clear()
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
        self._room = Room()

    def release(self) -> None:
        """Ends the loop's work on the batch received last: it has asked for the next one."""
        if self._lent is not None:
            self._room = Room(self._streams.fence(self._stream), self._lent)
            self._stream = self._lent = None

    def receive(self, sent: Sent) -> tuple[Any, Room]:
        """Gives a batch that the caller's stream may use, and the room that it leaves behind."""
        room, self._room = self._room, Room()
        self._stream = self._streams.receive(sent.ready, sent.storages)
        # What the allocator was not told of lives as long as the loop's work on it.
        self._lent = sent.opaque
        return sent.value, room
