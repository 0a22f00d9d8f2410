"""How tests write the workers of a loader: processes by their number, threads as in "2 threads".

And schedules of who makes batches if there are threads: the loop, both at random, or by given seconds.
"""

import random
from typing import Any

import pytest

from samplerkit.loading.workers.thread_schedule import ThreadSchedule

THREADS: dict[str, Any] = {"num_workers": 2, "workers": "threads"}

with_threads_too = pytest.mark.usefixtures("each_worker_kind")
"""For tests whose loaders of numbers set no workers: they run in the loop, in threads, and in both."""


def with_workers(workers: int | str) -> dict[str, Any]:
    """The options of a loader with these workers."""
    if isinstance(workers, int):
        return {"num_workers": workers}
    return {**THREADS, "num_workers": int(workers.split()[0])}


class RandomSchedule(ThreadSchedule):  # type: ignore[misc]  # final for everybody else
    """The loop begins and ends to make batches at random."""

    loop_makes = False

    def __init__(self, threads, seed=0, chance=0.5):
        super().__init__(threads)
        self._random, self._chance = random.Random(seed), chance

    def count_step(self, seconds):
        if self._random.random() < self._chance:
            self.loop_makes = not self.loop_makes


class GivenSeconds(ThreadSchedule):  # type: ignore[misc]
    """Believes that batches and steps take the seconds that a test gives: no clock decides."""

    patience = float("inf")

    def __init__(self, threads, *, alone=0.001, together=0.02, step=0.0):
        super().__init__(threads)
        self._alone, self._together, self._step = alone, together, step

    def count_batch(self, trial, seconds):
        super().count_batch(trial, self._alone if self.at_once == 1 else self._together)

    def count_step(self, seconds):
        super().count_step(self._step)


class LoopSchedule(ThreadSchedule):  # type: ignore[misc]
    """Lets the loop make every batch that it may."""

    loop_makes = True
