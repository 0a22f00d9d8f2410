"""A limit to how slow an answer may be, which a server that sends a byte now and then meets too."""

from __future__ import annotations

import http.client
import io
import socket
import time
from typing import Any, final

from samplerkit.storage.threads import TICK, Stop


@final
class TimedResponse(http.client.HTTPResponse):
    """An answer that has so long for its head, then for each piece that is read of it.

    The timeout of a socket starts again with each byte; this one does not: a head without an end, or a body
    of which nothing comes through, is one that stalls, however much is sent.

    Args:
        seconds: for each of these.
        stop: ends the waiting.
        sock: to receive from.
        arguments: of `HTTPResponse`, like `options`.
    """

    def __init__(
        self, seconds: float, stop: Stop, sock: socket.socket, *arguments: Any, **options: Any
    ) -> None:
        super().__init__(sock, *arguments, **options)
        buffered: Any = self.fp
        self._receiver = _TimedReader(buffered.detach(), sock, seconds, stop)
        self.fp = io.BufferedReader(self._receiver, 1 << 16)

    def read(self, amt: int | None = None) -> bytes:
        """Reads on in the body, and gives nothing at its end."""
        self._receiver.renew()
        return super().read(amt)


@final
class _TimedReader(io.RawIOBase):
    """Receives from a socket, looking at the clock in between.

    Args:
        held: the socket's own reader: the socket stays open until this is closed.
        sock: to receive from.
        seconds: from one renewal to the next.
        stop: ends the waiting.
    """

    def __init__(self, held: io.RawIOBase, sock: socket.socket, seconds: float, stop: Stop) -> None:
        super().__init__()
        self._held = held
        self._sock = sock
        self._seconds = seconds
        self._stop = stop
        self.renew()

    def renew(self) -> None:
        """Begins a new stretch of time."""
        self._end = time.monotonic() + self._seconds

    def readable(self) -> bool:
        """Returns True: it can be read from."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Receives at least a byte; nothing at the end.

        Raises:
            TimeoutError: the time is over.
            Stopped: the answer is not wanted any more.
        """
        while True:
            self._stop.check()
            left = self._end - time.monotonic()
            if left <= 0:
                raise TimeoutError
            self._sock.settimeout(min(left, TICK))
            try:
                return self._sock.recv_into(buffer)
            except TimeoutError:
                continue

    def close(self) -> None:
        """Lets go of the socket."""
        self._held.close()
        super().close()
