"""Who makes the batches of threads, as a test says: the loop always, or in turn with threads at random."""

from __future__ import annotations

import random

from samplerkit.loading.workers.thread_scheduling import ThreadSchedule


class RandomSchedule(ThreadSchedule):  # type: ignore[misc]  # final for everybody else
    """In place of trying whether the loop is quicker it changes at random."""

    loop_makes = False

    def __init__(self, threads, ahead, seed=0, chance=0.5):
        super().__init__(threads, ahead)
        self._random, self._chance = random.Random(seed), chance

    def received(self, step, wait):
        if self._random.random() < self._chance:
            self.loop_makes = not self.loop_makes


class LoopSchedule(ThreadSchedule):  # type: ignore[misc]
    """Lets the loop make whatever it may."""

    loop_makes = True
