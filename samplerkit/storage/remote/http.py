"""Remote files by HTTP: each answer is checked against what was asked for and against the version."""

from __future__ import annotations

import email.utils
import http.client
import io
import re
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import final

from samplerkit.storage.remote.access import (
    MODIFIED,
    UNKNOWN_SIZE,
    Absent,
    Address,
    Refused,
    Transient,
    Version,
    may_pass,
)
from samplerkit.storage.remote.http_connections import Connections, Route, number_in_words
from samplerkit.storage.remote.http_response import Head, Headers, Response
from samplerkit.storage.remote.options import RemoteOptions
from samplerkit.storage.remote.retries import Client, Counts, FileBytes, check_small
from samplerkit.storage.remote.s3 import SignedUrls
from samplerkit.storage.threads import Pool, Stop
from samplerkit.storage.urls import is_web

_ROUTES = 1 << 14
"""Of so many URLs it is kept how they are reached: a dataset may have millions."""

_ROUTE_SECONDS = 300.0
"""So long that is used: a signature holds for an hour."""


@final
class Http(Client):
    """HTTP requests of one process.

    Attributes:
        connections: of this process.
    """

    def __init__(self, options: RemoteOptions, counts: Counts) -> None:
        super().__init__(options, counts)
        self.connections = Connections(options)
        self._s3 = SignedUrls(options.storage_options, self._headers)
        self._routes: dict[str, tuple[float, Route]] = {}

    def serves(self, url: str) -> bool:
        """Whether a file can be read by HTTP: it has such a URL, or is given one."""
        return is_web(url) or self._s3.serves(url)

    def version(self, url: str, stop: Stop) -> Version:
        """Asks for the size and the tag by a GET of the first byte: a URL may be signed for GET alone."""
        with self._asked(url, stop, "0-0") as answer:
            if answer.status != 416:
                check_answer(url, answer)
                if answer.status == 206:
                    return version_of(content_range(answer.headers)[2], answer.headers)
                self.without_ranges.add(url)
                return version_of(content_length(answer.headers), answer.headers)
        with self._asked(url, stop) as answer:  # an empty file has no first byte
            check_answer(url, answer)
            return version_of(content_length(answer.headers), answer.headers)

    def part(self, url: str, version: Version, offset: int, length: int, stop: Stop) -> bytes:
        """Reads a part of a file, of at least one byte; nothing where only the whole of it can be had."""
        last = offset + length - 1
        with self._asked(url, stop, f"{offset}-{last}") as answer:
            end = check_part(url, answer, version, offset, last)
            if answer.status == 200:
                self.without_ranges.add(url)
                return b""
            data = io.BytesIO()  # which gives its bytes without a copy
            data.writelines(self._body(answer, end))
            return data.getvalue()

    def plain_route(self, url: str) -> Route | None:
        """Gives how the server of a file is reached, if parts of it can be had by plain requests."""
        if url in self.without_ranges or not self.serves(url):
            return None
        with suppress(ValueError, Refused, Transient):  # the client of the file says why it cannot be read
            return self._route(url)
        return None

    def rest(
        self, url: str, version: Version, offset: int, pool: Pool, stop: Stop, *, is_verified: bool
    ) -> Iterator[FileBytes]:
        """Reads a file from a byte on to its end, by one request; its end is certain, or a digest is."""
        with self._asked(url, stop, f"{offset}-" if offset else "") as answer:
            end = check_part(url, answer, version, offset, version.size - 1 if offset else None)
            if end == UNKNOWN_SIZE and not is_verified:
                check_end(answer.headers, "let the server send Content-Length, or give a digest of the file")
            known = offset if answer.status == 200 else 0
            for piece in self._body(answer, end):
                yield piece[known:]
                known = max(0, known - len(piece))

    def small(self, url: str, most: int, stop: Stop) -> tuple[bytes, Version]:
        """Reads a whole small file by one request; its version comes with the same answer."""
        with self._asked(url, stop) as answer:
            end = check_part(url, answer, Version(UNKNOWN_SIZE), 0, None)
            version = version_of(end, answer.headers)
            check_end(answer.headers)
            check_small(end, most)
            data = bytearray()
            for piece in self._body(answer, end):
                data += piece
                check_small(len(data), most)
        return bytes(data), Version(len(data), version.tag)

    def fault(self, error: Exception) -> Exception:
        """Gives what an error of a request means."""
        if isinstance(error, ssl.SSLCertVerificationError):
            # Its reason names the certificate and no URL.
            hint = "correct the certificate, or name its authority by REQUESTS_CA_BUNDLE or `verify`"
            problem = f"its server has a certificate that is not to be trusted ({error.verify_message})"
            return Refused(problem, hint)
        if isinstance(error, ValueError | http.client.InvalidURL):
            return Refused(
                "cannot be asked, or was redirected to what cannot", "check the URL and the headers"
            )
        reasons: dict[type[Exception], str] = {
            ssl.SSLError: "TLS failed",
            TimeoutError: f"the answer stalled, for {self.options.timeout:g} s",
            socket.gaierror: "the name of its host is not known",
            http.client.IncompleteRead: "the answer broke off",
            http.client.HTTPException: "the connection broke",
            OSError: f"the connection broke{number_in_words(error)}",
        }
        reason = next((reason for kind, reason in reasons.items() if isinstance(error, kind)), "")
        return Transient(reason) if reason else error

    def close(self) -> None:
        """Closes the connections: those in use when they are not any more."""
        self.connections.close()

    def _body(self, answer: Response, end: int) -> Iterator[FileBytes]:
        """Reads a body of so many bytes, -1 for how many there may be; each piece until the next is read."""
        at = 0
        while piece := answer.read():
            at += len(piece)
            self.counts.add(bytes=len(piece))
            if UNKNOWN_SIZE != end < at:
                raise Transient(f"more than the {end} bytes that were to come")
            yield piece
        if end not in {UNKNOWN_SIZE, at}:
            raise Transient(f"the answer broke off after {at} of {end} bytes")

    @contextmanager
    def _asked(self, url: str, stop: Stop, part: str = "") -> Iterator[Response]:
        self.counts.add(requests=1)
        with self.connections.response(self._route(url), part, stop) as answer:
            yield answer

    def _headers(self, address: Address) -> Headers:
        with self.connections.response(self.connections.route(address), "", Stop()) as answer:
            return answer.headers

    def _route(self, url: str) -> Route:
        until, route = self._routes.get(url, (0.0, None))
        if route is None or until < time.monotonic():
            address = Address(url) if is_web(url) else self._s3.address(url)
            route = self.connections.route(address)
            if len(self._routes) >= _ROUTES:
                self._routes.clear()
            self._routes[url] = time.monotonic() + _ROUTE_SECONDS, route
        return route


