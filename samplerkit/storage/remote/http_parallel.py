"""Reading of small parts of files by HTTP through many connections in one thread, one attempt each."""

from __future__ import annotations

import select
import ssl
import time
from collections import defaultdict, deque
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from http.client import HTTPConnection, RemoteDisconnected
from typing import Any, NamedTuple

from samplerkit.storage.remote.access import Refused, Span, Transient, Version
from samplerkit.storage.remote.http import Http
from samplerkit.storage.remote.http_checks import check_part
from samplerkit.storage.remote.http_connections import REDIRECTS, Route
from samplerkit.storage.remote.http_response import END_OF_HEAD, MAX_HEAD, Head
from samplerkit.storage.threads import TICK, Pool, Stop

_LONGEST = 1 << 20
"""The most bytes of a part that is read here; for longer ones, switching threads does not matter."""

_UNUSUAL_SECONDS = 60.0
"""Seconds for which a server that redirects, or does not support ranges, is left to the other clients."""


class _Unusual(Exception):  # noqa: N818  # no error, since another client will handle it
    """A response that is not a plain part of a file, such as a redirect."""


class _PartRequest(NamedTuple):
    """A request for a part of a file whose version is known, with the number that the caller gave it."""

    number: int
    route: Route
    span: Span
    version: Version

    def check(self, head: Head) -> None:
        """Compares the head of the response with the request.

        Raises:
            _Unusual: the response is neither a part of known length nor a fault.
            Transient: the response has another part, or none.
            Refused: the response is of another version.
        """
        if head.status < 200 or head.status in REDIRECTS:
            raise _Unusual
        url, offset, length = self.span
        check_part(url, head, self.version, offset, offset + length - 1)
        if head.status != 206 or "content-length" not in head.headers or "transfer-encoding" in head.headers:
            raise _Unusual


class ParallelHttp:
    """Reads parts of files by HTTP through many connections, in the thread of the caller.

    With a thread per connection, each thread has to reacquire the GIL whenever data arrive, and waits for all
    others: with sixteen threads this costs several times as much as the requests. So one thread waits for
    all connections. It makes one plain attempt at each part: failed requests are retried by the client of the
    file, and unusual responses are left to it.

    Args:
        http: the client of this process, with its connections and the timeout: seconds until the head of a
            response is received, and again until its body is.
        pool: the threads that connect; their number also limits the parallel requests to a server.
    """

    def __init__(self, http: Http, pool: Pool) -> None:
        self._http = http
        self._pool = pool
        self._unusual_until: dict[Any, float] = {}

    def read(
        self, spans: Sequence[Span], versions: Mapping[str, Version], stop: Stop
    ) -> dict[int, bytes | Exception]:
        """Requests parts of files.

        Args:
            spans: the parts.
            versions: the versions of the files, by URL.
            stop: stops the requests.

        Returns:
            By number, the part or an exception; parts that another client has to read are missing.

        Raises:
            Stopped: `stop` was set.
        """
        connections, timeout = self._http.connections, self._http.options.timeout
        waiting: defaultdict[Any, deque[_PartRequest]] = defaultdict(deque)
        now = time.monotonic()
        for number, span in enumerate(spans):
            route = self._http.plain_route(span.url) if span.length <= _LONGEST else None
            if route is not None and self._unusual_until.get(route.server, 0.0) < now:
                request = _PartRequest(number, route, span, versions[span.url])
                waiting[route.server].append(request)
        answers: dict[int, bytes | Exception] = {}
        exchanges: list[_Exchange] = []

        def use(route: Route, connection: HTTPConnection) -> None:
            exchanges.append(_Exchange(route, connection, waiting[route.server], answers, timeout))

        def connect(route: Route, stop: Stop) -> None:
            with suppress(Exception):  # the client of the file reports the problem later
                connection = connections.connect(route)
                use(route, connection)
                if stop.is_set:
                    connection.close()

        limit = self._pool.max_threads
        routes = [queue[0].route for queue in waiting.values() for _ in range(min(limit, len(queue)))]
        missing = []
        try:
            for route in routes:
                idle = connections.pop_idle(route)
                if idle is None:
                    missing.append(route)
                else:
                    use(route, idle)
            self._pool.map(connect, missing)
            with suppress(Refused):  # the other requests are also stopped
                self._run_all(exchanges, stop)
        finally:
            for each in exchanges:
                connections.release(each.route, each.connection, is_reusable=each.is_free)
        # Servers without any connection also count as unusual.
        usual = {each.route.server for each in exchanges if not each.is_unusual}
        self._unusual_until.update((server, now + _UNUSUAL_SECONDS) for server in {*waiting} - usual)
        return answers

    def _run_all(self, exchanges: list[_Exchange], stop: Stop) -> None:
        """Makes the waiting requests, each by the next free connection."""
        poll = select.poll()
        runs = {each.connection.sock.fileno(): each.run() for each in exchanges}
        for descriptor in runs:
            poll.register(descriptor, select.POLLIN)
        ready, next_check = [*runs], time.monotonic() + TICK
        while runs:
            stop.check()
            for descriptor in ready:
                if next(runs[descriptor], True):
                    poll.unregister(descriptor)
                    del runs[descriptor]
            ready = [descriptor for descriptor, _ in poll.poll(TICK * 1000 if runs else 0)]
            if (now := time.monotonic()) >= next_check:
                ready, next_check = [*runs], now + TICK  # each checks its timeout


