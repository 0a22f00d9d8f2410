"""Counting what is asked, from several threads."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any, final

from samplerkit.storage.remote.stats import RemoteStats


@final
class Counts:
    """The figures of `RemoteStats` while they grow.

    Args:
        stats: the figures to begin with.
    """

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
