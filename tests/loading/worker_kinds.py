"""How tests write the workers of a loader: processes by their number, threads as in "2 threads".

And schedules of how many threads make batches at once: at random, or by given seconds.
"""

import random
from typing import Any

import pytest

from samplerkit.loading.workers.thread_pool import ThreadSchedule

THREADS: dict[str, Any] = {"num_workers": 2, "workers": "threads"}

with_threads_too = pytest.mark.usefixtures("each_worker_kind")
"""For tests whose loaders of numbers set no workers: they run in the loop, in threads, and in both."""


def with_workers(workers: int | str) -> dict[str, Any]:
    """The options of a loader with these workers."""
    if isinstance(workers, int):
        return {"num_workers": workers}
    return {**THREADS, "num_workers": int(workers.split()[0])}


class RandomSchedule(ThreadSchedule):  # type: ignore[misc]  # final for everybody else
    """One thread makes batches at a time, or all do, at random."""

    def __init__(self, threads, seed=0, chance=0.5):
        super().__init__(threads)
        self._random, self._chance = random.Random(seed), chance

    def count_batch(self, at_once, seconds):
        if self._random.random() < self._chance:
            self.at_once = self._threads + 1 - self.at_once


class GivenSeconds(ThreadSchedule):  # type: ignore[misc]
    """Believes that batches take the seconds that a test gives: no clock decides."""

    def __init__(self, threads, *, alone=0.001, together=0.02):
        super().__init__(threads)
        self._alone, self._together = alone, together

    def count_batch(self, at_once, seconds):
        super().count_batch(at_once, self._alone if self.at_once == 1 else self._together)
