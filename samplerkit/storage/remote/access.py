"""How remote files are accessed: what may be asked, what is known of a file, and what can go wrong.

No fault leaves this package: `retried` makes a `DatasetError` of each. Exceptions of other libraries hold
URLs with their queries, so they are never chained, and their texts never shown.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar, final

MODIFIED = "modified "
"""How a tag begins that is only the time of the last change."""

UNKNOWN_SIZE = -1
"""The size of a file of which the server does not tell it."""


OF_HTTP = {"headers", "auth", "verify", "cert"}
"""The storage options that are for HTTP alone."""


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

    @property
    def may_resume(self) -> bool:
        """Whether a broken download may resume where it broke: the tag stands for each byte up to the end."""
        is_strong = self.tag != "" and not self.tag.startswith(("W/", MODIFIED))
        return is_strong and self.size != UNKNOWN_SIZE

    def check(self, size: int, tag: str, name: str = "tag") -> None:
        """Compares the version of an answer with this one.

        Args:
            size: of the whole file as the answer says, -1 if it does not.
            tag: of the answer, "" if it has none.
            name: of the tag, for the message.

        Raises:
            Refused: it is another version.
            Transient: the answer has no tag, though one was given before.
        """
        if UNKNOWN_SIZE not in {size, self.size} and size != self.size:
            raise changed()
        if not self.tag:
            return
        if not tag:
            raise Transient(f"an answer without the {name} that was given before")
        # Weakness tells about equality of meaning; a weak tag that differs is another version all the same.
        if tag.removeprefix("W/") != self.tag.removeprefix("W/"):
            raise changed()


@final
class Span(NamedTuple):
    """A part of a remote file.

    Args:
        url: of the file.
        offset: of the first byte.
        length: in bytes.
    """

    url: str
    offset: int
    length: int


@final
class Address(NamedTuple):
    """Where a file is asked for by HTTP.

    Args:
        url: of HTTP.
        headers: what goes along in place of the `headers`, `auth` and `.netrc` of the user, where the URL
            holds a signature; None for a URL that the user names.
    """

    url: str
    headers: Mapping[str, str] | None = None


class RemoteAccess(Protocol):
    """What reads remote files: a `RemoteStorage`, for who need not know how."""

    def version(self, url: str) -> Version:
        """Returns the size and tag that a file had when it was first asked."""

    def know(self, url: str, version: Version) -> None:
        """Receives the version of a file, so that it is not asked."""

    def read(self, spans: Sequence[Span]) -> list[bytes]:
        """Reads parts of files, in the order asked for."""

    def read_shared(self, url: str, most_bytes: int) -> bytes | None:
        """Reads a file that all processes of this machine need as a whole; None if there is none."""

    def fetch(self, url: str) -> AbstractContextManager[Any]:
        """Brings a whole file into the cache of this machine; its `path` is there within the context."""


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
    """Gives an exception and all that it was made of."""
    found: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None and not any(cause is known for known in found):
        found.append(cause)
        cause = cause.__cause__ or cause.__context__
    return found


def changed() -> Refused:
    """Gives the fault of a file that was replaced after its version was asked."""
    return Refused("was changed while it was in use", "start again, so that all of it is of one version")


NEAR = 64 << 10
"""Bytes between two parts of a file that are read along: they cost less than a request of their own.

Measured by `python -m tests.benchmarks.remote_gaps` of commit 7237367a: two requests and one cost the
same at a gap of more than 256 KiB on loopback, where nothing has to be waited for.
"""

LONGEST = 8 << 20
"""Bytes that one request asks for at most: two at the same time are faster."""


@final
@dataclass(frozen=True)
class Requests:
    """The requests for parts of files.

    Args:
        spans: what each asks for.
        places: the numbers of those that hold a part.
    """

    spans: list[Span]
    places: dict[Span, range]

    @classmethod
    def of(cls, parts: Iterable[Span]) -> Requests:
        """Joins parts that are near one another, and cuts those that are long.

        Example:
            >>> requests = Requests.of([Span("s3://b/k", 9, 1), Span("s3://b/k", 2, 3)])
            >>> requests.spans, requests.taken(Span("s3://b/k", 9, 1), [b"23456789"])
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

    def taken(self, part: Span, answers: Sequence[bytes]) -> bytes:
        """Takes a part out of what was answered; nothing if no byte of it was asked for."""
        numbers = self.places.get(part, range(0))
        if len(numbers) != 1:  # with the last one, what is near the end of the part may have been asked for
            return b"".join(answers[number] for number in numbers)[: part.length]
        at = part.offset - self.spans[numbers[0]].offset
        return answers[numbers[0]][at : at + part.length]


