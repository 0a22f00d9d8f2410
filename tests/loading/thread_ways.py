"""Who makes the batches of threads, as a test says: the loop and the threads in turn, at random."""

from __future__ import annotations

import random

from samplerkit.loading.thread_turns import ThreadTurns


class Dice:
    """Takes the place of what tries whether the loop is quicker: it changes when a die says so."""

    def __init__(self, seed, chance):
        self.now, self.trial = 1, 0
        self._dice, self._chance = random.Random(seed), chance

    def change(self):
        if self._dice.random() < self._chance:
            self.now, self.trial = 1 - self.now, self.trial + 1


class DicedTurns(ThreadTurns):  # type: ignore[misc]  # final for everybody else
    """As for threads, but who makes a batch is diced for."""

    def __init__(self, threads, seed=0, chance=0.5):
        super().__init__(threads)
        self.loop = Dice(seed, chance)

    def received(self, trial, step, wait):
        self.loop.change()
