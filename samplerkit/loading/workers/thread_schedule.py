"""How many threads make batches at once."""

from __future__ import annotations

import sys
from collections.abc import Generator
from statistics import median
from typing import Final, final

TRIAL_BATCHES: Final = 5
"""Batches by which a number of threads is judged."""

FIRST_PAUSE, LONGEST_PAUSE = 50, 3200
"""Batches from one trial to the next: twice as many each time that nothing changed."""

LONG_BATCH: Final = 0.25
"""Seconds of a batch above which nothing is tried: such batches mostly wait, or compute in C."""

PATIENCE: Final = 0.05
"""The least seconds of the batch of one thread before all make batches: it may wait for another one."""


@final
class ThreadSchedule:
    """Decides how many threads make batches at once: all, or one.

    A batch of small samples is Python with many short calls that release the GIL. Each time another thread
    takes it, across processors, and so several threads can be slower together than one alone. Where a batch
    is decoded in C, or waits for a network, threads are as many times as fast. A dataset does not show which
    case it is, so both ways are tried now and then on a few batches, by the time of a batch in its thread,
    and the faster one is kept. Only threads use it, which hold a lock.

    Args:
        threads: how many there are.

    Attributes:
        at_once: how many threads may make a batch now.
        trial: changes with `at_once`: a batch that was begun before does not count for the current trial.
        patience: seconds after which all make batches though one at a time is quicker.

    Example:
        >>> schedule = ThreadSchedule(2)
        >>> while schedule.at_once == 2:  # batches take .01 seconds where two threads make one each
        ...     schedule.count_batch(schedule.trial, 0.01)
        >>> for _ in range(TRIAL_BATCHES):  # and .003 where one makes them
        ...     schedule.count_batch(schedule.trial, 0.003)
        >>> schedule.at_once
        1
    """

    def __init__(self, threads: int) -> None:
        self.at_once = threads
        self.trial = 0
        self.patience = PATIENCE
        self._threads: Final = threads
        self._pause = FIRST_PAUSE
        # Threads open files and fill caches at first. Without the GIL, all at once is nearly always the
        # quickest way, and one thread that is looked at when all is warm would seem quicker than all before.
        has_gil: bool = getattr(sys, "_is_gil_enabled", lambda: True)()
        self._begin(threads * (1 if has_gil else 4))

    def give_up(self) -> None:
        """Lets all threads make batches: one takes far longer than others, and may wait for another."""
        self._keep(self._threads, is_new=False)
        self._begin(self._pause)

    def count_batch(self, trial: int, seconds: float) -> None:
        """Counts a batch.

        Args:
            trial: in which it was begun.
            seconds: what it took by the clock.
        """
        if self._threads > 1 and trial == self.trial:
            self._decisions.send(seconds)

    def _begin(self, to_skip: int) -> None:
        self._decisions = self._decide(to_skip)
        next(self._decisions)

    def _decide(self, to_skip: int) -> Generator[None, float, None]:
        """Receives the seconds of each batch, and decides now and then."""
        while True:
            for _ in range(to_skip):
                yield
            best, other = self.at_once, self._threads + 1 - self.at_once
            rates = {best: (yield from self._rate())}
            if best / rates[best] <= LONG_BATCH:
                self._let(other)
                rates[other] = yield from self._rate(rates[best] / 2)
                # If both are equal, one thread leaves more of the processors to the loop.
                best = 1 if rates[1] > 0.95 * rates[self._threads] else self._threads
            self._keep(best, is_new=best == other)
            to_skip = self._pause

    def _rate(self, least: float = 0.0) -> Generator[None, float, float]:
        """Measures batches a second; fewer than the least need no more batches, which would cost time."""
        seconds: list[float] = []
        rate = least
        while len(seconds) < TRIAL_BATCHES and rate >= least:
            seconds.append((yield))
            rate = self.at_once / max(median(seconds), 1e-9)
        if self.at_once == self._threads:
            self.patience = max(PATIENCE, 4 * median(seconds))
        return rate

    def _keep(self, at_once: int, *, is_new: bool) -> None:
        """Keeps a number of threads for some batches."""
        self._pause = FIRST_PAUSE if is_new else min(2 * self._pause, LONGEST_PAUSE)
        self._let(at_once)

    def _let(self, at_once: int) -> None:
        self.at_once = at_once
        self.trial += 1
