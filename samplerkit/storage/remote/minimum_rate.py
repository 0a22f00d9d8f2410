"""A limit to how slow an answer may be, which a server that sends a byte now and then meets too."""

from __future__ import annotations

import http.client
import io
import socket
import time
from collections.abc import Callable
from typing import Any, final

from samplerkit.storage.threads import TICK, Stop


@final
class Deadline:
    """The time that one request has: for the head of each answer, then for each piece that is read of it.

    What arrives does not prolong it, but what is of use does: a head without an end, or a body of which
    nothing comes through, is one that stalls, however much is sent.

    Args:
        seconds: for each of these.
        stop: ends the waiting.
    """

    def __init__(self, seconds: float, stop: Stop) -> None:
        self.seconds = seconds
        self._stop = stop
        self.renew()

    def renew(self) -> None:
        """Begins a new stretch of time."""
        self._end = time.monotonic() + self.seconds

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


@final
class TimedResponse(http.client.HTTPResponse):
    """An answer, its head included, that has to arrive within the deadline of its request.

    The timeout of a socket starts again with each byte; this one does not.
    """

    def __init__(self, deadline: Deadline, sock: socket.socket, *arguments: Any, **options: Any) -> None:
        super().__init__(sock, *arguments, **options)
        deadline.renew()
        buffered: Any = self.fp
        self.fp = io.BufferedReader(_TimedReader(buffered.detach(), sock, deadline), 1 << 16)


@final
class _TimedReader(io.RawIOBase):
    """Receives from a socket, looking at the clock in between.

    Args:
        held: the socket's own reader: the socket stays open until this is closed.
        sock: to receive from.
        deadline: of the request.
    """

    def __init__(self, held: io.RawIOBase, sock: socket.socket, deadline: Deadline) -> None:
        super().__init__()
        self._held = held
        self._receive: Callable[[Any], int] = sock.recv_into
        self._sock = sock
        self._deadline = deadline

    def readable(self) -> bool:
        """Returns True: it can be read from."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Receives at least a byte; nothing at the end."""
        while True:
            self._sock.settimeout(self._deadline.left())
            try:
                return self._receive(buffer)
            except TimeoutError:
                continue

    def close(self) -> None:
        """Lets go of the socket."""
        self._held.close()
        super().close()
