"""Telling what runs in other threads that it is not wanted any more."""

from __future__ import annotations

import threading
import time
from typing import final

from samplerkit.storage.remote.faults import Stopped

TICK = 0.1
"""Seconds after which all that waits looks whether it is still wanted."""


@final
class Stop:
    """Is set once, and then ends what looks at it.

    Args:
        outer: one that ends this too.
    """

    def __init__(self, outer: Stop | None = None) -> None:
        self._event = threading.Event()
        self._outer = outer

    def set(self) -> None:
        """Ends what looks at it."""
        self._event.set()

    @property
    def is_set(self) -> bool:
        """Whether it was set, or the outer one was."""
        return self._event.is_set() or (self._outer is not None and self._outer.is_set)

    def check(self) -> None:
        """Ends the caller if it was set.

        Raises:
            Stopped: it was.
        """
        if self.is_set:
            raise Stopped

    def sleep(self, seconds: float) -> None:
        """Waits, but not beyond the moment at which it is set.

        Raises:
            Stopped: it was set.
        """
        end = time.monotonic() + seconds
        self.check()
        while (left := end - time.monotonic()) > 0:
            self._event.wait(min(left, TICK))
            self.check()