def check_part(url: str, answer: Head | Response, version: Version, first: int, last: int | None) -> int:
    """Compares the head of an answer with the request.

    Args:
        url: of the file.
        answer: its head says what it holds.
        version: that it must be of.
        first: the first byte that was asked for.
        last: the last one; None if the whole file was asked for.

    Returns:
        How many bytes its body has, be it of the part or of the whole file; -1 if that is not known.

    Raises:
        Transient: another part, or none.
        Refused: another version.
    """
    headers = answer.headers
    if answer.status in {412, 416}:
        size = content_range(headers)[2] if answer.status == 416 else UNKNOWN_SIZE
        Version(version.size).check(size, "")
        problem = f"was refused by its server (status {answer.status}), from byte {first} on"
        raise Refused(problem, "it may have been changed: start again")
    check_answer(url, answer)
    told = content_length(headers)
    if answer.status == 200:
        check_version(version, told, headers)
        return version.size if told == UNKNOWN_SIZE else told
    *held, size = content_range(headers)
    check_version(version, size, headers)
    if last is None:
        raise Transient("a part, though the whole file was asked for")
    if held != [first, last]:
        raise Transient(f"bytes {held[0]} to {held[1]}, though {first} to {last} were asked for")
    count = last - first + 1
    if told not in {UNKNOWN_SIZE, count}:
        raise Transient(f"{told} bytes announced for a part of {count}")
    return count


