"""Parts of files by HTTP through many connections, all in one thread: the first attempt at each."""

from __future__ import annotations

import select
import ssl
import time
from collections import defaultdict, deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import suppress
from http.client import HTTPConnection, IncompleteRead, RemoteDisconnected
from typing import Any, NamedTuple, final

from samplerkit.storage.remote.access import Refused, Span, Transient, Version
from samplerkit.storage.remote.http_checks import check_part
from samplerkit.storage.remote.http_connections import REDIRECTS, Connections, Route
from samplerkit.storage.remote.http_response import END_OF_HEAD, MOST_HEAD, Head
from samplerkit.storage.threads import TICK, Pool, Stop

_LONGEST = 1 << 20
"""Bytes of a part that is read here; a longer one costs more for its bytes than for the change of threads."""

_UNUSUAL_SECONDS = 60.0
"""So long a server that redirects, or has no parts, is left to the clients that know about that."""


class _Unusual(Exception):  # noqa: N818  # no error: a request of its own will see to it
    """A response that is no plain part of a file, such as a redirect."""


@final
class _PartRequest(NamedTuple):
    """A request for a part of a file of which the version is known; its number is the caller's."""

    number: int
    route: Route
    span: Span
    version: Version

    def check(self, head: Head) -> None:
        """Compares the head of the response with the request.

        Raises:
            _Unusual: it is neither a part of known length nor a fault.
            Transient: another part, or none.
            Refused: another version.
        """
        if head.status < 200 or head.status in REDIRECTS:
            raise _Unusual
        url, offset, length = self.span
        check_part(url, head, self.version, offset, offset + length - 1)
        if head.status != 206 or "content-length" not in head.headers or "transfer-encoding" in head.headers:
            raise _Unusual


@final
class ParallelHttp:
    """Reads parts of files by HTTP through many connections, in the thread of the caller.

    With a thread for each connection, each has to get the interpreter's lock back whenever something has
    arrived, and waits for all the others: with sixteen of them this costs several times what the requests
    do. So one thread waits for all connections. It makes one plain attempt at each part: what fails is tried
    again by the client of the file, and what is unusual is left to it.

    Args:
        connections: of this process.
        route_to: gives how a file is reached, if parts of it can be had by plain requests.
        timeout: seconds until the head of a response is there, and then until its body is.
        pool: the threads that connect; as many requests are under way to a server at most.
    """

    def __init__(
        self, connections: Connections, route_to: Callable[[str], Route | None], timeout: float, pool: Pool
    ) -> None:
        self._connections = connections
        self._route_to = route_to
        self._timeout = timeout
        self._pool = pool
        self._unusual_until: dict[Any, float] = {}

    def read(
        self, spans: Sequence[Span], versions: Mapping[str, Version], stop: Stop
    ) -> dict[int, bytes | Exception]:
        """Asks for parts of files.

        Args:
            spans: the parts.
            versions: of the files, by URL.
            stop: ends it.

        Returns:
            The part, or what went wrong, by number; nothing for those that need another way.

        Raises:
            Stopped: they are not wanted any more.
        """
        waiting: defaultdict[Any, deque[_PartRequest]] = defaultdict(deque)
        now = time.monotonic()
        for number, span in enumerate(spans):
            route = self._route_to(span.url) if span.length <= _LONGEST else None
            if route is not None and self._unusual_until.get(route.server, 0.0) < now:
                request = _PartRequest(number, route, span, versions[span.url])
                waiting[route.server].append(request)
        answers: dict[int, bytes | Exception] = {}
        exchanges: list[_Exchange] = []

        def use(route: Route, connection: HTTPConnection) -> None:
            exchanges.append(_Exchange(route, connection, waiting[route.server], answers, self._timeout))

        def connect(route: Route, stop: Stop) -> None:
            with suppress(Exception):  # the client of the file finds out why it cannot
                connection = self._connections.connected(route)
                use(route, connection)
                if stop.is_set:
                    connection.close()

        most = self._pool.most
        routes = [queue[0].route for queue in waiting.values() for _ in range(min(most, len(queue)))]
        missing = []
        try:
            for route in routes:
                kept = self._connections.kept(route)
                if kept is None:
                    missing.append(route)
                else:
                    use(route, kept)
            self._pool.map(connect, missing)
            with suppress(Refused):  # the others are given up with it
                self._exchanged(exchanges, stop)
        finally:
            for each in exchanges:
                self._connections.release(each.route, each.connection, may_be_kept=each.is_free)
        # Also a server that no connection was made to.
        usual = {each.route.server for each in exchanges if not each.is_unusual}
        self._unusual_until.update((server, now + _UNUSUAL_SECONDS) for server in {*waiting} - usual)
        return answers

    def _exchanged(self, exchanges: list[_Exchange], stop: Stop) -> None:
        """Makes the requests that wait, each by the next connection that is free."""
        poll = select.poll()
        runs = {each.connection.sock.fileno(): each.run() for each in exchanges}
        for descriptor in runs:
            poll.register(descriptor, select.POLLIN)
        ready, next_look = [*runs], time.monotonic() + TICK
        while runs:
            stop.check()
            for descriptor in ready:
                if next(runs[descriptor], True):
                    poll.unregister(descriptor)
                    del runs[descriptor]
            ready = [descriptor for descriptor, _ in poll.poll(TICK * 1000 if runs else 0)]
            if (now := time.monotonic()) >= next_look:
                ready, next_look = [*runs], now + TICK  # each looks at the clock