@dataclass
class _Exchange:
    """A connection and its current request.

    Args:
        route: the route to the server.
        connection: a connection to it that is free for a request.
        waiting: the requests to the server that are not started yet, shared by several connections.
        answers: receives the result of each request.
        timeout: seconds until the head is received, and again until the body is.
        is_free: whether no request is running.
        is_unusual: whether a response was unusual.
    """

    route: Route
    connection: HTTPConnection
    waiting: deque[_PartRequest]
    answers: dict[int, bytes | Exception]
    timeout: float
    is_free: bool = True
    is_unusual: bool = False
    # Reused for all requests: allocating memory for each would cost as much as receiving the data.
    _buffer: memoryview = field(default_factory=lambda: memoryview(bytearray()))

    def run(self) -> Iterator[None]:
        """Makes waiting requests, one after another; yields whenever it has to wait for data.

        Raises:
            Refused: a request failed, and another attempt would not help.
        """
        self.connection.sock.settimeout(0)
        has_answered = False
        while self.is_free and self.waiting:
            request = self.waiting.popleft()
            self.is_free = False
            try:
                self.answers[request.number] = yield from self._part(request)
                has_answered = True
            except _Unusual:
                self.is_unusual = True
            except Exception as error:
                # Otherwise the server has closed an idle connection, and another client makes the request.
                if not has_answered or self._received or not isinstance(error, ConnectionError):
                    self.answers[request.number] = error.with_traceback(None)  # its frames refer to this
                if isinstance(error, Refused):
                    raise

    def _part(self, request: _PartRequest) -> Generator[None, None, bytes]:
        """Sends a request, and returns the part."""
        sock, head, (_, offset, length) = self.connection.sock, None, request.span
        end = time.monotonic() + self.timeout
        self._received = body_at = 0
        if len(self._buffer) < length + MAX_HEAD:
            self._buffer = memoryview(bytearray(length + MAX_HEAD))
        sock.sendall(request.route.request(f"{offset}-{offset + length - 1}"))
        yield
        while head is None or self._received < body_at + length:
            try:
                count = sock.recv_into(self._buffer[self._received :])
            except (BlockingIOError, ssl.SSLWantReadError):
                if time.monotonic() >= end:
                    raise TimeoutError from None
                yield
                continue
            if not count:
                raise Transient("the response broke off") if self._received else RemoteDisconnected
            self._received += count
            if head is None and (match := END_OF_HEAD.search(self._buffer[: self._received])):
                body_at, end = match.end(), time.monotonic() + self.timeout
                head = Head.of(bytes(self._buffer[:body_at]))
                request.check(head)
        if self._received > body_at + length:
            raise Transient(f"more than the {length} bytes that were expected")
        self.is_free = head.stays_open
        return bytes(self._buffer[body_at : self._received])
