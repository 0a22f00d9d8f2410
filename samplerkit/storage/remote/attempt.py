"""One attempt to read a remote file: what may be asked, what is known of the file, and what can go wrong.

None of the faults leaves the room: `retried` and `plainly` make a `DatasetError` of each. Exceptions of other
libraries hold URLs with their queries, so they are never chained, and their texts never used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol, TypeVar, final, runtime_checkable

from samplerkit.storage.threads import Stop

UNKNOWN_SIZE = -1
"""The size of a file of which the server does not tell it."""


@final
@dataclass(frozen=True)
class Version:
    """Which content a URL had when it was first asked.

    Args:
        size: in bytes; -1 if the server does not tell.
        tag: what changes with the content: the ETag, else a checksum, a generation or the time of the last
            change, with its name before it; "" if it does not say.
    """

    size: int
    tag: str = ""


@final
@dataclass(frozen=True)
class Span:
    """A part of a remote file.

    Args:
        url: of the file.
        offset: of the first byte.
        length: in bytes.
    """

    url: str
    offset: int
    length: int


class Access(Protocol):
    """A way to remote files, in one process; each method makes one attempt.

    All may raise `Transient`, `Refused` and `Stopped`, and no exception of another library.
    """

    without_ranges: set[str]
    """URLs of which only the whole file can be had."""

    def version(self, url: str, stop: Stop) -> Version:
        """Asks for the size and the tag of a file."""

    def part(self, url: str, version: Version, offset: int, length: int, stop: Stop) -> bytes:
        """Reads a part of a file, of at least one byte, and of the version that is given."""

    def small(self, url: str, most: int, stop: Stop) -> tuple[bytes, Version]:
        """Reads a whole small file."""

    def confirm(self, url: str, version: Version, stop: Stop) -> None:
        """Makes certain that parts that were read are of a version, where their reading did not."""

    def may_resume(self, version: Version) -> bool:
        """Returns whether a broken download may resume where it broke."""

    def close(self) -> None:
        """Lets connections go."""


@runtime_checkable
class Streamed(Access, Protocol):
    """A way to remote files whose answers can be read bit by bit, however long they are."""

    def rest(
        self, url: str, version: Version, offset: int, stop: Stop, *, is_verified: bool = False
    ) -> Iterator[bytes]:
        """Reads a file from a byte on to its end; `is_verified`: against a digest, later."""


Result = TypeVar("Result")
Fault = TypeVar("Fault", bound=Exception)


@final
class Transient(Exception):  # noqa: N818  # not an error yet: it may go well the next time
    """An attempt failed in a way that may pass.

    Args:
        reason: what happened, in words of our own.
        wait: seconds that the server asks to wait before the next attempt; None if it does not say.
    """

    def __init__(self, reason: str, wait: float | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.wait = wait


class Refused(Exception):  # noqa: N818  # a DatasetError is made of it
    """Another attempt would not help.

    Args:
        problem: what is wrong, in words of our own.
        hint: what to do about it.
    """

    def __init__(self, problem: str, hint: str = "") -> None:
        super().__init__(problem)
        self.problem = problem
        self.hint = hint


@final
class Absent(Refused):
    """There is no such file, or it may not be read."""


def in_other_words(
    call: Callable[[], Result],
    kinds: type[Fault] | tuple[type[Fault], ...],
    said: Callable[[Fault], Exception],
) -> Result:
    """Calls, and raises something else in place of an error, which is no part of its chain.

    Args:
        call: may raise.
        kinds: of errors.
        said: gives what is raised in place of one; itself, too.
    """
    try:
        return call()
    except kinds as error:
        other = said(error)
    try:
        raise other
    finally:
        # An error holds the frames that it went through: one that holds the error holds a whole storage.
        del other


def causes(error: BaseException) -> list[BaseException]:
    """Gives an exception and all that it was made of: libraries put them in different places."""
    found: list[BaseException] = []
    waiting = [error]
    while waiting:
        cause = waiting.pop(0)
        if any(cause is known for known in found):
            continue
        found.append(cause)
        inner = [cause.__cause__, cause.__context__, getattr(cause, "reason", None), *cause.args]
        waiting += [each for each in inner if isinstance(each, BaseException)]
    return found


def changed() -> Refused:
    """Gives the fault of a file that was replaced after its version was asked."""
    return Refused("was changed while it was in use", "start again, so that all of it is of one version")
