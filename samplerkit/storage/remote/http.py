"""Remote files by HTTP: each answer is checked against what was asked for and against the version."""

from __future__ import annotations

import email.utils
import http.client
import re
import socket
import ssl
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
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
from samplerkit.storage.remote.http_connections import (
    REDIRECTS,
    Connections,
    PartRequest,
    Unusual,
    number_in_words,
)
from samplerkit.storage.remote.http_response import Head, Headers, Response
from samplerkit.storage.remote.options import RemoteOptions
from samplerkit.storage.remote.retries import Client, Counts, FileBytes, check_small
from samplerkit.storage.remote.s3 import SignedUrls
from samplerkit.storage.threads import Pool, Stop
from samplerkit.storage.urls import is_web

PIECE = 1 << 20
"""Bytes of a body that are read at a time; of a longer part, all of it."""

_HEAD_IS_REFUSED = {400, 403, 405, 501}
"""A server that has no HEAD, or a URL that was signed for GET, answers so."""


@final
class Http(Client):
    """HTTP requests of one process.

    Attributes:
        connections: of this process.
    """

    def __init__(self, options: RemoteOptions, counts: Counts) -> None:
        super().__init__(options, counts)
        self.connections = Connections(options)
        self._s3 = SignedUrls(options.storage_options, self._head)

    def serves(self, url: str) -> bool:
        """Whether a file can be read by HTTP: it has such a URL, or is given one."""
        return is_web(url) or self._s3.serves(url)

    def version(self, url: str, stop: Stop) -> Version:
        """Asks for the size and the tag, by HEAD, or else by a GET of the first byte."""
        with self._asked("HEAD", url, stop) as answer:
            if answer.status not in _HEAD_IS_REFUSED:
                check_answer(answer)
                if answer.headers.get("accept-ranges", "").lower() == "none":
                    self.without_ranges.add(url)
                version = version_of(content_length(answer.headers), answer.headers)
                if version.size != UNKNOWN_SIZE and version.tag:
                    return version
        with self._asked("GET", url, stop, "0-0") as answer:
            headers = answer.headers
            if answer.status == 416 and content_range(headers).size == 0:
                return version_of(0, headers)
            check_answer(answer)
            if answer.status == 200:
                self.without_ranges.add(url)
                return version_of(content_length(headers), headers)
            return version_of(content_range(headers).size, headers)

    def pieces(self, url: str, version: Version, offset: int, length: int, stop: Stop) -> Iterator[FileBytes]:
        """Reads a part of a file, of at least one byte."""
        with self._asked("GET", url, stop, f"{offset}-{offset + length - 1}") as answer:
            if answer.status == 200:
                self.without_ranges.add(url)
            yield from self._body(answer, version, offset, length)

    def plain_request(self, url: str, version: Version, offset: int, length: int) -> PartRequest | None:
        """Gives the request for a part of a file, of a version, if it can be a plain one."""
        if url in self.without_ranges or not self.serves(url):
            return None
        with suppress(ValueError, Refused, Transient):  # the client of the file says why it cannot be read
            route = self.connections.route(self._address("GET", url))
            return PartRequest(route, offset, length, partial(_check_plain, url, version, offset, length))
        return None

    def rest(
        self, url: str, version: Version, offset: int, pool: Pool, stop: Stop, *, is_verified: bool
    ) -> Iterator[FileBytes]:
        """Reads a file from a byte on to its end, by one request; its end is certain, or a digest is."""
        with self._asked("GET", url, stop, f"{offset}-" if offset else "") as answer:
            if answer.status in {200, 206} and version.size == UNKNOWN_SIZE and not is_verified:
                check_end(answer.headers, "let the server send Content-Length, or give a digest of the file")
            yield from self._body(answer, version, offset, UNKNOWN_SIZE, is_part=bool(offset))

    def small(self, url: str, most: int, stop: Stop) -> tuple[bytes, Version]:
        """Reads a whole small file by one request; its version comes with the same answer."""
        with self._asked("GET", url, stop) as answer:
            check_answer(answer)
            version = version_of(content_length(answer.headers), answer.headers)
            check_end(answer.headers)
            check_small(version.size, most)
            data = bytearray()
            for piece in self._body(answer, version, 0, version.size, is_part=False):
                data += piece
                check_small(len(data), most)
        return bytes(data), Version(len(data), version.tag)

    def fault(self, error: Exception) -> Exception:
        """Gives what an error of a request means."""
        return fault(error, self.options.timeout)

    def close(self) -> None:
        """Closes the connections: those in use when they are not any more."""
        self.connections.close()

    def _body(
        self, answer: Response, version: Version, offset: int, length: int, *, is_part: bool = True
    ) -> Iterator[FileBytes]:
        """Reads the wanted bytes of an answer, be it a part or the whole, once its head is right.

        Args:
            answer: its head says what it holds.
            version: what it must be of.
            offset: of the first byte that is wanted.
            length: how many bytes are wanted; -1 for all to the end, how many there may be.
            is_part: a part was asked for, so that one may be answered.
        """
        told, first, end = check_part(answer, version, offset, length, is_part=is_part)
        is_told = told != UNKNOWN_SIZE
        last = sys.maxsize if length == UNKNOWN_SIZE else first + length
        at = 0
        most = max(PIECE, length)
        # Where the head has told the length not more can come, and the end may lie before it.
        while not (is_told and at == end) and (piece := answer.read(most)):
            if is_told:
                piece = piece[: end - at]
            self.counts.add(bytes=len(piece))
            wanted = piece[max(0, first - at) : max(0, last - at)]
            at += len(piece)
            if end != UNKNOWN_SIZE and at > end:
                raise Transient(f"more than the {end} bytes that were to come")
            if wanted:
                yield wanted
        if end not in {UNKNOWN_SIZE, at}:
            raise Transient(f"the answer broke off after {at} of {end} bytes")

    @contextmanager
    def _asked(self, method: str, url: str, stop: Stop, part: str = "") -> Iterator[Response]:
        self.counts.add(requests=1)
        with self.connections.response(method, self._address(method, url), part, stop) as answer:
            answer.headers = _of_content(url, answer.headers)
            yield answer

    def _head(self, address: Address) -> Headers:
        with self.connections.response("HEAD", address, "", Stop()) as answer:
            return answer.headers

    def _address(self, method: str, url: str) -> Address:
        return Address(url) if is_web(url) else self._s3.address(method, url)


