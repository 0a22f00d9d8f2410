"""Remote files by HTTP, including S3; each response is checked against the request and the version."""

import http.client
import io
import ssl
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, suppress

from samplerkit.storage.remote.access import (
    UNKNOWN_SIZE,
    Refused,
    Transient,
    Version,
    no_size,
    translate_errors,
)
from samplerkit.storage.remote.http_checks import check_part, is_chunked, tag_of, version_of
from samplerkit.storage.remote.http_connections import Connections, Route
from samplerkit.storage.remote.http_response import Headers, Response
from samplerkit.storage.remote.options import RemoteOptions
from samplerkit.storage.remote.retries import Client, Counts, check_small
from samplerkit.storage.remote.s3_signing import SignedUrls
from samplerkit.storage.threads import Pool, Stop
from samplerkit.storage.urls import is_web

_ROUTES = 1 << 14
"""The most URLs whose routes are cached, since a dataset may have millions."""

_ROUTE_SECONDS = 300.0
"""Seconds for which a route is used; a signature is valid for an hour."""


class Http(Client):
    """The HTTP client of one process.

    Attributes:
        connections: the connections of this process.
        without_ranges: URLs whose servers do not support range requests.
    """

    def __init__(self, options: RemoteOptions, counts: Counts) -> None:
        super().__init__(options, counts)
        self.without_ranges: set[str] = set()
        self.connections = Connections(options)
        self._s3 = SignedUrls(options.storage_options, self._headers)
        self._routes: dict[str, tuple[float, Route]] = {}

    def serves(self, url: str) -> bool:
        """Returns whether a file can be read by HTTP: it has an HTTP URL, or a signed one can be made."""
        return is_web(url) or self._s3.serves(url)

    def version(self, url: str, stop: Stop) -> Version:
        """Requests the size and the tag by a GET of the first byte, as a URL may be signed for GET only."""
        with self._request(url, stop, "0-0") as answer:
            if answer.status == 200:
                self.without_ranges.add(url)
            if answer.status != 416:
                return version_of(url, answer)
        with self._request(url, stop) as answer:  # an empty file has no first byte
            return version_of(url, answer)

    def part(self, url: str, version: Version, offset: int, length: int, stop: Stop) -> bytes:
        """Reads a part of at least one byte; returns no bytes if the server does not support ranges."""
        last = offset + length - 1
        with self._request(url, stop, f"{offset}-{last}") as answer:
            end = check_part(url, answer, version, offset, last)
            if answer.status == 200:
                self.without_ranges.add(url)
                return b""
            data = io.BytesIO()  # `getvalue` returns its bytes without a copy
            data.writelines(self._body(answer, end))
            return data.getvalue()

    def plain_route(self, url: str) -> Route | None:
        """Returns the route to the server of a file, or None if plain range requests do not apply."""
        with suppress(ValueError, Refused, Transient):  # the client of the file reports the problem later
            if url not in self.without_ranges and (url in self._routes or self.serves(url)):
                return self._route(url)
        return None

    def rest(self, url: str, version: Version, offset: int, pool: Pool, stop: Stop) -> Iterator[memoryview]:
        """Reads a file from an offset to its end by one request."""
        if offset and offset == version.size:  # the earlier response broke off after the last byte
            return
        with self._request(url, stop, f"{offset}-" if offset else "") as answer:
            end = check_part(url, answer, version, offset, version.size - 1 if offset else None)
            skip = offset if answer.status == 200 else 0
            for piece in self._body(answer, end):
                yield piece[skip:]
                skip = max(0, skip - len(piece))

    def small(self, url: str, stop: Stop) -> tuple[bytes, Version]:
        """Reads a whole small file by one request, with its version from the same response."""
        with self._request(url, stop) as answer:
            size = check_part(url, answer, Version(UNKNOWN_SIZE), 0, None)
            if size == UNKNOWN_SIZE and not is_chunked(answer.headers):
                raise no_size()
            check_small(size)
            data = bytearray()
            for piece in self._body(answer, size):
                data += piece
                check_small(len(data))
        return bytes(data), Version(len(data), tag_of(answer.headers))

    def fault(self, error: Exception) -> Exception:
        """Classifies an exception of a request."""
        if isinstance(error, ssl.SSLCertVerificationError):
            # Its message is about the certificate, without a URL.
            hint = "correct the certificate, or name its authority by REQUESTS_CA_BUNDLE or `verify`"
            problem = f"the certificate of its server is not trusted ({error.verify_message})"
            return Refused(problem, hint)
        if isinstance(error, ValueError | http.client.InvalidURL):
            hint = "check the URL, the headers, and a proxy that the environment names"
            return Refused("cannot be requested: its URL, a header, a redirect or the proxy is invalid", hint)
        if isinstance(error, TimeoutError):
            return Transient(f"the response stalled, for {self.options.timeout:g} s")
        if isinstance(error, OSError | http.client.HTTPException):
            return Transient(f"the connection broke ({type(error).__name__})")
        return error

    def _body(self, answer: Response, end: int) -> Iterator[memoryview]:
        """Yields the pieces of a body of `end` bytes, -1 if unknown; each is valid until the next one."""
        at = 0
        while piece := answer.read():
            at += len(piece)
            self.counts.add(bytes_downloaded=len(piece))
            if UNKNOWN_SIZE != end < at:
                raise Transient(f"more than the {end} bytes that were expected")
            yield piece
        if end not in {UNKNOWN_SIZE, at}:
            raise Transient(f"the response broke off after {at} of {end} bytes")

    def _request(self, url: str, stop: Stop, part: str = "") -> AbstractContextManager[Response]:
        self.counts.add(requests=1)
        return self.connections.response(self._route(url), part, stop)

    def _headers(self, url: str) -> Headers:
        def request() -> Headers:
            with self.connections.response(self.connections.route(url, {}), "", Stop()) as answer:
                return answer.headers

        return translate_errors(request, Exception, self.fault)

    def _route(self, url: str) -> Route:
        until, route = self._routes.get(url, (0.0, None))
        if route is None or until < time.monotonic():
            address = (url, None) if is_web(url) else self._s3.address(url)
            route = self.connections.route(*address)
            if len(self._routes) >= _ROUTES:
                self._routes.clear()
            self._routes[url] = time.monotonic() + _ROUTE_SECONDS, route
        return route
