"""Access to remote files: the protocol, and the requests for parts of files."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, final

from samplerkit.storage.remote.version import Version


@final
class Span(NamedTuple):
    """A part of a remote file.

    Args:
        url: the URL of the file.
        offset: the offset of the first byte.
        length: the length in bytes.
    """

    url: str
    offset: int
    length: int


class RemoteAccess(Protocol):
    """The interface of `RemoteStorage`, for modules that do not depend on its implementation.

    With it, the longest chain of imports is three files shorter.
    """

    def version(self, url: str) -> Version:
        """Returns the size and tag that a file had at its first request."""

    def set_version(self, url: str, version: Version) -> None:
        """Sets the version of a file, so that it is not requested."""

    def read(self, spans: Sequence[Span]) -> list[bytes]:
        """Reads parts of files, in the given order."""

    def read_small(self, url: str) -> bytes | None:
        """Reads a whole small file by one request; returns None if it does not exist."""

    def read_shared(self, url: str) -> bytes | None:
        """Reads a whole file that all processes of this machine need; returns None if it does not exist."""

    def fetch(self, url: str) -> AbstractContextManager[Any]:
        """Fetches a whole file into the cache of this machine; its `path` exists within the context."""


MAX_GAP = 64 << 10
"""The largest gap in bytes between two parts of a file that share a request, since reading it is cheaper.

Measured by `python -m tests.benchmarks.remote_gaps` of commit 7237367a: two requests cost the same as one
at a gap of more than 256 KiB on loopback, where there is no latency.
"""

LONGEST = 8 << 20
"""The most bytes of one request, since two requests in parallel are faster."""


@final
@dataclass(frozen=True)
class Requests:
    """The requests for parts of files.

    Args:
        spans: the span of each request.
        places: for each part, the numbers of the requests that contain it.
    """

    spans: list[Span]
    places: dict[Span, range]

    @classmethod
    def of(cls, parts: Iterable[Span]) -> Requests:
        """Joins parts that are close together, and splits long ones.

        Example:
            >>> requests = Requests.of([Span("s3://b/k", 9, 1), Span("s3://b/k", 2, 3)])
            >>> requests.spans, requests.extract(Span("s3://b/k", 9, 1), [b"23456789"])
            ([Span(url='s3://b/k', offset=2, length=8)], b'9')
        """
        spans: list[Span] = []
        places: dict[Span, range] = {}
        for part in sorted(set(parts)):
            end = part.offset + part.length
            if spans and (joined := _joined(spans[-1], part)) is not None:
                spans[-1] = joined
                places[part] = range(len(spans) - 1, len(spans))
                continue
            cuts = range(part.offset, end, LONGEST)
            places[part] = range(len(spans), len(spans) + len(cuts))
            spans += [Span(part.url, at, min(LONGEST, end - at)) for at in cuts]
        return cls(spans, places)

    def extract(self, part: Span, answers: Sequence[bytes]) -> bytes:
        """Extracts a part from the responses; returns no bytes if the part was not requested."""
        numbers = self.places.get(part, range(0))
        if len(numbers) != 1:  # the last request may extend beyond the part, if another one was joined to it
            return b"".join(answers[number] for number in numbers)[: part.length]
        at = part.offset - self.spans[numbers[0]].offset
        return answers[numbers[0]][at : at + part.length]


def _joined(before: Span, part: Span) -> Span | None:
    """Returns one span for two that are close together, or None if they are not or it would be too long."""
    end = max(before.offset + before.length, part.offset + part.length)
    is_near = before.offset <= part.offset <= before.offset + before.length + MAX_GAP
    if part.url != before.url or not is_near or end - before.offset > LONGEST:
        return None
    return Span(part.url, before.offset, end - before.offset)
