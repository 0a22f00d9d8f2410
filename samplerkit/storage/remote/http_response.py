"""HTTP responses: the head, and a body that is read with a timeout for each part."""

from __future__ import annotations

import http.client
import io
import re
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

Headers = Mapping[str, str]
"""The headers of a response by lower-case name; if a name is repeated, the first one."""

_SHORT_BODY = 4096
"""If at most this many bytes of a body are left, they are read, so that the connection can be reused."""

MAX_HEAD = 1 << 16
_MIB = 1 << 20
END_OF_HEAD = re.compile(rb"\r?\n\r?\n")
_STATUS_LINE = re.compile(r"HTTP/1\.([01]) ([1-5]\d\d)[ \r\n]", re.ASCII)
_HEADER = re.compile(r"^([^\s:]+):(.*)$", re.MULTILINE)


class Head(NamedTuple):
    """The head of a response.

    Args:
        status: the status, such as 200.
        headers: the headers.
        stays_open: whether the connection stays open afterwards.
    """

    status: int
    headers: Headers
    stays_open: bool

    @classmethod
    def of(cls, data: bytes) -> Head:
        """Parses a head, in a tenth of the time of `http.client`, which matters for many small parts.

        Raises:
            BadStatusLine: the data are not HTTP.
        """
        text = data.decode("latin-1")
        match = _STATUS_LINE.match(text)
        if match is None:
            raise http.client.BadStatusLine(text[:80])
        headers = {name.lower(): value.strip() for name, value in reversed(_HEADER.findall(text))}
        connection = headers.get("connection", "").lower()
        stays_open = "keep-alive" in connection if match[1] == "0" else "close" not in connection
        return cls(int(match[2]), headers, stays_open)


class Response:
    """A response whose head was received, and whose body is read by `read`.

    The timeout applies to the head, and to each MiB of the body. A socket's timeout starts again with each
    byte, but this one does not: a server that sends an endless head, or sends too slowly, counts as stalled.

    Args:
        sock: the socket to receive from, with a short timeout; the request was sent already.
        seconds: the timeout for the head, and for each MiB of the body.
        check: called after each timeout of the socket; raises an exception to end the waiting.

    Attributes:
        status: the status of the response.
        headers: the headers of the response.

    Raises:
        TimeoutError: the head was not received in time.
        HTTPException: the response is not HTTP.
        OSError: the connection broke.
    """

    def __init__(self, sock: socket.socket, seconds: float, check: Callable[[], None]) -> None:
        self._receiver = _Receiver(sock, seconds, check)
        source: Any = self._receiver  # HTTPResponse only calls `makefile` of a socket
        response: Any = http.client.HTTPResponse(source)
        response.begin()
        self._response = response
        self.status = self._response.status
        headers = reversed(self._response.getheaders())
        self.headers: Headers = {name.lower(): value.strip() for name, value in headers}
        self._buffer = memoryview(bytearray())

    def read(self) -> memoryview:
        """Reads the next MiB of the body; less at its end, or if the connection was closed.

        The next call reuses the memory, since allocating new pages would cost a quarter of a download.
        """
        self._receiver.renew()
        remaining = self._response.length
        count = _MIB if remaining is None else min(_MIB, remaining)
        if len(self._buffer) < count:
            self._buffer = memoryview(bytearray(count))
        return self._buffer[: self._response.readinto(self._buffer[:count])]

    def finish(self) -> bool:
        """Returns whether the connection can be reused; a short rest of the body is read first."""
        response = self._response
        with suppress(OSError):
            if response.length is not None and response.length <= _SHORT_BODY:
                self.read()
        return response.isclosed() and not response.length and not response.will_close


class _Receiver(io.RawIOBase):
    """Receives from a socket with an overall timeout.

    Args:
        sock: the socket to receive from, with a short timeout.
        seconds: the timeout, which starts again at each `renew`.
        check: called before each receive; may raise an exception.
    """

    def __init__(self, sock: socket.socket, seconds: float, check: Callable[[], None]) -> None:
        super().__init__()
        self._sock = sock
        self._seconds = seconds
        self._check = check
        self.renew()

    def renew(self) -> None:
        """Starts the timeout again."""
        self._end = time.monotonic() + self._seconds

    def makefile(self, _: str) -> io.BufferedReader:
        """Returns a file that reads from this object, like the method of a socket."""
        return io.BufferedReader(self)

    def readable(self) -> bool:
        """Returns True."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Receives at least one byte; returns 0 at the end."""
        while True:
            self._check()
            if time.monotonic() >= self._end:
                raise TimeoutError
            with suppress(TimeoutError):
                return self._sock.recv_into(buffer)
