"""Background threads and processes: how they start, for whom they read, how the exit of Python ends them."""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
import weakref
from collections.abc import Iterable
from typing import Final, Protocol

from samplerkit.errors import StateError

LAST_BATCH_SECONDS: Final = 1.5
"""How long workers may continue with the batch that they are at when they are ended."""


class Ending(Protocol):
    """Processes or threads that are ended at the exit, in two steps: so all of them end at the same time."""

    def stop(self) -> None:
        """Asks them to end."""

    def join(self, deadline: float) -> None:
        """Waits for them until a time of the monotonic clock."""


class Openable(Protocol):
    """An iteration, which ends something when it is garbage."""

    is_open: bool


def end_together(several: Iterable[Ending]) -> None:
    """Ends workers, and waits for all of them for `LAST_BATCH_SECONDS`."""
    running, deadline = list(several), time.monotonic() + LAST_BATCH_SECONDS
    for each in running:
        each.stop()
    for each in running:
        each.join(deadline)


def end_at_exit(running: Ending) -> None:
    """Ends workers at the exit, if they are still there.

    A daemon thread that is inside of torch when the interpreter goes would take the process down. For
    processes, multiprocessing would wait for ever: a worker in a call to C that holds Python's lock does not
    hear that it is to end.
    """
    _RUNNING.add(running)
    # Again each time, since what was registered last comes first: before torch, which ends its workers too.
    atexit.unregister(_end_all)
    atexit.register(_end_all)


def leave_at_exit(held: Openable) -> None:
    """Marks an iteration as not open at the exit: modules may be cleared before it is garbage."""
    _HELD.add(held)


_RUNNING: Final[weakref.WeakSet[Ending]] = weakref.WeakSet()
_HELD: Final[weakref.WeakSet[Openable]] = weakref.WeakSet()


def _end_all() -> None:
    end_together(_RUNNING)


@atexit.register  # with the module, so after what ends workers
def _leave_all() -> None:
    for held in list(_HELD):
        held.is_open = False


_here = threading.local()


def start_thread(thread: threading.Thread) -> None:
    """Starts a thread; what a signal handler raises meanwhile is raised as it is."""
    before = sys.exception()
    try:
        thread.start()
    except (KeyError, RuntimeError) as error:
        # A handler that raises within `start` comes as an error of Python's own bookkeeping, or of its lock.
        if error.__context__ is None or error.__context__ is before:
            raise
        raise error.__context__ from None


def not_an_end(error: BaseException, where: str) -> BaseException:
    """Returns what to raise in the loop: a StopIteration from elsewhere would end it without a word."""
    if not isinstance(error, StopIteration):
        return error
    raised = RuntimeError(f"{where} raised StopIteration")
    raised.__cause__ = error
    return raised


def require_process(began: int) -> None:
    """Requires that an iteration is asked for batches where it began: a forked process has no part in it.

    Args:
        began: the id of the process that began it.

    Raises:
        StateError: this is another one.
    """
    if began != os.getpid():
        hint = "iterate again in this process"
        raise StateError("iteration", "belongs to the process that began it", hint=hint)


def loaders_read_for() -> frozenset[object]:
    """Returns the loaders for which this thread reads, and the threads that began it."""
    return getattr(_here, "loaders", frozenset())


def read_for(loaders: frozenset[object]) -> None:
    """Notes for which loaders this thread reads from now on."""
    _here.loaders = loaders


def require_outside(loader: object) -> None:
    """Requires that no thread that reads for a loader iterates over it: each would begin more of them.

    Raises:
        StateError: this is such a thread, or was begun by one.
    """
    if loader in loaders_read_for():
        raise StateError(
            "iteration",
            "was ended by a newer one, which a thread began that reads for it",
            hint="give the dataset a loader of its own",
        )