_CONTENT_RANGE = re.compile(r"bytes (?:(\d+)-(\d+)|\*)/(\d+|\*)", re.ASCII)

_MOST_DIGITS = 18
"""A longer number is no size of a file; Python refuses to read one of some thousand digits."""


def check_answer(url: str, answer: Head | Response) -> None:
    """Lets an answer pass that has content as it is in the file, and raises the fault that another one means.

    Raises:
        Transient: 408, 429 and 5xx, with the time that `Retry-After` asks for.
        Absent: 401, 403, 404, 410.
        Refused: any other; or content that is compressed on its way: its ranges and lengths are not those of
            the file.
    """
    status, headers = answer.status, answer.headers
    if may_pass(status):
        raise Transient(f"status {status}", _retry_after(headers))
    if status in {404, 410}:
        raise Absent(f"does not exist (status {status})", "check the URL")
    if status in {401, 403}:
        hint = "check the credentials; a signed URL may have expired"
        raise Absent(f"may not be read (status {status})", hint)
    if status not in {200, 206}:
        raise Refused(f"was refused by its server (status {status})")
    encoding = headers.get("content-encoding", "identity").lower()
    # An object of S3 has the one that it was stored with, and is not encoded on its way.
    if is_web(url) and encoding not in {"", "identity"}:
        problem = f"is sent with the content encoding {encoding[:20]!r}, though none was asked for"
        raise Refused(problem, "store it without Content-Encoding")


def version_of(size: int, headers: Headers) -> Version:
    """Gives a version, tagged by the ETag, else by the time of the last change."""
    tag = headers.get("etag", "")
    if not tag and "last-modified" in headers:
        tag = MODIFIED + headers["last-modified"].strip()
    return Version(size, tag)


def check_version(version: Version, size: int, headers: Headers) -> None:
    """Compares an answer with the version that is known, by the header that its tag comes from.

    Raises:
        Refused: it is of another version.
        Transient: it does not tell its version, though that was given before.
    """
    before = MODIFIED if version.tag.startswith(MODIFIED) else ""
    name = "Last-Modified" if before else "ETag"
    told = headers.get(name.lower(), "")
    version.check(size, told and before + told, name)


def content_length(headers: Headers) -> int:
    """Gives the length that is given for a body, -1 if none is.

    Raises:
        Transient: it is longer than any file.
    """
    text = headers.get("content-length", "")
    is_chunked = "chunked" in headers.get("transfer-encoding", "").lower()
    return _number(text) if text.isascii() and text.isdigit() and not is_chunked else UNKNOWN_SIZE


def check_end(headers: Headers, hint: str = "") -> None:
    """Refuses a body of which the end cannot be told from a connection that broke."""
    if content_length(headers) < 0 and "chunked" not in headers.get("transfer-encoding", "").lower():
        raise Refused("is sent without its length, so its end cannot be told from a break", hint)


def content_range(headers: Headers) -> list[int]:
    """Gives what `Content-Range` says: the first byte, the last one, and the size; -1 for what it does not.

    Raises:
        Transient: it is not there, cannot be understood, or says more bytes than any file has.

    Example:
        >>> content_range({"content-range": "bytes 0-9/100"}), content_range({"content-range": "bytes */9"})
        ([0, 9, 100], [-1, -1, 9])
    """
    match = _CONTENT_RANGE.fullmatch(headers.get("content-range", ""))
    if match is None:
        raise Transient("a part without a right Content-Range")
    return [UNKNOWN_SIZE if each in {None, "*"} else _number(each) for each in match.groups()]


def _number(digits: str) -> int:
    if len(digits.lstrip("0")) > _MOST_DIGITS:
        raise Transient(f"a length of {len(digits)} digits, which no file has")
    return int(digits)


def _retry_after(headers: Headers) -> float | None:
    text = headers.get("retry-after", "")
    if text.isascii() and text.isdigit():
        return float(text[:9])
    try:
        moment = email.utils.parsedate_to_datetime(text).timestamp()
    except (ValueError, OverflowError):
        return None
    return max(0.0, moment - time.time())
