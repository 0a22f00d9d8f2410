"""The device stage: hands out batches on the device while a thread loads and copies the next ones.

Batch j is copied on the side stream once the loop's work on batch j - (depth + 1) is done. The loop's stream
waits for the copy, and the host never does. `record_stream` keeps memory from being given away while the
loop uses it, however early its last handle is dropped. The window keeps the loading thread from allocating
ahead of a device that is behind. Without `record_stream` memory is reused too early, and without the window
there is no limit to it.

The batch is loaded before the wait for the window, as loading takes no memory of the device.
"""

import collections
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import torch

from samplerkit.loading.background import ended_iteration, not_stop_iteration, require_process
from samplerkit.loading.device.batch_tree import is_opaque, leaves, map_leaves, storages
from samplerkit.loading.device.streams import Streams, streams_for
from samplerkit.loading.stats import StageCounts
from samplerkit.loading.workers.protocol import BatchesInOrder
from samplerkit.loading.workers.thread_pool import Task, WorkerThreads

CLOSE_SECONDS = 2.0
"""How long the end of an iteration waits for the loading thread."""

Load = Callable[[Any], Any]
"""Returns on the device what a source yields; an `EpochEnd` as it is."""


class EpochEnd:
    """What a source yields at the end of an epoch; the stage hands it out as it is.

    Args:
        state: of the source then.
    """

    def __init__(self, state: Any = None) -> None:
        self.state: Final = state


class DeviceStage(Iterator[Any]):
    """Iterates over a source one step ahead of the loop, and hands out its batches on a device.

    A thread pulls from the source, at most `depth` batches ahead of the loop, and copies on a side stream. It
    starts at the first `next`. What the source raises is raised here, with its traceback, after all batches
    before it. The stage ends when it is closed or no longer referenced.

    An `EpochEnd` passes as it is, so that one stage can continue from one epoch to the next.

    Args:
        source: yields batches on the host: any nesting that `map_leaves` takes. The stage owns it, and calls
            its `close` when it has one.
        device: where batches go.
        depth: how many batches are loaded ahead. The device holds at most depth + 2 at a time.
        pins: whether tensors on the host are pinned before the copy; None where the device gains by it.
        streams: those of the device; None takes the device's own.
        counts: adds up the figures of its batches.
        load: moves what the source yields, in place of a copy of each leaf; it must not hold the stage.

    Raises:
        ArgumentValueError: the device is not available.

    Example:
        >>> list(DeviceStage(iter([torch.zeros(2), None, {"x": torch.ones(1)}]), torch.device("cpu")))
        [tensor([0., 0.]), None, {'x': tensor([1.])}]
    """

    def __init__(
        self,
        source: Iterator[Any],
        device: torch.device,
        *,
        depth: int = 2,
        pins: bool | None = None,
        streams: Streams | None = None,
        counts: StageCounts | None = None,
        load: Load | None = None,
    ) -> None:
        streams = streams_for(device) if streams is None else streams
        pins = streams.pins if pins is None else pins
        # The thread refers to the producer, not to the stage: so the stage can become garbage, and end it.
        self._producer: Final = Producer(source, streams, pins, load, depth, self)
        # One for each batch that is loaded ahead, and one that is used as soon as the first batch is there.
        self._slots: Final[collections.deque[Slot]] = collections.deque([Slot(None, [])] * (depth + 1))
        slots: Iterator[Any] = iter(self._slots.popleft, None)
        self._batches: Any = self._producer.open(slots)
        self._streams: Final = streams
        # Of the batch received last: the stream that works on it, and leaves unknown to the allocator.
        self._received: tuple[Any, list[Any]] | None = None
        self._counts: Final = StageCounts() if counts is None else counts

    def __next__(self) -> Any:
        """Returns the next batch, or `EpochEnd`.

        Raises:
            StopIteration: the source has no more.
            StateError: the stage was closed, or belongs to another process.
        """
        start = time.perf_counter()
        require_process(self._producer.process)
        # To ask for a batch is to be done with the one before: now its memory can be reused after an event.
        self._release()
        # A slot is given back with a batch and not after it, so that the thread loads while the loop trains.
        item = next(self._batches)
        if isinstance(item, BaseException):
            self.close()
            self._batches = BatchesInOrder(self._producer, iter(()))  # it is over
            try:
                raise item
            finally:
                # The error's traceback refers to this frame.
                del item
        wait = time.perf_counter() - start
        # What the allocator does not know of lives as long as the loop's work on it.
        self._received = self._streams.receive(item.ready, item.storages), item.opaque
        if not isinstance(item.value, EpochEnd):
            self._counts.add(wait, item.load, item.load_cpu, item.copy)
        return item.value

    def close(self, seconds: float = CLOSE_SECONDS) -> bool:
        """Ends the stage; batches under way are dropped.

        Args:
            seconds: how long to wait for the thread, which first finishes the batch that it loads.

        Returns:
            Whether the thread has ended.
        """
        producer = self._producer
        producer.stop()
        if producer.process != os.getpid():
            # The thread, and the device, are those of the process that this one was forked from.
            return True
        self._release()
        if not producer.is_started:  # so no thread ends the source
            producer.end()
        producer.join(time.monotonic() + seconds)
        # The next batches of another stage, on the same side stream, must not get this memory before.
        for slot in self._slots:
            if slot.retained:
                self._streams.wait(slot.event)
        # Waiting batches hold device memory, and would hold it for as long as the stage is referenced.
        self._batches = producer.open(iter(()))
        return not producer.is_alive

    def _release(self) -> None:
        """Ends the loop's work on the batch received last."""
        if self._received is not None:
            (stream, opaque), self._received = self._received, None
            self._slots.append(Slot(self._streams.record_event(stream), opaque))


