"""Who waits for room gets it in turn."""

from __future__ import annotations

import threading
from typing import final


@final
class Line:
    """The threads that wait for room, the first one first; it is true while there are any."""

    def __init__(self) -> None:
        self._threads: dict[int, None] = {}

    def __bool__(self) -> bool:
        return bool(self._threads)

    def is_first(self) -> bool:
        """Tells whether it is this thread's turn; it stands in the line from now on."""
        me = threading.get_ident()
        self._threads.setdefault(me)
        return next(iter(self._threads)) == me

    def leave(self) -> None:
        """Lets this thread leave, if it stands in the line."""
        self._threads.pop(threading.get_ident(), None)
