"""Trying again, within a budget, and the error when that does not help."""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any, TypeVar, final

from samplerkit.errors import DatasetError
from samplerkit.storage.missing_file import AbsentError
from samplerkit.storage.remote.attempt import Absent, Refused, Transient, in_other_words
from samplerkit.storage.remote.options import RemoteOptions
from samplerkit.storage.threads import Stop, Stopped
from samplerkit.storage.urls import shown

_LOG = logging.getLogger(__name__)
_FIRST_WAIT = 0.5
_LONGEST_WAIT = 30.0

Result = TypeVar("Result")


def retried(
    url: str, attempt: Callable[[], Result], options: RemoteOptions, counts: Counts, stop: Stop
) -> Result:
    """Makes a request until it goes well, or until attempts or time are used up.

    Before attempt k + 1 it waits for a time drawn from [0, d * 2^(k - 1)): "full jitter", so that the ranks
    of a job do not come back at the same moment. A server that names a time is waited for as long as it says.

    Source: Brooker, "Exponential Backoff And Jitter", AWS Architecture Blog, 2015.

    Args:
        url: what errors and logs name, without what is private in it.
        attempt: raises `Transient` for what may pass, `Refused` for what will not.
        options: how often and how long.
        counts: of the retries.
        stop: ends it.

    Raises:
        DatasetError: it did not go well; with the attempts, the seconds, and the last reason.
        AbsentError: there is no such file, or it may not be read.
    """
    return plainly(url, lambda: _tried(url, attempt, options, counts, stop))


def _tried(
    url: str, attempt: Callable[[], Result], options: RemoteOptions, counts: Counts, stop: Stop
) -> Result:
    begun, waited = time.monotonic(), 0.0
    # A small budget is shared out among the attempts, so that the first waits do not use it up.
    first = min(_FIRST_WAIT, options.retry_seconds / 2 ** min(options.attempts + 1, 9))
    number = 0
    while True:
        number += 1
        try:
            return attempt()
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
        wait = min(_between(longest), left) if asked is None else asked
        _LOG.warning(
            "%s: attempt %d of %d failed: %s; the next one in %.2f s",
            shown(url),
            number,
            options.attempts,
            reason,
            wait,
        )
        stop.sleep(wait)
        waited += wait
        counts.add(retries=1)


def plainly(url: str, call: Callable[[], Result]) -> Result:
    """Calls, and makes a `DatasetError` without a chain of what is refused.

    Raises:
        AbsentError: there is no such file, or it may not be read.
        DatasetError: it was refused.
    """
    return in_other_words(call, (Refused, Stopped), lambda fault: refusal(url, fault))


def refusal(url: str, fault: Exception) -> DatasetError:
    """Gives the error for what was refused, or was on its way when the storage was closed."""
    if not isinstance(fault, Refused):
        return DatasetError(shown(url), "was given up, since it is not wanted any more")
    kind = AbsentError if isinstance(fault, Absent) else DatasetError
    return kind(shown(url), fault.problem, hint=fault.hint)


def _between(most: float) -> float:
    # The system's generator: a seeded one would let forked workers wait for equal times.
    return secrets.randbelow(1 << 30) / (1 << 30) * most


@final
@dataclass(frozen=True)
class RemoteStats:
    """What one process has asked of remote servers so far.

    Args:
        requests: requests that were made, each attempt one; those that only followed a redirect do not count.
        bytes: of file content that arrived, also of attempts that failed later.
        retries: attempts after the first one of a request.
        downloads: whole files that this process brought into the cache.
        cache_hits: whole files that lay in the cache, or that another process brought there meanwhile.
        wait_seconds: the time that callers waited for whole files and for parts, in all.
    """

    requests: int = 0
    bytes: int = 0
    retries: int = 0
    downloads: int = 0
    cache_hits: int = 0
    wait_seconds: float = 0.0


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

    def add(self, **more: float) -> None:
        """Adds to figures, by their names."""
        with self._lock:
            for name, number in more.items():
                self._so_far[name] += number

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Adds the time of what is done in it to the time that callers waited."""
        begun = time.monotonic()
        try:
            yield
        finally:
            self.add(wait_seconds=time.monotonic() - begun)
