"""What is asked of remote servers, counted from several threads."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any, final


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
