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

MOST_HEAD = 1 << 16
_MIB = 1 << 20
_HEAD_PIECE = 4096
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
        """Reads a head that was received.

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

    A head, and a body whose length is known, are received as they come, since each call gives up the
    interpreter's lock: `http.client`, which reads line by line, decodes only what comes in chunks.

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
        self._receiver = receiver = _Receiver(sock, seconds, check)
        self.status = 100
        while self.status < 200:  # such as "continue": the response comes after it
            head = receiver.head()
            self.status, self.headers, self._is_kept = Head.of(head)
        length = self.headers.get("content-length", "")
        self._left = int(length) if length.isascii() and length.isdigit() and len(length) < 20 else None
        self._chunks: http.client.HTTPResponse | None = None
        if self.status in {204, 304}:
            self._left = 0
        elif "transfer-encoding" in self.headers:
            receiver.received = head + receiver.received
            again: Any = receiver  # what it asks of a socket is to make a file
            self._chunks = http.client.HTTPResponse(again)
            self._chunks.begin()

    def read(self) -> bytes | memoryview:
        """Reads the next MiB of the body; less at its end, or where the connection was closed.

        They are in memory that the next call uses again: new pages would cost a quarter of a download.
        """
        self._receiver.renew()
        if self._chunks is not None:
            return self._chunks.read(_MIB)
        if self._left is None:
            return self._receiver.exactly(_MIB)
        data = self._receiver.exactly(min(_MIB, self._left))
        self._left -= len(data)
        return data

    def finish(self) -> bool:
        """Returns whether the connection can be used again; a short rest of the body is read first."""
        if self._chunks is not None:
            is_read = self._chunks.isclosed()
        else:
            with suppress(OSError):
                if self._left is not None and self._left <= _SHORT_BODY:
                    self.read()
            is_read = self._left == 0
        return is_read and self._is_kept and not self._receiver.received


@final
class _Receiver(io.RawIOBase):
    """Receives from a socket, looking at the clock in between.

    Args:
        sock: to receive from, which gives up waiting from time to time.
        seconds: from one renewal to the next.
        check: is called each time.

    Attributes:
        received: bytes that came, and are not taken.
    """

    def __init__(self, sock: socket.socket, seconds: float, check: Callable[[], None]) -> None:
        super().__init__()
        self._sock = sock
        self._seconds = seconds
        self._check = check
        self._buffer = memoryview(bytearray())
        self.received = b""
        self.renew()

    def renew(self) -> None:
        """Begins a new stretch of time."""
        self._end = time.monotonic() + self._seconds

    def head(self) -> bytes:
        """Receives a head, with its empty line."""
        piece = bytearray(_HEAD_PIECE)
        while (end := END_OF_HEAD.search(self.received)) is None:
            size = self._received_into(piece)
            if not size and not self.received:
                raise http.client.RemoteDisconnected("no response")
            if not size or len(self.received) > MOST_HEAD:
                raise http.client.HTTPException("a head without an end")
            self.received += piece[:size]
        head, self.received = self.received[: end.end()], self.received[end.end() :]
        return head

    def exactly(self, count: int) -> memoryview:
        """Receives so many bytes; less if the connection was closed before."""
        if len(self._buffer) < count:
            self._buffer = memoryview(bytearray(count))
        data = self._buffer[:count]
        at = min(count, len(self.received))
        data[:at], self.received = self.received[:at], self.received[at:]
        while at < count and (more := self._received_into(data[at:])):
            at += more
        return data[:at]

    def makefile(self, _: str) -> io.BufferedReader:
        """Gives itself as a file, as a socket does."""
        return io.BufferedReader(self)

    def readable(self) -> bool:
        """Returns True: it can be read from."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Receives at least a byte; nothing at the end."""
        if not self.received:
            return self._received_into(buffer)
        data = self.received[: len(buffer)]
        self.received = self.received[len(data) :]
        buffer[: len(data)] = data
        return len(data)

    def _received_into(self, buffer: Any) -> int:
        while True:
            self._check()
            if time.monotonic() >= self._end:
                raise TimeoutError
            with suppress(TimeoutError):
                return self._sock.recv_into(buffer)
