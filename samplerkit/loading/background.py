"""Background threads and processes: their start, their loaders, and their end at the exit of Python."""

import atexit
import os
import threading
import time
import weakref
from collections.abc import Iterable
from multiprocessing import util
from typing import Final, Protocol

from samplerkit.errors import StateError

LAST_BATCH_SECONDS: Final = 1.5
"""How long workers may continue with their current batch when they are ended."""


class Stoppable(Protocol):
    """Processes or threads that are ended at the exit, in two steps, so that all end at the same time.

    Attributes:
        process: the id of the process that they belong to.
    """

    process: int

    def stop(self) -> None:
        """Asks them to end."""

    def join(self, deadline: float) -> None:
        """Waits for them until a time of the monotonic clock."""


def end_together(workers: Iterable[Stoppable]) -> None:
    """Ends workers, and waits for all of them for `LAST_BATCH_SECONDS`; in a fork, none of its parent."""
    running = [worker for worker in workers if worker.process == os.getpid()]
    deadline = time.monotonic() + LAST_BATCH_SECONDS
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
    _RUNNING.add(running)
    # Registered each time, since the last registration runs first: before a dataset is closed at the exit.
    atexit.unregister(_end_running)
    atexit.register(_end_running)


_RUNNING: Final[weakref.WeakSet[Stoppable]] = weakref.WeakSet()
"""The objects that end at the exit; a forked process has a copy, of objects that it does not own."""


def _end_running() -> None:
    end_together(_RUNNING)
    _RUNNING.clear()  # what has not ended is waited for once


def _end_in_child(_: object = None) -> None:
    # A process that multiprocessing started runs this in place of `atexit`, before it ends its own processes.
    util.Finalize(None, _end_running, exitpriority=0)


_end_in_child()
util.register_after_fork(_RUNNING, _end_in_child)  # which drops all that was inherited


_local = threading.local()


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


def read_for(loader: object) -> None:
    """Notes for which loader this thread reads from now on."""
    _local.loader = loader


def ended_iteration() -> StateError:
    """Returns the error of a loop that reads on after another one began over its loader, or `close()`."""
    hint = "make a loader for each loop"
    return StateError("iteration", "was ended by a newer one or by close()", hint=hint)


def require_not_reading_for(loader: object) -> None:
    """Requires that no thread that reads for a loader iterates over it: each would begin more threads.

    Raises:
        StateError: this is such a thread.
    """
    if getattr(_local, "loader", None) is loader:
        problem = "was ended by a newer one, begun by a thread that reads for its loader"
        raise StateError("iteration", problem, hint="give the dataset a loader of its own")
