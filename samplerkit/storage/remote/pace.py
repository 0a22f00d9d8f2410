"""A limit to how slow an answer may be, which a server that sends a byte now and then meets too."""

from __future__ import annotations

import http.client
import io
import socket
import time
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, final

from samplerkit.storage.threads import TICK, Stop


@final
class Pace:
    """The time that one request has: for the head of each answer, then for each piece that is read of it.

    What arrives does not prolong it, but what is of use does: a head without an end, or a body of which
    nothing comes through, is one that stalls, however much is sent.

    Args:
        seconds: for each of these.
        stop: ends the waiting.
    """

    def __init__(self, seconds: float, stop: Stop) -> None:
        self._seconds = seconds
        self._stop = stop
        self.renew()

    def renew(self) -> None:
        """Begins a new stretch of time."""
        self._end = time.monotonic() + self._seconds

    def left(self) -> float:
        """Gives the seconds until the next look at the clock is due.

        Raises:
            TimeoutError: the time is over.
            Stopped: the answer is not wanted any more.
        """
        self._stop.check()
        left = self._end - time.monotonic()
        if left <= 0:
            raise TimeoutError
        return min(left, TICK)


current_pace: ContextVar[Pace | None] = ContextVar("current_pace", default=None)
"""That of the request which this thread makes now: connections are made far below, by other libraries."""


@final
class PacedResponse(http.client.HTTPResponse):
    """An answer that is read at the pace of its request, its head included.

    The timeout of a socket starts anew with each byte; this one does not.
    """

    def __init__(self, sock: socket.socket, *arguments: Any, **options: Any) -> None:
        super().__init__(sock, *arguments, **options)
        pace = current_pace.get()
        if pace is not None:
            pace.renew()
            buffered: Any = self.fp
            self.fp = io.BufferedReader(_PacedReader(buffered.detach(), sock, pace), 1 << 16)


@final
class _PacedReader(io.RawIOBase):
    """Receives from a socket, looking at the clock in between.

    Args:
        held: the socket's own reader: the socket stays open until this is closed.
        sock: to receive from.
        pace: of the request.
    """

    def __init__(self, held: io.RawIOBase, sock: socket.socket, pace: Pace) -> None:
        super().__init__()
        self._held = held
        self._receive: Callable[[Any], int] = sock.recv_into
        self._sock = sock
        self._pace = pace

    def readable(self) -> bool:
        """Tells that it can be read from."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Receives what there is, at least a byte; nothing at the end."""
        while True:
            self._sock.settimeout(self._pace.left())
            try:
                return self._receive(buffer)
            except TimeoutError:
                continue

    def close(self) -> None:
        """Lets go of the socket."""
        self._held.close()
        super().close()
