"""What a client does in one attempt; trying again, within a budget; and the error when that does not help."""

from __future__ import annotations

import logging
import secrets
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, TypeVar, final

from samplerkit.errors import DatasetError, SamplerkitError
from samplerkit.storage.opening import AbsentError
from samplerkit.storage.remote.access import (
    UNKNOWN_SIZE,
    Absent,
    Refused,
    Transient,
    Version,
    in_other_words,
)
from samplerkit.storage.remote.options import RemoteOptions
from samplerkit.storage.threads import Pool, Stop, Stopped
from samplerkit.storage.urls import shown

_LOG = logging.getLogger(__name__)
_FIRST_WAIT = 0.5
_LONGEST_WAIT = 30.0
_DRAWS = secrets.SystemRandom()  # a seeded one would let forked workers wait for equal times

_PART = 4 << 20
"""Bytes of a whole file that one request asks for, where answers cannot be read bit by bit."""

_AT_A_TIME = 4
"""Such parts that are on their way at a time: one connection of a store is slower than the network."""

Result = TypeVar("Result")

FileBytes = bytes | memoryview
"""Bytes of a file; those of a view until the next are read."""


@final
@dataclass(frozen=True)
class RemoteStats:
    """What one process has asked of remote servers so far.

    Args:
        requests: requests that were made, each attempt one; those that only followed a redirect do not count.
        bytes: of file content that arrived, also of attempts that failed later.
        retries: attempts after the first one of a request.
        downloads: whole files that this process brought into the cache.
    """

    requests: int = 0
    bytes: int = 0
    retries: int = 0
    downloads: int = 0


@final
class Counts:
    """The figures of `RemoteStats` while they grow."""

    def __init__(self, stats: RemoteStats | None = None) -> None:
        self._lock = threading.Lock()
        self._so_far: dict[str, Any] = asdict(stats or RemoteStats())

    @property
    def stats(self) -> RemoteStats:
        """The figures so far."""
        with self._lock:
            return RemoteStats(**self._so_far)

    def add(self, **more: int) -> None:
        """Adds to figures, by their names."""
        with self._lock:
            for name, number in more.items():
                self._so_far[name] += number


class Client(ABC):
    """A way to remote files, in one process; each method makes one attempt, and may raise what it meets.

    Args:
        options: how they are reached, and how often that is tried.
        counts: of the requests, bytes and retries.
    """

    def __init__(self, options: RemoteOptions, counts: Counts) -> None:
        self.options = options
        self.counts = counts

    @abstractmethod
    def version(self, url: str, stop: Stop) -> Version:
        """Asks for the size and the tag of a file."""

    @abstractmethod
    def part(self, url: str, version: Version, offset: int, length: int, stop: Stop) -> bytes:
        """Reads a part of a file, of at least one byte; nothing where only the whole of it can be had."""

    @abstractmethod
    def fault(self, error: Exception) -> Exception:
        """Gives what an error of its library means, in words of our own; other errors as they are."""

    def small(self, url: str, most: int, stop: Stop) -> tuple[bytes, Version]:
        """Reads a whole small file, after asking for its version."""
        version = self.version(url, stop)
        _check_size(version)
        check_small(version.size, most)
        data = self.part(url, version, 0, version.size, stop) if version.size else b""
        self.confirm(url, version, stop)
        return data, version

    def rest(
        self, url: str, version: Version, offset: int, pool: Pool, stop: Stop, *, is_verified: bool
    ) -> Iterator[FileBytes]:
        """Reads a file from a byte on to its end, by parts, several at a time.

        Args:
            url: of the file.
            version: that it must be of.
            offset: of the first byte.
            pool: the threads that read parts.
            stop: ends it.
            is_verified: it is checked against a digest later.
        """
        _check_size(version)

        def part(at: int, stop: Stop) -> bytes:
            return self.part(url, version, at, min(_PART, version.size - at), stop)

        places = range(offset, version.size, _PART)
        for first in range(0, len(places), _AT_A_TIME):
            yield from pool.map(part, places[first : first + _AT_A_TIME])
        self.confirm(url, version, stop)

    def confirm(self, url: str, version: Version, stop: Stop) -> None:
        """Makes certain that parts that were read are of a version, where their reading did not."""
        return


