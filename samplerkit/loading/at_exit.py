"""The interpreter's end: what a script still holds is left alone, for modules may be cleared before it."""

from __future__ import annotations

import atexit
import weakref
from typing import Final, Protocol


class UnderWay(Protocol):
    """What is under way, and ends something when it is garbage."""

    is_open: bool


def leave_at_exit(held: UnderWay) -> None:
    """Marks something as not open at the interpreter's end; workers and threads were ended then."""
    _HELD.add(held)


_HELD: Final[weakref.WeakSet[UnderWay]] = weakref.WeakSet()


@atexit.register  # here, and so before what ends workers: what was registered last comes first
def _leave_all() -> None:
    for held in list(_HELD):
        held.is_open = False
