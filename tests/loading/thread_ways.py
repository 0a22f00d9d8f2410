"""Who makes the batches of threads, as a test decides: the loop, both at random, or by given seconds."""

from __future__ import annotations

import random

from samplerkit.loading.workers.thread_scheduling import ThreadSchedule


class RandomSchedule(ThreadSchedule):  # type: ignore[misc]  # final for everybody else
    """The loop begins and ends to make batches at random."""

    loop_makes = False

    def __init__(self, threads, seed=0, chance=0.5):
        super().__init__(threads)
        self._random, self._chance = random.Random(seed), chance

    def stepped(self, seconds):
        if self._random.random() < self._chance:
            self.loop_makes = not self.loop_makes


class GivenSeconds(ThreadSchedule):  # type: ignore[misc]
    """Believes that batches and steps take the seconds that a test gives: no clock decides."""

    patience = float("inf")

    def __init__(self, threads, *, alone=0.001, together=0.02, step=0.0):
        super().__init__(threads)
        self._alone, self._together, self._step = alone, together, step

    def made(self, trial, seconds):
        super().made(trial, self._alone if self.at_once == 1 else self._together)

    def stepped(self, seconds):
        super().stepped(self._step)


class LoopSchedule(ThreadSchedule):  # type: ignore[misc]
    """Lets the loop make whatever it may."""

    loop_makes = True
