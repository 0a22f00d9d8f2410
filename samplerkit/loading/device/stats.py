"""Figures of a device stage: how long the loop waited, and what the loading thread did meanwhile."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from samplerkit.loading.stats import Waits


@dataclass(frozen=True)
class Work:
    """What one batch cost the loading thread, in seconds.

    Args:
        load: for `next` on the source.
        load_cpu: of that, what this thread computed.
        copy: for pinning, waiting for the window, and beginning the copies; on the cpu, copying.
    """

    load: float
    load_cpu: float
    copy: float


@dataclass(frozen=True)
class DeviceStats:
    """Figures of the epoch so far, of the batches handed out.

    A short wait alone does not prove that loading and training overlap. Pure Python that loads in a thread
    takes the interpreter from the loop, whose steps then take longer. Measure the whole epoch instead.

    Args:
        batches: the number of batches handed out.
        first_wait: seconds that the loop waited for the first one.
        total_wait: seconds that it waited for all.
        longest_wait: seconds that it waited for one, the first one left out.
        mean_queue_depth: batches that were waiting when the loop asked for one, on average.
        load_seconds: seconds that the loading thread took to load them.
        copy_seconds: seconds that it took to pin them and to begin their copies, the window included.
        cpu_share: share of `load_seconds` in which the thread computed; the rest it waited.

    Example:
        >>> DeviceStats(batches=4, first_wait=0.1, total_wait=0.16, longest_wait=0.03).mean_wait
        0.04
    """

    batches: int = 0
    first_wait: float = 0.0
    total_wait: float = 0.0
    longest_wait: float = 0.0
    mean_queue_depth: float = 0.0
    load_seconds: float = 0.0
    copy_seconds: float = 0.0
    cpu_share: float = 0.0

    @property
    def mean_wait(self) -> float:
        """Seconds that the loop waited for a batch, on average."""
        return self.total_wait / self.batches if self.batches else 0.0


@final
class Count:
    """Adds up the figures of the batches that are handed out. Only the loop's thread uses it."""

    def __init__(self) -> None:
        self._waits = Waits()
        self._queued = 0
        self._load = self._load_cpu = self._copy = 0.0

    def add(self, wait: float, queued: int, work: Work) -> None:
        """Counts a batch.

        Args:
            wait: seconds that the loop waited for it.
            queued: batches that were there when the loop asked.
            work: what it cost.
        """
        self._waits.add(wait)
        self._queued += queued
        self._load += work.load
        self._load_cpu += work.load_cpu
        self._copy += work.copy

    @property
    def stats(self) -> DeviceStats:
        """The figures so far."""
        waits = self._waits
        return DeviceStats(
            batches=waits.number,
            first_wait=waits.first,
            total_wait=waits.total,
            longest_wait=waits.longest,
            mean_queue_depth=self._queued / waits.number if waits.number else 0.0,
            load_seconds=self._load,
            copy_seconds=self._copy,
            cpu_share=self._load_cpu / self._load if self._load > 0 else 0.0,
        )
