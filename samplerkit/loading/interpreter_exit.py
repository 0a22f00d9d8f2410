"""The interpreter's exit: workers are ended, and what a script still holds is left alone after that."""

from __future__ import annotations

import atexit
import time
import weakref
from collections.abc import Iterable
from typing import Final, Protocol

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
