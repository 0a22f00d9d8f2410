"""Remote files by HTTP: each answer is checked against what was asked for and against the version."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import final

from samplerkit.storage.remote.attempt import UNKNOWN_SIZE, Refused, Transient, Version
from samplerkit.storage.remote.clients import http_rules as rules
from samplerkit.storage.remote.clients.http_connections import Connections, StreamedResponse
from samplerkit.storage.remote.counts import Counts
from samplerkit.storage.remote.options import RemoteOptions
from samplerkit.storage.threads import Stop

PIECE = 1 << 20
"""Bytes of a body that are read at a time."""

_HEAD_IS_REFUSED = {400, 403, 405, 501}
"""A server that has no HEAD, or a URL that was signed for GET, answers so."""


@final
class Http:
    """HTTP requests of one process, each method one attempt.

    Args:
        options: how servers are reached.
        counts: of the requests and bytes.
    """

    def __init__(self, options: RemoteOptions, counts: Counts) -> None:
        self._counts = counts
        self._connections = Connections(options)
        self.without_ranges: set[str] = set()
        """URLs whose server answers a range with the whole file."""

    def version(self, url: str, stop: Stop) -> Version:
        """Asks for the size and the tag, by HEAD, or else by a GET of the first byte."""
        with self._asked("HEAD", url, {}, stop) as answer:
            if answer.status not in _HEAD_IS_REFUSED:
                rules.check_status(answer.status, answer.headers)
                rules.check_encoding(answer.headers)
                if answer.headers.get("Accept-Ranges", "").strip().lower() == "none":
                    self.without_ranges.add(url)
                version = rules.version_of(rules.content_length(answer.headers), answer.headers)
                if version.size != UNKNOWN_SIZE and version.tag:
                    return version
        return self._version_by_get(url, stop)

    def part(self, url: str, version: Version, offset: int, length: int, stop: Stop) -> bytes:
        """Reads a part of a file, of at least one byte."""
        with self._asked("GET", url, {"Range": f"bytes={offset}-{offset + length - 1}"}, stop) as answer:
            if answer.status == 200:
                self.without_ranges.add(url)
            return b"".join(self._body(answer, version, offset, length))

    def rest(
        self, url: str, version: Version, offset: int, stop: Stop, *, is_verified: bool = False
    ) -> Iterator[bytes]:
        """Reads a file from a byte on to its end.

        Args:
            url: of the file.
            version: what it must be.
            offset: of the first byte.
            stop: ends it.
            is_verified: it is checked against a digest later, so an end that cannot be told is let pass.
        """
        headers = {"Range": f"bytes={offset}-"} if offset else {}
        with self._asked("GET", url, headers, stop) as answer:
            is_cut_noticed = is_verified or version.size != UNKNOWN_SIZE or rules.has_end(answer.headers)
            if answer.status in {200, 206} and not is_cut_noticed:
                hint = "let the server send Content-Length, or give a digest of the file"
                raise Refused("is sent without its length, so its end cannot be told from a break", hint)
            yield from self._body(answer, version, offset, UNKNOWN_SIZE, is_part=bool(offset))

    def small(self, url: str, most: int, stop: Stop) -> tuple[bytes, Version]:
        """Reads a whole small file by one request; its version comes with the same answer."""
        with self._asked("GET", url, {}, stop) as answer:
            rules.check_status(answer.status, answer.headers)
            rules.check_encoding(answer.headers)
            version = rules.version_of(rules.content_length(answer.headers), answer.headers)
            if not rules.has_end(answer.headers):
                raise Refused("is sent without its length, so its end cannot be told from a break")
            if version.size > most:
                raise Refused(f"has {version.size} bytes, but {most} are the most that are read at once")
            data = bytearray()
            for piece in self._body(answer, version, 0, version.size, is_part=False):
                data += piece
                if len(data) > most:
                    raise Refused(f"has more bytes than {most}, the most that are read at once")
        return bytes(data), Version(len(data), version.tag)

    def confirm(self, url: str, version: Version, stop: Stop) -> None:
        """Does nothing: each answer was of the right version."""

    def may_resume(self, version: Version) -> bool:
        """Returns whether a download may resume where it broke: a strong ETag stands for each byte."""
        return version.tag.startswith('"')

    def close(self) -> None:
        """Closes the connections: those in use when they are not any more."""
        self._connections.close()

    def _version_by_get(self, url: str, stop: Stop) -> Version:
        with self._asked("GET", url, {"Range": "bytes=0-0"}, stop) as answer:
            headers = answer.headers
            if answer.status == 416 and rules.content_range(headers).size == 0:
                return rules.version_of(0, headers)
            rules.check_status(answer.status, headers)
            rules.check_encoding(headers)
            if answer.status == 200:
                self.without_ranges.add(url)
                return rules.version_of(rules.content_length(headers), headers)
            told = rules.content_range(headers)
            answer.read(2)
            return rules.version_of(told.size, headers)

    def _body(
        self, answer: StreamedResponse, version: Version, offset: int, length: int, *, is_part: bool = True
    ) -> Iterator[bytes]:
        """Reads the wanted bytes of an answer, be it a part or the whole, once its head is right.

        Args:
            answer: its head says what it holds.
            version: what it must be of.
            offset: of the first byte that is wanted.
            length: how many bytes are wanted; -1 for all to the end, how many there may be.
            is_part: a part was asked for, so that one may be answered.
        """
        headers = answer.headers
        if answer.status in {412, 416}:
            size = rules.content_range(headers).size if answer.status == 416 else UNKNOWN_SIZE
            rules.check_version(Version(version.size), size, headers)
            problem = f"was refused by its server (status {answer.status}), from byte {offset} on"
            raise Refused(problem, "it may have been changed: start again")
        rules.check_status(answer.status, headers)
        rules.check_encoding(headers)
        told = rules.content_length(headers)
        if answer.status == 206:
            held = rules.content_range(headers)
            rules.check_version(version, held.size, headers)
            self._check_part(held, told, offset, length, is_part=is_part)
            yield from self._pieces(answer, 0, held.last - held.first + 1, is_told=told != UNKNOWN_SIZE)
            return
        # The whole file: of its version, and so long; then the wanted part of it may be taken.
        rules.check_version(version, told, headers)
        size = version.size if told == UNKNOWN_SIZE else told
        end = size if UNKNOWN_SIZE in {told, length} else offset + length
        at = offset
        for piece in self._pieces(answer, offset, end, is_told=told != UNKNOWN_SIZE):
            wanted = piece if length == UNKNOWN_SIZE else piece[: max(0, offset + length - at)]
            at += len(piece)
            if wanted:
                yield wanted

    def _check_part(
        self, held: rules.ContentRange, told: int, offset: int, length: int, *, is_part: bool
    ) -> None:
        if not is_part:
            raise Transient("a part, though the whole file was asked for")
        last = held.last if length == UNKNOWN_SIZE else offset + length - 1
        if (held.first, held.last) != (offset, last):
            problem = f"bytes {held.first} to {held.last}, though {offset} to {last} were asked for"
            raise Transient(problem)
        if told not in {UNKNOWN_SIZE, held.last - held.first + 1}:
            raise Transient(f"{told} bytes announced for a part of {held.last - held.first + 1}")

    def _pieces(self, answer: StreamedResponse, first: int, end: int, *, is_told: bool) -> Iterator[bytes]:
        """Reads the bytes of a body from the first to the end, and checks that these are all that come.

        Args:
            answer: to be read.
            first: of the bytes that are given; those before it are left out.
            end: how many bytes there must be; -1 if that is not known.
            is_told: the head has told the length, so that not more can come: the end may lie before it.
        """
        at = 0
        while not (is_told and at == end) and (piece := answer.read(PIECE)):
            if is_told:
                piece = piece[: end - at]
            self._counts.add(bytes=len(piece))
            before = max(0, first - at)
            at += len(piece)
            if end != UNKNOWN_SIZE and at > end:
                raise Transient(f"more than the {end} bytes that were to come")
            if before < len(piece):
                yield piece[before:]
        if end not in {UNKNOWN_SIZE, at}:
            raise Transient(f"the answer broke off after {at} of {end} bytes")

    @contextmanager
    def _asked(
        self, method: str, url: str, headers: Mapping[str, str], stop: Stop
    ) -> Iterator[StreamedResponse]:
        self._counts.add(requests=1)
        answer = self._connections.request(method, url, headers, stop)
        try:
            yield answer
        finally:
            answer.close()
