"""Background threads: how one starts, what it must not raise in the loop, for whom it reads, and where."""

from __future__ import annotations

import os
import sys
import threading

from samplerkit.errors import StateError

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
