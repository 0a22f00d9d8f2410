"""Background threads and processes: their start, their loaders, and their end at the exit of Python."""

from __future__ import annotations

import atexit
import contextlib
import os
import queue
import sys
import threading
import time
import weakref
from collections.abc import Iterable
from typing import ClassVar, Final, Generic, Protocol, TypeVar, final

from samplerkit.errors import StateError

LAST_BATCH_SECONDS: Final = 1.5
"""How long workers may continue with their current batch when they are ended."""


class Stoppable(Protocol):
    """Processes or threads that are ended at the exit, in two steps, so that all end at the same time."""

    def stop(self) -> None:
        """Asks them to end."""

    def join(self, deadline: float) -> None:
        """Waits for them until a time of the monotonic clock."""


class ExitAware:
    """Ends something when it is garbage, but not at the exit, when modules may be cleared already."""

    is_exiting: ClassVar[bool] = False


def end_together(workers: Iterable[Stoppable]) -> None:
    """Ends workers, and waits for all of them for `LAST_BATCH_SECONDS`."""
    running, deadline = list(workers), time.monotonic() + LAST_BATCH_SECONDS
    for worker in running:
        worker.stop()
    for worker in running:
        worker.join(deadline)


def end_at_exit(running: Stoppable) -> None:
    """Ends workers at the exit, if they still run.

    A daemon thread that is inside of torch when the interpreter goes would take the process down. For
    processes, multiprocessing would wait forever: a worker in a call to C that holds the GIL does not notice
    that it should end.
    """
    RUNNING.add(running)
    # Registered each time, since the last registration runs first: before torch, which ends its workers too.
    atexit.unregister(_end_all)
    atexit.register(_end_all)


RUNNING: Final[weakref.WeakSet[Stoppable]] = weakref.WeakSet()
"""The objects that end at the exit; a forked process has a copy, of objects that it does not own."""


def _end_all() -> None:
    end_together(RUNNING)


@atexit.register  # with the module, so after what ends workers
def _set_exiting() -> None:
    ExitAware.is_exiting = True


_local = threading.local()


def start_thread(thread: threading.Thread) -> None:
    """Starts a thread; an exception of a signal handler during the start is raised unchanged."""
    before = sys.exception()
    try:
        thread.start()
    except (KeyError, RuntimeError) as error:
        # A handler that raises within `start` comes as an error of Python's own bookkeeping, or of its lock.
        if error.__context__ is None or error.__context__ is before:
            raise
        raise error.__context__ from None


def not_stop_iteration(error: BaseException, where: str) -> BaseException:
    """Returns the error to raise in the loop: a StopIteration of other code would end it silently."""
    if not isinstance(error, StopIteration):
        return error
    raised = RuntimeError(f"{where} raised StopIteration")
    raised.__cause__ = error
    return raised


def require_process(pid: int) -> None:
    """Requires that an iteration continues in the process in which it began, not in a fork.

    Args:
        pid: the id of the process that began it.

    Raises:
        StateError: this is another one.
    """
    if pid != os.getpid():
        hint = "iterate again in this process"
        raise StateError("iteration", "belongs to the process that began it", hint=hint)


def loaders_read_for() -> frozenset[object]:
    """Returns the loaders for which this thread reads, and the threads that began it."""
    return getattr(_local, "loaders", frozenset())


def read_for(loaders: frozenset[object]) -> None:
    """Notes for which loaders this thread reads from now on."""
    _local.loaders = loaders


def ended_iteration() -> StateError:
    """Returns the error of a loop that reads on after another one began over its loader, or `close()`."""
    return StateError(
        "iteration", "was ended by a newer one or by close()", hint="make a loader for each loop"
    )


def require_not_reading_for(loader: object) -> None:
    """Requires that no thread that reads for a loader iterates over it: each would begin more threads.

    Raises:
        StateError: this is such a thread, or was begun by one.
    """
    if loader in loaders_read_for():
        raise StateError(
            "iteration",
            "was ended by a newer one, begun by a thread that reads for its loader",
            hint="give the dataset a loader of its own",
        )


ItemT = TypeVar("ItemT")
SlotT = TypeVar("SlotT")


@final
class Channel(Generic[ItemT, SlotT]):
    """Two queues: items in one direction, and free slots for them back.

    After `close`, both sides get None. The producer takes a slot before it makes an item, so that at most as
    many items are prefetched as there are slots. The consumer returns slots, each with a value that the
    producer needs before it uses it.

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
        """Drops the items of a closed channel."""
        with contextlib.suppress(queue.Empty):
            while True:
                self._items.get_nowait()

    def give_slot(self, slot: SlotT) -> None:
        """Returns a slot back to the producer."""
        self._slots.put(slot)

    def close(self) -> None:
        """Wakes both sides, now and later; waiting items are not handed out any more."""
        self.is_closed = True
        self._items.put(None)
        self._slots.put(None)
