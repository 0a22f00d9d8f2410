"""The base class of clients; retries within a budget; and the final error."""

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
    translate_errors,
)
from samplerkit.storage.remote.options import RemoteOptions
from samplerkit.storage.threads import Pool, Stop, Stopped
from samplerkit.storage.urls import shown

_LOG = logging.getLogger(__name__)
_FIRST_WAIT = 0.5
_LONGEST_WAIT = 30.0
_DRAWS = secrets.SystemRandom()  # with a seeded generator, forked workers would wait for equal times

_PART = 4 << 20
"""Bytes of a whole file per request, for clients whose responses cannot be streamed."""

_PARALLEL = 4
"""Such requests that run in parallel, since one connection to a store is slower than the network."""

Result = TypeVar("Result")

FileBytes = bytes | memoryview
"""Bytes of a file; a memoryview is valid until the next bytes are read."""


@final
@dataclass(frozen=True)
class RemoteStats:
    """Counters of requests to remote servers by one process.

    Args:
        requests: the number of requests; each attempt counts, but following a redirect does not.
        bytes: the bytes of file content received, including those of attempts that failed later.
        retries: the number of attempts after the first one of a request.
        downloads: the number of whole files that this process fetched into the cache.
    """

    requests: int = 0
    bytes: int = 0
    retries: int = 0
    downloads: int = 0


@final
class Counts:
    """Thread-safe counters, which are read as `RemoteStats`."""

    def __init__(self, stats: RemoteStats | None = None) -> None:
        self._lock = threading.Lock()
        self._values: dict[str, Any] = asdict(stats or RemoteStats())

    @property
    def stats(self) -> RemoteStats:
        """The counters so far."""
        with self._lock:
            return RemoteStats(**self._values)

    def add(self, **more: int) -> None:
        """Adds to counters by their names."""
        with self._lock:
            for name, number in more.items():
                self._values[name] += number


class Client(ABC):
    """A client for remote files in one process; each method makes one attempt, and may raise any exception.

    Args:
        options: options for access and retries.
        counts: the counters of requests, bytes and retries.
    """

    def __init__(self, options: RemoteOptions, counts: Counts) -> None:
        self.options = options
        self.counts = counts

    @abstractmethod
    def version(self, url: str, stop: Stop) -> Version:
        """Requests the size and the tag of a file."""

    @abstractmethod
    def part(self, url: str, version: Version, offset: int, length: int, stop: Stop) -> bytes:
        """Reads a part of at least one byte; returns no bytes if the server does not support ranges."""

    @abstractmethod
    def fault(self, error: Exception) -> Exception:
        """Converts an exception of its library to `Transient` or `Refused`; returns others unchanged."""

    def small(self, url: str, max_bytes: int, stop: Stop) -> tuple[bytes, Version]:
        """Reads a whole small file, after requesting its version."""
        version = self.version(url, stop)
        _check_size(version)
        check_small(version.size, max_bytes)
        data = self.part(url, version, 0, version.size, stop) if version.size else b""
        self.confirm(url, version, stop)
        return data, version

    def rest(
        self, url: str, version: Version, offset: int, pool: Pool, stop: Stop, *, is_verified: bool
    ) -> Iterator[FileBytes]:
        """Reads a file from an offset to its end, by several parts in parallel.

        Args:
            url: the URL of the file.
            version: the expected version.
            offset: the offset of the first byte.
            pool: the threads that read parts.
            stop: stops the requests.
            is_verified: whether the file is checked against a digest later.
        """
        _check_size(version)

        def part(at: int, stop: Stop) -> bytes:
            return self.part(url, version, at, min(_PART, version.size - at), stop)

        places = range(offset, version.size, _PART)
        for first in range(0, len(places), _PARALLEL):
            yield from pool.map(part, places[first : first + _PARALLEL])
        self.confirm(url, version, stop)

    def confirm(self, url: str, version: Version, stop: Stop) -> None:
        """Checks that parts that were read are of a version, for clients that cannot check each response."""
        return