def _check_size(version: Version) -> None:
    if version.size == UNKNOWN_SIZE:
        raise Refused("has no size by its filesystem, so a break could not be noticed")


def check_small(size: int, most: int) -> None:
    """Refuses a file that is larger than what is read at once."""
    if size > most:
        raise Refused(f"has {size} bytes, but {most} are the most that are read at once")


Way = TypeVar("Way", bound=Client)


def retried(url: str, client: Way, attempt: Callable[[Way], Result], stop: Stop) -> Result:
    """Makes a request until it goes well, or until attempts or time are used up.

    Before attempt k + 1 it waits for a time drawn from [0, d * 2^(k - 1)): "full jitter", so that the ranks
    of a job do not come back at the same moment. A server that names a time is waited for as long as it says.

    Source: Brooker, "Exponential Backoff And Jitter", AWS Architecture Blog, 2015.

    Args:
        url: what errors and logs name, without what is private in it.
        client: by which it is made, and which knows what its errors mean.
        attempt: makes it.
        stop: ends it.

    Raises:
        DatasetError: it did not go well; with the attempts, the seconds, and the last reason.
        AbsentError: there is no such file, or it may not be read.
    """

    def said(error: Exception) -> Exception:
        is_ours = isinstance(error, Transient | Refused | Stopped | SamplerkitError)
        return final_error(url, error if is_ours else client.fault(error))

    def after_wait() -> Result:
        stop.sleep(wait)
        return attempt(client)

    options, begun, waited, wait, number = client.options, time.monotonic(), 0.0, 0.0, 0
    # A small budget is shared out among the attempts, so that the first waits do not use it up.
    first = min(_FIRST_WAIT, options.retry_seconds / 2 ** min(options.attempts + 1, 9))
    while True:
        number += 1
        try:
            return in_other_words(after_wait, Exception, said)
        except Transient as fault:
            reason, asked = fault.reason, fault.wait
        left = options.retry_seconds - waited
        is_spent = left <= 0.0 < options.retry_seconds
        if number == options.attempts or is_spent or (asked or 0.0) > left:
            if asked and asked > left:
                reason += f", and asks to wait {asked:.0f} s, of {left:.0f} s that are left for that"
            seconds = time.monotonic() - begun
            times = "once" if number == 1 else f"{number} times"
            problem = f"could not be read, tried {times} in {seconds:.1f} s: {reason}"
            hint = "see whether the server works, or raise attempts, retry_seconds and timeout"
            # Here no exception is being handled, so none is chained to it.
            raise DatasetError(shown(url), problem, hint=hint)
        longest = min(first * 2 ** min(number - 1, 32), _LONGEST_WAIT)
        wait = min(_DRAWS.uniform(0, longest), left) if asked is None else asked
        text = f"attempt {number} of {options.attempts} failed: {reason}; the next one in {wait:.2f} s"
        _LOG.warning("%s: %s", shown(url), text)
        waited += wait
        client.counts.add(retries=1)


def unless_closed(url: str, call: Callable[[], Result]) -> Result:
    """Calls; that the storage is closed meanwhile is an error, too."""
    return in_other_words(call, Stopped, partial(final_error, url))


def final_error(url: str, fault: Exception) -> Exception:
    """Gives the error for what was refused, or given up; what may pass, and all else, as it is."""
    if isinstance(fault, Stopped):
        return DatasetError(shown(url), "was given up, since it is not wanted any more")
    if isinstance(fault, Refused):
        kind = AbsentError if isinstance(fault, Absent) else DatasetError
        return kind(shown(url), fault.problem, hint=fault.hint)
    return fault