def check_part(
    answer: Head | Response, version: Version, offset: int, length: int, *, is_part: bool = True
) -> tuple[int, int, int]:
    """Compares the head of an answer with the request, as `_body` describes it.

    Returns:
        The length that is given for the body, -1 if none is; the place in the body of the first byte that is
        wanted; and where the body ends, -1 if that is not known.

    Raises:
        Transient: another part, or none.
        Refused: another version.
    """
    headers = answer.headers
    if answer.status in {412, 416}:
        size = content_range(headers).size if answer.status == 416 else UNKNOWN_SIZE
        Version(version.size).check(size, "")
        problem = f"was refused by its server (status {answer.status}), from byte {offset} on"
        raise Refused(problem, "it may have been changed: start again")
    check_answer(answer)
    told = content_length(headers)
    if answer.status == 206:
        held = content_range(headers)
        check_version(version, held.size, headers)
        if not is_part:
            raise Transient("a part, though the whole file was asked for")
        held.check(offset, held.last if length == UNKNOWN_SIZE else offset + length - 1, told)
        return told, 0, held.last - held.first + 1
    # The whole file: of its version, and so long; then the wanted part of it may be taken.
    check_version(version, told, headers)
    size = version.size if told == UNKNOWN_SIZE else told
    ends = UNKNOWN_SIZE not in {told, length}
    return told, offset, offset + length if ends else size


def _check_plain(url: str, version: Version, offset: int, length: int, head: Head) -> None:
    """Compares the head of the answer to a plain request with that request.

    Raises:
        Unusual: it is neither a part of known length nor a fault.
        Transient: another part, or none.
        Refused: another version.
    """
    if head.status < 200 or head.status in REDIRECTS:
        raise Unusual
    head = head._replace(headers=_of_content(url, head.headers))
    told = check_part(head, version, offset, length)[0]
    if head.status != 206 or told == UNKNOWN_SIZE:
        raise Unusual


def _of_content(url: str, headers: Headers) -> Headers:
    """Gives the headers of a response without the encoding that an object of S3 was stored with."""
    if is_web(url) or "content-encoding" not in headers:
        return headers
    return {name: value for name, value in headers.items() if name != "content-encoding"}


_CONTENT_RANGE = re.compile(r"bytes (?:(\d+)-(\d+)|\*)/(\d+|\*)", re.ASCII)

_MOST_DIGITS = 18
"""A longer number is no size of a file; Python refuses to read one of some thousand digits."""


@final
@dataclass(frozen=True)
class ContentRange:
    """What a `Content-Range` says.

    Args:
        first: the first byte, -1 if there is none.
        last: the last byte, -1 if there is none.
        size: of the whole file, -1 if it is not told.
    """

    first: int
    last: int
    size: int

    def check(self, first: int, last: int, told: int) -> None:
        """Compares a part with the one that was asked for, and with the length that is given for the body.

        Raises:
            Transient: it is another one.
        """
        if (self.first, self.last) != (first, last):
            problem = f"bytes {self.first} to {self.last}, though {first} to {last} were asked for"
            raise Transient(problem)
        if told not in {UNKNOWN_SIZE, last - first + 1}:
            raise Transient(f"{told} bytes announced for a part of {last - first + 1}")


def fault(error: Exception, timeout: float) -> Exception:
    """Says in words of our own what an exception of a request means; other errors are given as they are."""
    if isinstance(error, ssl.SSLCertVerificationError):
        # Its reason names the certificate and no URL.
        hint = "correct the certificate, or name its authority by REQUESTS_CA_BUNDLE or `verify`"
        problem = f"its server has a certificate that is not to be trusted ({error.verify_message})"
        return Refused(problem, hint)
    if isinstance(error, ValueError | http.client.InvalidURL):
        return Refused("cannot be asked, or was redirected to what cannot", "check the URL and the headers")
    reasons: dict[type[Exception], str] = {
        ssl.SSLError: "TLS failed",
        TimeoutError: f"the answer stalled, for {timeout:g} s",
        socket.gaierror: "the name of its host is not known",
        http.client.IncompleteRead: "the answer broke off",
        http.client.HTTPException: "the connection broke",
        OSError: f"the connection broke{number_in_words(error)}",
    }
    reason = next((reason for kind, reason in reasons.items() if isinstance(error, kind)), "")
    return Transient(reason) if reason else error


def check_answer(answer: Head | Response) -> None:
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
    if encoding not in {"", "identity"}:
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


def content_range(headers: Headers) -> ContentRange:
    """Gives what `Content-Range` says.

    Raises:
        Transient: it is not there, cannot be understood, or says more bytes than any file has.

    Example:
        >>> content_range({"content-range": "bytes 0-9/100"})
        ContentRange(first=0, last=9, size=100)
    """
    match = _CONTENT_RANGE.fullmatch(headers.get("content-range", ""))
    if match is None:
        raise Transient("a part without a right Content-Range")
    first, last, size = match.groups()
    return ContentRange(
        -1 if first is None else _number(first),
        -1 if last is None else _number(last),
        -1 if size == "*" else _number(size),
    )


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
