"""The loading thread: pulls from the source, sends to the device, and ends when its channel is closed."""

from __future__ import annotations

import atexit
import functools
import threading
import time
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, final

from samplerkit.loading.beside_the_loop import not_an_end, start_thread
from samplerkit.loading.device.cautions import Watch
from samplerkit.loading.device.channel import Channel, Closed
from samplerkit.loading.device.stats import Work
from samplerkit.loading.device.streams import Streams
from samplerkit.loading.device.transfer import Room, Sender, Sent

EXIT_SECONDS = 2.0
"""How long the interpreter's exit waits for loading threads, together."""


_WHERE: Final = "a batch that was moved to the device"


@final
class EpochEnd:
    """What a source yields at the end of an epoch; the stage hands it out as it is.

    Args:
        note: what the source wants to say with it.
    """

    def __init__(self, note: Any = None) -> None:
        self.note: Final = note

    def __repr__(self) -> str:
        return "EPOCH_END" if self.note is None else f"EpochEnd({self.note!r})"


EPOCH_END: Final = EpochEnd()
"""An end of which nothing is to be said."""


@dataclass(frozen=True, eq=False)
class Batch:
    """A batch, what it cost, and what was found to be wrong with the way it was loaded."""

    sent: Sent
    work: Work
    findings: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Border:
    """The end of an epoch. An empty epoch takes room, which goes back with its border."""

    end: EpochEnd
    room: Room | None


@dataclass(frozen=True, eq=False)
class End:
    """The end of the source."""


@dataclass(frozen=True, eq=False)
class Failure:
    """What the source raised, or the copy."""

    error: BaseException


Item = Batch | Border | End | Failure


@final
class Producer:
    """Makes the items of a channel.

    Args:
        source: gives batches, and an `EpochEnd` after each epoch.
        channel: where they go.
        streams: the driver.
        pins: whether to pin what is on the host.
    """

    def __init__(
        self, source: Iterator[Any], channel: Channel[Item, Room], streams: Streams, *, pins: bool
    ) -> None:
        self._source: Final = source
        self._channel: Final = channel
        self._streams: Final = streams
        self._sender: Final = Sender(streams, pins=pins)
        self._watch: Final = Watch()
        # Room that is taken already; a border after a batch leaves it for the next batch.
        self._room: Room | None = None
        self._is_epoch_empty = False

    def run(self) -> None:
        """Makes items until there are no more, or the channel is closed."""
        try:
            self._streams.enter_thread()
            while self.step():
                pass
            self.end()
        except BaseException as error:  # whatever it is, it belongs into the loop
            self._channel.put(Failure(not_an_end(error, _WHERE)))

    def step(self) -> bool:
        """Makes one item once there is room for it; tells whether another one may follow."""
        if self._room is None:
            room = self._channel.take_room()
            if isinstance(room, Closed):
                return False
            self._room = room
        item = self._make()
        if item is None:
            return False
        self._channel.put(item)
        return not isinstance(item, End | Failure)

    def _make(self) -> Item | None:
        self._watch.begin()
        started, before = time.perf_counter(), time.thread_time()
        try:
            batch = next(self._source)
        except StopIteration:
            return End()
        except BaseException as error:  # whatever it is, it belongs into the loop
            return Failure(error)
        finally:
            loaded, computed = time.perf_counter(), time.thread_time() - before
            findings = self._watch.end(computed)
        if isinstance(batch, EpochEnd):
            return self._border(batch)
        if self._channel.is_closed:
            return None
        room, self._room = self._room or Room(), None
        self._is_epoch_empty = False
        sending = time.perf_counter()
        try:
            sent = self._sender.send(batch, room)
        except BaseException as error:  # likewise
            return Failure(not_an_end(error, _WHERE))
        return Batch(sent, Work(loaded - started, computed, time.perf_counter() - sending), findings)

    def _border(self, end: EpochEnd) -> Border:
        # Without room, an endless row of empty epochs would have no bound.
        room, self._room = (self._room, None) if self._is_epoch_empty else (None, self._room)
        self._is_epoch_empty = True
        return Border(end, room)

    def end(self) -> None:
        """Waits for copies under way, then ends the source, here where it ran."""
        self._sender.finish()
        close = getattr(self._source, "close", None)
        if callable(close):
            close()


def start(producer: Producer, channel: Channel[Item, Room]) -> threading.Thread:
    """Starts the thread of a producer; the interpreter's exit ends it."""
    _end_at_exit()
    thread = threading.Thread(target=producer.run, name="samplerkit-device", daemon=True)
    _RUNNING[thread] = channel
    start_thread(thread)
    return thread


_RUNNING: Final[weakref.WeakKeyDictionary[threading.Thread, Channel[Item, Room]]] = (
    weakref.WeakKeyDictionary()
)


@functools.cache
def _end_at_exit() -> None:
    # A daemon thread that is inside of torch when the interpreter goes would take the process down.
    atexit.register(_end_all)


def _end_all() -> None:
    running = [(thread, channel) for thread, channel in _RUNNING.items() if thread.is_alive()]
    for _, channel in running:
        channel.close()
    deadline = time.monotonic() + EXIT_SECONDS
    for thread, _ in running:
        thread.join(deadline - time.monotonic())
