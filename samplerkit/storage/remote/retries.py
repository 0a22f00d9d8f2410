"""The base class of clients; retries within a budget; and the final error."""

import logging
import secrets
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import TypeVar

from samplerkit.errors import DatasetError, SamplerkitError
from samplerkit.storage.file_stats import FileStats
from samplerkit.storage.open_files import AbsentError
from samplerkit.storage.remote.access import Absent, Refused, Transient, Version, translate_errors
from samplerkit.storage.remote.options import RemoteOptions
from samplerkit.storage.threads import Pool, Stop
from samplerkit.storage.urls import shown

_LOG = logging.getLogger(__name__)
_FIRST_WAIT = 0.5
_LONGEST_WAIT = 30.0
_DRAWS = secrets.SystemRandom()  # with a seeded generator, forked workers would wait for equal times

Result = TypeVar("Result")


class Counts:
    """Thread-safe counters of requests, retries, downloads and bytes.

    Attributes:
        stats: the counters so far.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.stats = FileStats()

    def add(self, **more: int) -> None:
        """Adds to counters by their names."""
        with self._lock:
            now = vars(self.stats)
            self.stats = replace(self.stats, **{name: now[name] + number for name, number in more.items()})


class Client(ABC):
    """A client for remote files in one process; its methods make one attempt, and may raise any exception.

    Which one reads a URL is decided by `RemoteResources.request` in `storage.py`.

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
        """Reads a part of at least one byte."""

    @abstractmethod
    def rest(
        self, url: str, version: Version, offset: int, pool: Pool, stop: Stop
    ) -> Iterator[bytes | memoryview]:
        """Reads a file from an offset to its end, perhaps by several requests in the threads of a pool."""

    @abstractmethod
    def small(self, url: str, stop: Stop) -> tuple[bytes, Version]:
        """Reads a whole small file, with its version."""

    @abstractmethod
    def fault(self, error: Exception) -> Exception:
        """Converts an exception of its library to `Transient` or `Refused`; returns others unchanged."""


MAX_BYTES = 1 << 30
"""The largest file that is read as a whole into memory."""


def check_small(size: int) -> None:
    """Refuses a file that is too large to be read at once."""
    if size > MAX_BYTES:
        raise Refused(f"has {size} bytes, but {MAX_BYTES} are the most that are read at once")


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
        is_ours = isinstance(error, Transient | Refused | SamplerkitError)
        return final_error(url, error if is_ours else client.fault(error))

    options, started, waited, wait, number = client.options, time.monotonic(), 0.0, 0.0, 0
    # With a small budget the first wait is shorter, so that the first waits do not use it up.
    first = min(_FIRST_WAIT, options.retry_seconds / 2 ** min(options.attempts + 1, 9))
    while True:
        number += 1
        stop.sleep(wait)
        try:
            return translate_errors(partial(attempt, client), Exception, translated)
        except Transient as fault:
            reason, delay = fault.reason, fault.wait
        remaining = options.retry_seconds - waited
        is_spent = remaining <= 0.0 < options.retry_seconds
        if number == options.attempts or is_spent or (delay or 0.0) > remaining:
            if delay and delay > remaining:
                reason += f", and asks to wait {delay:.0f} s, but {remaining:.0f} s remain for retries"
            seconds = time.monotonic() - started
            times = "once" if number == 1 else f"{number} times"
            problem = f"failed, tried {times} in {seconds:.1f} s: {reason}"
            hint = "check the server, or raise attempts, retry_seconds and timeout"
            # No exception is being handled here, so none is chained.
            raise DatasetError(shown(url), problem, hint=hint)
        longest = min(first * 2 ** min(number - 1, 32), _LONGEST_WAIT)
        wait = min(_DRAWS.uniform(0, longest), remaining) if delay is None else delay
        text = f"attempt {number} of {options.attempts} failed: {reason}; the next one in {wait:.2f} s"
        _LOG.warning("%s: %s", shown(url), text)
        waited += wait
        client.counts.add(retries=1)


def final_error(url: str, fault: Exception) -> Exception:
    """Returns the `DatasetError` for `Refused`; returns other exceptions unchanged."""
    if isinstance(fault, Refused):
        kind = AbsentError if isinstance(fault, Absent) else DatasetError
        return kind(shown(url), fault.problem, hint=fault.hint)
    return fault