def _check_size(version: Version) -> None:
    if version.size == UNKNOWN_SIZE:
        raise Refused("has no size in its filesystem, so truncation could not be detected")


def check_small(size: int, limit: int) -> None:
    """Refuses a file that is too large to be read at once."""
    if size > limit:
        raise Refused(f"has {size} bytes, but {limit} are the most that are read at once")


ClientType = TypeVar("ClientType", bound=Client)


def retry(url: str, client: ClientType, attempt: Callable[[ClientType], Result], stop: Stop) -> Result:
    """Makes a request, and retries it until it succeeds, or until attempts or time are used up.

    Before attempt k + 1 it waits for a time drawn from [0, d * 2^(k - 1)), "full jitter", so that the ranks
    of a job do not retry at the same moment. If the server asks for a time to wait, that is used.

    Source: Brooker, "Exponential Backoff And Jitter", AWS Architecture Blog, 2015.

    Args:
        url: the URL, which is shown in errors and logs without its secrets.
        client: the client for the request, which also classifies its exceptions.
        attempt: makes one attempt.
        stop: ends attempts and waits.

    Raises:
        DatasetError: no attempt succeeded; the message has the attempts, the seconds and the last reason.
        AbsentError: the file does not exist, or may not be read.
    """

    def translated(error: Exception) -> Exception:
        is_ours = isinstance(error, Transient | Refused | Stopped | SamplerkitError)
        return final_error(url, error if is_ours else client.fault(error))

    def after_wait() -> Result:
        stop.sleep(wait)
        return attempt(client)

    options, started, waited, wait, number = client.options, time.monotonic(), 0.0, 0.0, 0
    # With a small budget the first wait is shorter, so that the first waits do not use it up.
    first = min(_FIRST_WAIT, options.retry_seconds / 2 ** min(options.attempts + 1, 9))
    while True:
        number += 1
        try:
            return translate_errors(after_wait, Exception, translated)
        except Transient as fault:
            reason, delay = fault.reason, fault.wait
        remaining = options.retry_seconds - waited
        is_spent = remaining <= 0.0 < options.retry_seconds
        if number == options.attempts or is_spent or (delay or 0.0) > remaining:
            if delay and delay > remaining:
                reason += f", and asks to wait {delay:.0f} s, of {remaining:.0f} s that are left for that"
            seconds = time.monotonic() - started
            times = "once" if number == 1 else f"{number} times"
            problem = f"could not be read, tried {times} in {seconds:.1f} s: {reason}"
            hint = "see whether the server works, or raise attempts, retry_seconds and timeout"
            # No exception is being handled here, so none is chained.
            raise DatasetError(shown(url), problem, hint=hint)
        longest = min(first * 2 ** min(number - 1, 32), _LONGEST_WAIT)
        wait = min(_DRAWS.uniform(0, longest), remaining) if delay is None else delay
        text = f"attempt {number} of {options.attempts} failed: {reason}; the next one in {wait:.2f} s"
        _LOG.warning("%s: %s", shown(url), text)
        waited += wait
        client.counts.add(retries=1)


def unless_closed(url: str, call: Callable[[], Result]) -> Result:
    """Calls a function; raises a `DatasetError` if the storage is closed meanwhile."""
    return translate_errors(call, Stopped, partial(final_error, url))


def final_error(url: str, fault: Exception) -> Exception:
    """Returns the `DatasetError` for `Refused` or `Stopped`; returns other exceptions unchanged."""
    if isinstance(fault, Stopped):
        return DatasetError(shown(url), "was stopped, since the storage was closed")
    if isinstance(fault, Refused):
        kind = AbsentError if isinstance(fault, Absent) else DatasetError
        return kind(shown(url), fault.problem, hint=fault.hint)
    return fault
