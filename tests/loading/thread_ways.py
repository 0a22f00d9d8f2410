"""Who makes the batches of threads, as a test says: the loop always, or in turn with threads at random."""

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


class LoopSchedule(ThreadSchedule):  # type: ignore[misc]
    """Lets the loop make whatever it may."""

    loop_makes = True
