"""The device stage: hands out batches on the device while a thread loads and copies the next ones."""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Iterator
from typing import Any, Final, Literal, final

import torch

from samplerkit.errors import ArgumentTypeError, ArgumentValueError, StateError
from samplerkit.loading.device.cautions import warn_once
from samplerkit.loading.device.channel import Channel, Closed
from samplerkit.loading.device.producer import (
    Batch,
    Border,
    End,
    EpochEnd,
    Failure,
    Item,
    Producer,
    start,
)
from samplerkit.loading.device.stats import Count, DeviceStats
from samplerkit.loading.device.streams import Streams, current_device, streams_for
from samplerkit.loading.device.transfer import Receiver, Room
from samplerkit.order import arguments

CLOSE_SECONDS = 2.0
"""How long the end of an iteration waits for the loading thread."""

MOST_AHEAD = 2**16

PinMemory = Literal["auto"] | bool
"""Whether batches are pinned before they are copied; "auto" pins for devices that gain by it."""


@final
class DeviceStage(Iterator[Any]):
    """Iterates over a source one step ahead of the loop, and hands out its batches on a device.

    A thread pulls from the source, at most `depth` batches ahead of the loop, and copies on a side stream. It
    starts at the first `next`. What the source raises is raised here, with its traceback, after all batches
    before it. The stage ends when it is closed, or when nobody refers to it.

    An `EpochEnd` passes as it is, so that one stage can go on over the border of epochs.

    Args:
        source: gives batches on the host: any nesting that `map_leaves` takes. The stage owns it, and calls
            its `close` when it has one.
        device: where batches go.
        depth: how many batches are loaded ahead. The device holds at most depth + 2 at a time.
        pin_memory: whether tensors on the host are pinned before the copy.
        streams: the driver of the device; None takes the device's own.

    Raises:
        ArgumentTypeError: an argument has the wrong type.
        ArgumentRangeError: `depth` is not positive.
        ArgumentValueError: the device is not there, or `pin_memory` is True without an accelerator.

    Example:
        >>> stage = DeviceStage(iter([torch.zeros(2), None, {"x": torch.ones(1)}]), "cpu")
        >>> list(stage)
        [tensor([0., 0.]), None, {'x': tensor([1.])}]
        >>> stage.stats.batches
        3
    """

    def __init__(
        self,
        source: Iterator[Any],
        device: torch.device | str,
        *,
        depth: int = 2,
        pin_memory: PinMemory = "auto",
        streams: Streams | None = None,
    ) -> None:
        if not isinstance(source, Iterator):
            raise ArgumentTypeError("source", "must be an iterator", source, mend="call iter() on it")
        depth = arguments.positive("depth", depth, MOST_AHEAD)
        pins = pin_policy(pin_memory)
        streams = streams_for(checked_device(device)) if streams is None else streams
        channel: Channel[Item, Room] = Channel([Room()] * depth)
        self._producer: Producer | None = Producer(
            source, channel, streams, pins=streams.pins if pins is None else pins
        )
        self._channel: Final = channel
        self._receiver: Final = Receiver(streams)
        self._count = Count()
        self._begins_epoch = False
        self._thread: threading.Thread | None = None
        self._process: Final = os.getpid()
        self._is_over = False
        # The thread refers to the channel, not to the stage: so the stage can become garbage, and end it.
        weakref.finalize(self, channel.close).atexit = False

    @property
    def stats(self) -> DeviceStats:
        """Figures of the batches handed out since the last `EpochEnd` or `begin_epoch`."""
        return self._count.stats

    def begin_epoch(self) -> None:
        """Begins the figures anew with the next batch."""
        self._begins_epoch = True

    def __iter__(self) -> DeviceStage:
        return self

    def __next__(self) -> Any:
        """Gives the next batch, or an `EpochEnd`.

        Raises:
            StopIteration: the source has no more.
            StateError: the stage was closed, or belongs to another process.
        """
        if self._is_over:
            raise StopIteration
        asked = time.perf_counter()
        self._require_usable()
        # To ask for a batch is to be done with the one before: now its memory can be fenced and reused.
        self._receiver.release()
        # Before the wait: afterwards there is always one, and the figure would say nothing.
        queued = len(self._channel)
        item = self._channel.get()
        if not isinstance(item, Batch):
            return self._border_or_end(item)
        wait = time.perf_counter() - asked
        value, room = self._receiver.receive(item.sent)
        # Room is given back with a batch and not after it, so that the thread loads while the loop trains.
        self._channel.give_room(room)
        if self._begins_epoch:
            self._count, self._begins_epoch = Count(), False
        self._count.add(wait, queued, item.work)
        if item.findings:
            warn_once(item.findings, stacklevel=2)
        return value

    def close(self, seconds: float | None = CLOSE_SECONDS) -> bool:
        """Ends the stage; batches under way are dropped.

        Args:
            seconds: how long to wait for the thread, which first finishes the batch that it loads; None has
                no limit.

        Returns:
            Whether the thread has ended.
        """
        self._channel.close()
        if self._process != os.getpid():
            # The thread, and the device, are those of the process that this one was forked from.
            return True
        self._receiver.release()
        thread, producer = self._thread, self._producer
        if thread is None:
            # It never started, so nobody else will close the source.
            self._producer = None
            if producer is not None:
                producer.end()
            return True
        # A finalizer, or a source that closes its stage, may run in the loading thread itself.
        if thread is not threading.current_thread():
            thread.join(seconds)
        # What waits holds device memory, and would hold it for as long as somebody keeps the stage.
        self._channel.drop_items()
        return not thread.is_alive()

    def _require_usable(self) -> None:
        if self._process != os.getpid():
            raise StateError(
                "iteration", "belongs to the process that began it", mend="iterate anew in this process"
            )
        if self._channel.is_closed:
            raise StateError("iteration", "was ended by a newer one or by close()")
        if self._producer is not None:
            # At the first `next`, not before: what is made and never read starts no thread. The stage lets go
            # of the producer, and so of the source: garbage of the one must not wait for the other.
            producer, self._producer = self._producer, None
            self._thread = start(producer, self._channel)

    def _border_or_end(self, item: Border | End | Failure | Closed) -> EpochEnd:
        if isinstance(item, Border):
            self.begin_epoch()
            if item.room is not None:
                self._channel.give_room(item.room)
            return item.end
        if isinstance(item, Closed):
            # Somebody closed it while the loop waited: that is an error there, and no quiet end.
            self._require_usable()
        self._is_over = True
        self.close()
        if not isinstance(item, Failure):
            raise StopIteration
        error = item.error
        try:
            raise error
        finally:
            # The error's traceback refers to this frame.
            del error, item


def pin_policy(pin_memory: Any) -> bool | None:
    """Takes a pin_memory argument: whether to pin, or None where the device decides.

    Raises:
        ArgumentTypeError: neither a bool nor a string.
        ArgumentValueError: another string, or True where there is no accelerator to pin for.
    """
    if pin_memory is True and current_device().type == "cpu":
        raise ArgumentValueError("pin_memory", "needs an accelerator", True, mend='use "auto"')
    if isinstance(pin_memory, bool):
        return pin_memory
    if not isinstance(pin_memory, str):
        raise ArgumentTypeError("pin_memory", 'must be a bool or "auto"', pin_memory)
    arguments.choice("pin_memory", pin_memory, ("auto",))
    return None


def checked_device(device: Any) -> torch.device:
    """Takes a device or its name.

    Raises:
        ArgumentTypeError: neither.
        ArgumentValueError: no such name.
    """
    if not isinstance(device, torch.device | str):
        raise ArgumentTypeError("device", "must be a torch.device or its name", device)
    try:
        return torch.device(device)
    except RuntimeError as error:
        raise ArgumentValueError("device", "is not known to torch", device) from error
