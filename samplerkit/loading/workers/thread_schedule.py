"""How many threads make batches at once, and whether the loop makes them itself."""

from __future__ import annotations

import sys
from collections import deque
from statistics import median
from typing import Final, final

TRIAL_BATCHES: Final = 5
"""Batches by which a number of threads is judged, and steps by which the loop is."""

FIRST_PAUSE, LONGEST_PAUSE = 50, 3200
"""Batches from one trial to the next: twice as many each time that nothing changed."""

LONG_BATCH: Final = 0.25
"""Seconds of a batch above which nothing is tried: such batches mostly wait, or compute in C."""

PATIENCE: Final = 0.05
"""The least seconds of the batch of one thread before all make batches: it may wait for another one."""

HANDOVER: Final = 0.0001
"""Approximate seconds of taking a batch from a thread. During a longer step of the loop, a thread should make
the next batch."""


@final
class ThreadSchedule:
    """Decides who makes the batches of threads: all threads at once, one at a time, or the loop itself.

    A batch of small samples is Python with many short calls that release the GIL. Each time another thread
    takes it, across processors, and so several threads can be slower together than one alone. Where a batch
    is decoded in C, or waits for a network, threads are as many times as fast. A dataset does not show which
    case it is, so both ways are tried now and then on a few batches, by the time of a batch in its thread,
    and the faster one is kept. If one thread is enough and the loop does nothing between two batches, the
    loop makes them: taking them from a thread would only cost time.

    Args:
        threads: how many there are.

    Attributes:
        at_once: how many threads may make a batch now.
        trial: changes with `at_once`: a batch that was begun before does not count for the current trial.

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
        self._threads: Final = threads
        self._rates: Final[dict[int, float]] = {}  # batches a second, by how many are made at once
        self._steps: Final[deque[float]] = deque(maxlen=TRIAL_BATCHES)
        self._measured: list[float] = []
        self._is_trial = False
        self._pause = FIRST_PAUSE
        # Threads open files and fill caches at first. Without the GIL, all at once is nearly always the
        # quickest way, and one thread that is looked at when all is warm would seem quicker than all before.
        has_gil: bool = getattr(sys, "_is_gil_enabled", lambda: True)()
        self._to_skip = threads * (1 if has_gil else 4)

    @property
    def loop_makes(self) -> bool:
        """Whether the loop makes batches: only where one thread of several is enough."""
        if self.at_once > 1 or self._is_trial:
            return False
        return len(self._steps) == TRIAL_BATCHES and median(self._steps) < HANDOVER

    @property
    def patience(self) -> float:
        """Seconds after which all make batches though one at a time is quicker."""
        rate = self._rates.get(self._threads)
        return max(PATIENCE, 4 * self._threads / rate if rate else 0.0)

    def give_up(self) -> None:
        """Lets all threads make batches: one takes far longer than others, and may wait for another."""
        self._rates.pop(1, None)
        self._keep(self._threads)

    def count_step(self, seconds: float) -> None:
        """Counts the time of the loop between two batches."""
        self._steps.append(seconds)

    def count_batch(self, trial: int, seconds: float) -> None:
        """Counts a batch.

        Args:
            trial: in which it was begun.
            seconds: what it took by the clock.
        """
        if self._threads == 1 or trial != self.trial:
            return
        if self._to_skip:
            self._to_skip -= 1
            return
        self._measured.append(seconds)
        rates, current, other = self._rates, self.at_once, self._threads + 1 - self.at_once
        typical = median(self._measured)
        rates[current] = current / max(typical, 1e-9)
        if self._is_trial and rates[current] < rates[other] / 2:  # hopeless: the rest would cost time
            self._keep(other)
        elif len(self._measured) < TRIAL_BATCHES:
            return
        elif self._is_trial:
            # If both are equal, one thread leaves more of the processors to the loop.
            self._keep(1 if rates[1] > 0.95 * rates[self._threads] else self._threads)
        elif typical > LONG_BATCH:
            self._keep(current)
        else:
            self._change(other, 0, is_trial=True)

    def _keep(self, at_once: int) -> None:
        """Keeps a number of threads for some batches."""
        is_new = self._is_trial and at_once == self.at_once
        self._pause = FIRST_PAUSE if is_new else min(2 * self._pause, LONGEST_PAUSE)
        self._change(at_once, self._pause, is_trial=False)

    def _change(self, at_once: int, to_skip: int, *, is_trial: bool) -> None:
        self.at_once, self._to_skip, self._is_trial, self._measured = at_once, to_skip, is_trial, []
        self.trial += 1
