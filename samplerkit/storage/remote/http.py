"""Remote files by HTTP: each answer is checked against what was asked for and against the version."""

from __future__ import annotations

import http.client
import io
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import final

from samplerkit.storage.remote.access import (
    UNKNOWN_SIZE,
    Address,
    Refused,
    Transient,
    Version,
)
from samplerkit.storage.remote.http_checks import (
    check_answer,
    check_end,
    check_part,
    content_length,
    content_range,
    version_of,
)
from samplerkit.storage.remote.http_connections import Connections, Route, number_in_words
from samplerkit.storage.remote.http_response import Headers, Response
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
