"""HTTP responses: the head, a body with a timeout for each part, and the comparison with the request."""

from __future__ import annotations

import email.utils
import http.client
import io
import re
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple, final

from samplerkit.storage.remote.version import (
    MODIFIED,
    UNKNOWN_SIZE,
    Absent,
    Refused,
    Transient,
    Version,
    is_transient,
)
from samplerkit.storage.urls import is_web

Headers = Mapping[str, str]
"""The headers of a response by lower-case name; if a name is repeated, the first one."""

_SHORT_BODY = 4096
"""If at most this many bytes of a body are left, they are read, so that the connection can be reused."""

_INTERIM = {102, 103}
"""Statuses of interim responses, of which `http.client` skips only 100."""

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


@final
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
        while response.status in _INTERIM:
            response.headers = None  # so that `begin` reads another head
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


@final
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


_CONTENT_RANGE = re.compile(r"bytes (?:(\d{1,18})-(\d{1,18})|\*)/(\d{1,18}|\*)", re.ASCII)

_MAX_DIGITS = 18
"""The most digits of a file size; Python refuses to parse numbers of thousands of digits."""


def check_part(url: str, answer: Head | Response, version: Version, first: int, last: int | None) -> int:
    """Compares the head of a response with the request.

    Args:
        url: the URL of the file.
        answer: the response or its head.
        version: the expected version.
        first: the first requested byte.
        last: the last requested byte; None if the whole file was requested.

    Returns:
        The number of bytes of the body, which is the part or the whole file; -1 if unknown.

    Raises:
        Transient: the response has another part, or none.
        Refused: the response is of another version.
    """
    headers = answer.headers
    if answer.status in {412, 416}:
        size = content_range(headers)[2] if answer.status == 416 else UNKNOWN_SIZE
        Version(version.size).check(size, "")
        problem = f"was refused by its server (status {answer.status}), from byte {first} on"
        raise Refused(problem, "it may have been changed: start again")
    check_answer(url, answer)
    announced = content_length(headers)
    if answer.status == 200:
        version.check(announced, _tag(headers, version.tag))
        return version.size if announced == UNKNOWN_SIZE else announced
    *received, size = content_range(headers)
    version.check(size, _tag(headers, version.tag))
    if last is None or received != [first, last]:
        expected = "all" if last is None else f"{first} to {last}"
        raise Transient(f"bytes {received[0]} to {received[1]}, though {expected} were requested")
    count = last - first + 1
    if announced not in {UNKNOWN_SIZE, count}:
        raise Transient(f"{announced} bytes announced for a part of {count}")
    return count


def check_answer(url: str, answer: Head | Response) -> None:
    """Checks that a response has the unchanged content of the file.

    Raises:
        Transient: status 408, 429 or 5xx, with the time of `Retry-After`.
        Absent: status 401, 403, 404 or 410.
        Refused: any other status; or the content is compressed for transfer, so that its ranges and lengths
            are not those of the file.
    """
    status, headers = answer.status, answer.headers
    if is_transient(status):
        raise Transient(f"status {status}", _retry_after(headers))
    if status in {404, 410}:
        raise Absent(f"does not exist (status {status})", "check the URL")
    if status in {401, 403}:
        hint = "check the credentials; a signed URL may have expired"
        raise Absent(f"may not be read (status {status})", hint)
    if status not in {200, 206}:
        raise Refused(f"was refused by its server (status {status})")
    encoding = headers.get("content-encoding", "identity").lower()
    # For S3, this is the encoding with which the object was stored, and not one of the transfer.
    if encoding not in {"", "identity"} and is_web(url):
        problem = f"is sent with the content encoding {encoding[:20]!r}, though none was requested"
        raise Refused(problem, "store it without Content-Encoding")


def version_of(url: str, answer: Response) -> Version:
    """Returns the version in a response, with the ETag as its tag, else the modification time.

    Raises:
        Transient: as `check_answer`, and if the response has no valid size.
        Refused: as `check_answer`.
    """
    check_answer(url, answer)
    headers = answer.headers
    size = content_range(headers)[2] if answer.status == 206 else content_length(headers)
    return Version(size, _tag(headers))


def _tag(headers: Headers, known: str = "") -> str:
    """Returns the ETag, else the modification time; of the kind of the known tag, if there is one."""
    tag, modified = headers.get("etag", ""), headers.get("last-modified", "")
    if known.startswith(MODIFIED) or not (known or tag):
        return f"{MODIFIED}{modified}" if modified else ""
    return tag


def content_length(headers: Headers) -> int:
    """Returns the length of the body in the headers, -1 if they have none.

    Raises:
        Transient: the length is larger than any file.
    """
    text = headers.get("content-length", "")
    if len(text) > _MAX_DIGITS:
        raise Transient(f"a length of {len(text)} digits, which no file has")
    is_chunked = "chunked" in headers.get("transfer-encoding", "").lower()
    return int(text) if text.isascii() and text.isdigit() and not is_chunked else UNKNOWN_SIZE


def check_end(headers: Headers, hint: str = "") -> None:
    """Refuses a body whose end cannot be distinguished from a broken connection."""
    if content_length(headers) < 0 and "chunked" not in headers.get("transfer-encoding", "").lower():
        raise Refused("is sent without its length, so a broken connection could not be detected", hint)


def content_range(headers: Headers) -> list[int]:
    """Parses `Content-Range`: the first byte, the last one, and the size; -1 for missing values.

    Raises:
        Transient: the header is missing or invalid, or a number has more than 18 digits.

    Example:
        >>> content_range({"content-range": "bytes 0-9/100"}), content_range({"content-range": "bytes */9"})
        ([0, 9, 100], [-1, -1, 9])
    """
    match = _CONTENT_RANGE.fullmatch(headers.get("content-range", ""))
    if match is None:
        raise Transient("a part without a valid Content-Range")
    return [UNKNOWN_SIZE if each in {None, "*"} else int(each) for each in match.groups()]


def _retry_after(headers: Headers) -> float | None:
    text = headers.get("retry-after", "")
    if text.isascii() and text.isdigit():
        return float(text[:9])
    try:
        moment = email.utils.parsedate_to_datetime(text).timestamp()
    except (ValueError, OverflowError):
        return None
    return max(0.0, moment - time.time())