MakeStage = Callable[[Iterator[Any]], DeviceStage]
"""Puts a stage behind the batches on the host."""


class Slot(NamedTuple):
    """The slot for one batch, as the loop gives it back.

    Args:
        event: recorded after the loop's work on the batch that had the slot before; None at the beginning.
        retained: what of that batch lives until then; emptied once the event is done.
    """

    event: Any
    retained: list[Any]


@dataclass(frozen=True, eq=False)
class LoadedBatch:
    """A batch on its way, and what it cost.

    Args:
        value: the batch on the device, or the end of an epoch.
        ready: the event recorded after its copies.
        storages: what of it the allocator must know of.
        opaque: leaves that may hold more than those.
        load: seconds for `next` on the source.
        load_cpu: of that, what this thread computed.
        copy: seconds for pinning, waiting for the window, and beginning the copies; on the cpu, copying.
    """

    value: Any
    ready: Any
    storages: list[Any]
    opaque: list[Any]
    load: float
    load_cpu: float
    copy: float


class Producer(WorkerThreads):
    """The loading thread: for each slot it pulls from the source and sends to the device.

    Args:
        source: yields batches, and perhaps an `EpochEnd` after each epoch.
        streams: those of the device.
        pins: whether to pin what is on the host.
        load: as for the stage.
        depth: how many slots are under way.
        owner: ends the thread when it is garbage.
    """

    def __init__(
        self,
        source: Iterator[Any],
        streams: Streams,
        pins: bool,
        load: Load | None,
        depth: int,
        owner: object,
    ) -> None:
        super().__init__(None, 1, {"prefetch_factor": depth}, name="samplerkit-device", owner=owner)
        self.source: Any = source
        self.streams: Final = streams
        self.pins: Final = pins
        self.load: Final = load
        # What is copied lives until the event recorded after the copy is done.
        self._sources: Final[collections.deque[tuple[Any, list[Any]]]] = collections.deque()

    def receive(self, task: Task) -> Any:
        """Waits for what was made of a slot; the stage raises an exception, once it has ended."""
        return task.result.get()

    def _run(self, place: int) -> None:
        while (task := self._tasks.get()) is not None and not self.is_stopped and self.step(task):
            pass
        del task  # the traceback of an error refers to this frame, and so to the task that holds it
        self.end()

    def step(self, task: Task) -> bool:
        """Makes one item; returns whether another one may follow."""
        item = self._make(task.request)
        task.result.put(item)
        may_follow = not isinstance(item, BaseException)
        del item, task  # likewise
        return may_follow

    def end(self) -> None:
        """Waits for copies under way, then ends the source, here where it ran."""
        while self._sources:
            self.streams.wait(self._sources[0][0])
            self._sources.popleft()
        source, self.source = self.source, None
        if callable(close := getattr(source, "close", None)):
            close()

    def _make(self, slot: Slot) -> LoadedBatch | BaseException:
        """Returns what goes to the loop: a batch, or what the source raised, also at its end, or the copy."""
        started, before = time.perf_counter(), time.thread_time()
        try:
            self.streams.enter_thread()
            batch = next(self.source)
        except BaseException as error:  # whatever it is, its end as well, it belongs into the loop
            return error
        finally:
            loaded, computed = time.perf_counter(), time.thread_time() - before
        if self.is_stopped:
            return ended_iteration()
        sending = time.perf_counter()
        try:
            value, ready = self._send(batch, slot)
        except BaseException as error:  # likewise
            return not_stop_iteration(error, "a batch that was moved to the device")
        # The tree is walked here, in the loading thread, rather than in the loop.
        value_leaves = leaves(value)
        used = [storage for leaf in value_leaves for storage in storages(leaf)]
        opaque = [leaf for leaf in value_leaves if is_opaque(leaf)]
        copied = time.perf_counter() - sending
        return LoadedBatch(value, ready, used, opaque, loaded - started, computed, copied)

    def _send(self, batch: Any, slot: Slot) -> tuple[Any, Any]:
        """Begins to copy a batch, once the window allows it; gives it on the device, and when it is there."""
        streams = self.streams
        host = map_leaves(streams.pin, batch) if self.pins else batch
        if slot.event is not None:
            streams.wait(slot.event)
        slot.retained.clear()
        while self._sources and streams.is_done(self._sources[0][0]):
            self._sources.popleft()
        # An object may move itself in place: then only its tensors still know where they came from.
        sources = [storage for leaf in leaves(host) for storage in (leaf, *storages(leaf))]
        with streams.side(sources):
            try:
                value = map_leaves(streams.copy, host) if self.load is None else self.load(host)
            finally:
                ready = streams.record_event()
                self._sources.append((ready, sources))
        return value, ready
