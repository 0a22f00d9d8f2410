"""The response to an HTTP request: its head, and a body of which no part may stall."""

from __future__ import annotations

import http.client
import io
import re
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple, final

Headers = Mapping[str, str]
"""The headers of a response, by names in lower case; of several of one name the first."""

_SHORT_BODY = 4096
"""A body of which no more is left is read, since the connection can be used again then."""

_BEFORE = {102, 103}
"""Statuses of responses before the one that was asked for, which `http.client` takes for that, but of 100."""

MOST_HEAD = 1 << 16
_MIB = 1 << 20
END_OF_HEAD = re.compile(rb"\r?\n\r?\n")
_STATUS_LINE = re.compile(r"HTTP/1\.([01]) ([1-5]\d\d)[ \r\n]", re.ASCII)
_HEADER = re.compile(r"^([^\s:]+):(.*)$", re.MULTILINE)


class Head(NamedTuple):
    """The head of a response.

    Args:
        status: such as 200.
        headers: those of the response.
        is_kept: the connection stays open after it.
    """

    status: int
    headers: Headers
    is_kept: bool

    @classmethod
    def of(cls, data: bytes) -> Head:
        """Reads a head that was received: in a tenth of the time of `http.client`, for many small parts.

        Raises:
            BadStatusLine: it is no HTTP.
        """
        text = data.decode("latin-1")
        match = _STATUS_LINE.match(text)
        if match is None:
            raise http.client.BadStatusLine(text[:80])
        headers = {name.lower(): value.strip() for name, value in reversed(_HEADER.findall(text))}
        connection = headers.get("connection", "").lower()
        is_kept = "keep-alive" in connection if match[1] == "0" else "close" not in connection
        return cls(int(match[2]), headers, is_kept)


@final
class Response:
    """A response of which the head was received, and the body is still to be read.

    It has so long for its head, then for each MiB of its body, or the rest of it. The timeout of a socket
    starts again with each byte; this one does not: a head without an end, or a body of which nothing comes
    through, is one that stalls, however much is sent.

    Args:
        sock: to receive from, which gives up waiting from time to time; the request was sent.
        seconds: for the head, and for each MiB of the body.
        check: is called at each of these times, and raises what ends the waiting.

    Attributes:
        status: of the response.
        headers: of the response.

    Raises:
        TimeoutError: the head did not come in time.
        HTTPException: it is no HTTP.
        OSError: the connection broke.
    """

    def __init__(self, sock: socket.socket, seconds: float, check: Callable[[], None]) -> None:
        self._receiver = _Receiver(sock, seconds, check)
        source: Any = self._receiver  # what is asked of a socket is to make a file
        response: Any = http.client.HTTPResponse(source)
        response.begin()
        while response.status in _BEFORE:
            response.headers = None  # so that it begins again
            response.begin()
        self._response = response
        self.status = self._response.status
        named = reversed(self._response.getheaders())
        self.headers: Headers = {name.lower(): value.strip() for name, value in named}
        self._buffer = memoryview(bytearray())

    def read(self) -> memoryview:
        """Reads the next MiB of the body; less at its end, or where the connection was closed.

        They are in memory that the next call uses again: new pages would cost a quarter of a download.
        """
        self._receiver.renew()
        left = self._response.length
        count = _MIB if left is None else min(_MIB, left)
        if len(self._buffer) < count:
            self._buffer = memoryview(bytearray(count))
        return self._buffer[: self._response.readinto(self._buffer[:count])]

    def finish(self) -> bool:
        """Returns whether the connection can be used again; a short rest of the body is read first."""
        response = self._response
        with suppress(OSError):
            if response.length is not None and response.length <= _SHORT_BODY:
                self.read()
        return response.isclosed() and not response.length and not response.will_close


@final
class _Receiver(io.RawIOBase):
    """Receives from a socket, looking at the clock in between.

    Args:
        sock: to receive from, which gives up waiting from time to time.
        seconds: from one renewal to the next.
        check: is called each time.
    """

    def __init__(self, sock: socket.socket, seconds: float, check: Callable[[], None]) -> None:
        super().__init__()
        self._sock = sock
        self._seconds = seconds
        self._check = check
        self.renew()

    def renew(self) -> None:
        """Begins a new stretch of time."""
        self._end = time.monotonic() + self._seconds

    def makefile(self, _: str) -> io.BufferedReader:
        """Gives itself as a file, as a socket does."""
        return io.BufferedReader(self)

    def readable(self) -> bool:
        """Returns True: it can be read from."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Receives at least a byte; nothing at the end."""
        while True:
            self._check()
            if time.monotonic() >= self._end:
                raise TimeoutError
            with suppress(TimeoutError):
                return self._sock.recv_into(buffer)