def _joined(before: Span, part: Span) -> Span | None:
    """Gives one span for both, where they are near one another, and together not long."""
    end = max(before.offset + before.length, part.offset + part.length)
    is_near = before.offset <= part.offset <= before.offset + before.length + NEAR
    if part.url != before.url or not is_near or end - before.offset > LONGEST:
        return None
    return Span(part.url, before.offset, end - before.offset)


_PERMANENT_NUMBERS = {
    errno.EINVAL,
    errno.EISDIR,
    errno.ENAMETOOLONG,
    errno.ENOSYS,
    errno.ENOTDIR,
    errno.ENOTSUP,
    errno.EPERM,
    getattr(errno, "EREMCHG", errno.ENOENT),  # s3fs: the bucket lies in another region
}

_MISTAKES = (ValueError, TypeError, LookupError, AttributeError, ImportError, NotImplementedError)


def may_pass(status: int) -> bool:
    """Returns whether a refused request may be answered the next time, by its HTTP status."""
    return status >= 500 or status in {408, 429}


def library_fault(error: Exception, library: str, *, is_mistake: bool = False) -> Transient | Refused:
    """Distinguishes the errors of a library that may pass from those that will not.

    Args:
        error: that it raised.
        library: what messages call it.
        is_mistake: the caller knows that it will not pass.

    Returns:
        `Absent` for "not found" and "forbidden"; `Refused` for a mistake; `Transient` for all else.
    """
    if isinstance(error, FileNotFoundError):
        return Absent("does not exist", "check the URL")
    name, status = f"{type(error).__name__}{_detail(error)}", _status(error)
    if isinstance(error, PermissionError) or status in {401, 403}:
        return Absent(f"may not be read ({name})", "check the credentials in storage_options")
    if is_mistake or _is_permanent(error, name, status):
        hint = "check the URL, the credentials and the other storage_options"
        return Refused(f"cannot be read through {library} ({name})", hint)
    return Transient(f"{library} failed ({name})")


def _is_permanent(error: Exception, name: str, status: int | None) -> bool:
    if status is not None:
        return not may_pass(status)
    numbers = {each.errno for each in causes(error) if isinstance(each, OSError)}
    # Some errors of connections are ValueErrors too; an OSError counts first.
    is_mistake = isinstance(error, _MISTAKES) and not isinstance(error, OSError)
    return is_mistake or "Credentials" in name or bool(numbers & _PERMANENT_NUMBERS)


def _code(error: BaseException) -> str:
    """Gives the code in the answer of an S3 store, as botocore hands it on."""
    response: Any = getattr(error, "response", None)
    found = response.get("Error", {}).get("Code", "") if isinstance(response, dict) else ""
    return found if isinstance(found, str) and found.isalnum() else ""


def _status(error: BaseException) -> int | None:
    """Gives the HTTP status that stores of other kinds put into their exceptions."""
    chain = causes(error)
    # aiohttp gives the status 400 to an answer that broke off, or is not HTTP.
    if any(type(each).__module__ == "aiohttp.http_exceptions" for each in chain):
        return None
    for each in chain:
        told = (getattr(each, name, None) for name in ("status", "status_code", "code"))
        number = next((number for number in told if isinstance(number, int)), 0)
        if 400 <= number < 600:
            return number
    return None


def _detail(error: BaseException) -> str:
    """Gives what is known besides the class: a code of a store, or a number of the system."""
    for each in causes(error):
        if code := _code(each):
            return f": {code}"
    number = error.errno if isinstance(error, OSError) else None
    return f": {os.strerror(number)}" if number else ""
