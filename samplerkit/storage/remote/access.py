"""Access to remote files: the protocol, versions, requests for parts of files, and faults of requests.

No fault leaves this package: `retry` turns each into a `DatasetError`. Exceptions of other libraries may
contain URLs with their queries, so they are never chained, and their texts are never shown.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar, final

MODIFIED = "modified "
"""The prefix of a tag that is only a modification time."""

UNKNOWN_SIZE = -1
"""The size of a file or a body whose size a response does not report."""


@final
@dataclass(frozen=True)
class Version:
    """The version of a remote file at its first request.

    Args:
        size: the size in bytes; -1 in a comparison of which only the tag is known.
        tag: a string that changes with the content: the ETag, else a checksum, a generation or the
            modification time, with its name before it; "" if the server sends none.
    """

    size: int
    tag: str = ""

    @property
    def may_resume(self) -> bool:
        """Whether a broken download may be resumed, since a strong tag identifies every byte."""
        return self.tag != "" and not self.tag.startswith(("W/", MODIFIED))

    def check(self, size: int, tag: str) -> None:
        """Compares the version of a response with this one.

        Args:
            size: the size of the whole file in the response, -1 if it has none.
            tag: the tag in the response, "" if it has none.

        Raises:
            Refused: the versions differ.
            Transient: the response has no tag, though an earlier one had.
        """
        if UNKNOWN_SIZE not in {size, self.size} and size != self.size:
            raise changed()
        if not self.tag:
            return
        if not tag:
            raise Transient("a response without the tag of earlier ones")
        # A weak tag only promises equivalent content; but if it differs, the version differs in any case.
        if tag.removeprefix("W/") != self.tag.removeprefix("W/"):
            raise changed()


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


Result = TypeVar("Result")
Fault = TypeVar("Fault", bound=Exception)


class Transient(Exception):  # noqa: N818  # not an error yet, since the next attempt may succeed
    """An attempt failed, but another one may succeed.

    Args:
        reason: what happened, without text of other libraries.
        wait: seconds that the server asks to wait before the next attempt; None if it does not ask.
    """

    def __init__(self, reason: str, wait: float | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.wait = wait


class Refused(Exception):  # noqa: N818  # it is turned into a DatasetError
    """An attempt failed, and another one would not help.

    Args:
        problem: what is wrong, without text of other libraries.
        hint: what to do about it.
    """

    def __init__(self, problem: str, hint: str = "") -> None:
        super().__init__(problem)
        self.problem = problem
        self.hint = hint


class Absent(Refused):
    """The file does not exist, or may not be read."""


def translate_errors(
    call: Callable[[], Result],
    kinds: type[Fault] | tuple[type[Fault], ...],
    translate: Callable[[Fault], Exception],
) -> Result:
    """Calls a function, and replaces its exceptions by others, without chaining them.

    Args:
        call: the function.
        kinds: the types of exceptions to replace.
        translate: returns the exception to raise instead, which may be the same one.
    """
    try:
        return call()
    except kinds as error:
        other = translate(error)
    try:
        raise other
    finally:
        # Exceptions refer to frames: if a frame referred to the exception, it would keep the storage alive.
        del other


def changed() -> Refused:
    """Returns the fault for a file that was replaced after its version was requested."""
    return Refused("was changed while it was in use", "start again, so that all of it is of one version")


_MISTAKES = (ValueError, TypeError, LookupError, AttributeError, ImportError, NotImplementedError)


def library_fault(error: Exception, library: str, *, is_mistake: bool = False) -> Transient | Refused:
    """Classifies an exception of a library as transient or permanent.

    Args:
        error: the exception.
        library: the name of the library in messages.
        is_mistake: whether the caller knows that the error is permanent.

    Returns:
        `Absent` for a missing file and a missing permission; `Refused` for wrong arguments; `Transient` for
        all others.
    """
    if isinstance(error, FileNotFoundError):
        return Absent("does not exist", "check the URL")
    # The text of the error itself may have secrets.
    reason = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else ""
    name = f"{type(error).__name__}: {reason}" if reason else type(error).__name__
    if isinstance(error, PermissionError):
        return Absent(f"access is denied ({name})", "check the credentials in storage_options")
    # Some connection errors are both an OSError and a ValueError; these are not permanent.
    if is_mistake or (isinstance(error, _MISTAKES) and not isinstance(error, OSError)):
        hint = "check the URL, the credentials and the other storage_options"
        return Refused(f"is refused by {library} ({name})", hint)
    return Transient(f"{library} failed ({name})")


def no_size() -> Refused:
    """Returns the fault for a file whose size is not reported."""
    return Refused("has no size, so truncation could not be detected", "let the server report its size")