@final
class _Exchange:
    """A connection, and the request that is under way on it.

    Args:
        route: to the server.
        connection: to it, free for a request.
        waiting: the requests to the server that are not begun, of several connections.
        answers: receives what becomes of each.
        timeout: seconds until the head is there, and then until the body is.

    Attributes:
        is_free: nothing is under way.
        is_unusual: a response was.
    """

    def __init__(
        self,
        route: Route,
        connection: HTTPConnection,
        waiting: deque[_PartRequest],
        answers: dict[int, bytes | Exception],
        timeout: float,
    ) -> None:
        self.route = route
        self.connection = connection
        self._waiting = waiting
        self._answers = answers
        self._timeout = timeout
        self.is_free, self.is_unusual = True, False
        self._received = 0
        # Of one request after another: new memory for each would cost as much as to receive into it.
        self._buffer = memoryview(bytearray())

    def run(self) -> Iterator[None]:
        """Makes the requests that wait, one after another; yields until something may have arrived.

        Raises:
            Refused: another attempt would not help.
        """
        self.connection.sock.settimeout(0)
        has_answered = False
        while self.is_free and self._waiting:
            request = self._waiting.popleft()
            self.is_free = False
            try:
                self._answers[request.number] = yield from self._part(request)
                has_answered = True
            except _Unusual:
                self.is_unusual = True
            except Exception as error:
                # Else the server has closed what it had kept: the request needs another way.
                if not has_answered or self._received or not isinstance(error, ConnectionError):
                    self._answers[request.number] = error.with_traceback(None)  # its frames would hold this
                if isinstance(error, Refused):
                    raise

    def _part(self, request: _PartRequest) -> Generator[None, None, bytes]:
        """Sends a request, and receives the part."""
        sock, head, (_, offset, length) = self.connection.sock, None, request.span
        end = time.monotonic() + self._timeout
        self._received = body_at = 0
        if len(self._buffer) < length + MOST_HEAD:
            self._buffer = memoryview(bytearray(length + MOST_HEAD))
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
                raise IncompleteRead(b"") if self._received else RemoteDisconnected
            self._received += count
            if head is None and (found := END_OF_HEAD.search(self._buffer[: self._received])):
                body_at, end = found.end(), time.monotonic() + self._timeout
                head = Head.of(bytes(self._buffer[:body_at]))
                request.check(head)
        if self._received > body_at + length:
            raise Transient(f"more than the {length} bytes that were to come")
        self.is_free = head.is_kept
        return bytes(self._buffer[body_at : self._received])
