"""How many threads make batches at once: all that there are, or one after another where that is quicker."""

from __future__ import annotations

from statistics import median
from typing import Final, final

TRIED: Final = 5
"""Batches by which a way is judged."""

FIRST_PAUSE, LONGEST_PAUSE = 50, 3200
"""Batches from one trial to the next: twice as many each time that nothing changed."""

LONG: Final = 0.25
"""Seconds of a batch from which on nothing is tried: what takes that long mostly waits, or computes in C."""

PATIENCE: Final = 0.05
"""Seconds that a thread waits for its turn at the least, before all go on at once."""

_BETTER = 1.1


@final
class ThreadTurns:
    """Decides how many threads make batches at once; whoever asks holds a lock.

    A batch of small samples is Python with many short calls that let go of the interpreter. Each time another
    thread takes it, across processors, and so several threads can be slower together than one alone. Where a
    batch is decoded in C, or waits for a network, they are as many times as fast. No look at a dataset tells
    which it is, so both ways are tried now and then on a few batches, and the faster one stays.

    Args:
        threads: how many there are.

    Attributes:
        at_once: how many may make a batch now.
        trial: changes when `at_once` does. A batch that was begun before says nothing of it.

    Example:
        >>> turns = ThreadTurns(2)
        >>> while turns.at_once == 2:  # batches take .01 seconds where two threads make one each
        ...     turns.ended(turns.trial, 0.01)
        >>> for _ in range(TRIED):  # and .003 where one makes them
        ...     turns.ended(turns.trial, 0.003)
        >>> turns.at_once
        1
    """

    def __init__(self, threads: int) -> None:
        self.at_once = threads
        self.trial = 0
        self._threads: Final = threads
        self._is_trial = False
        self._pause = FIRST_PAUSE
        self._to_skip = threads  # they open files, and fill caches
        self._seconds: list[float] = []
        self._usual_rate = 0.0

    @property
    def patience(self) -> float:
        """Seconds after which a thread that waits for its turn goes on, by `give_up`."""
        return max(PATIENCE, 4 * self._threads / self._usual_rate if self._usual_rate else 0.0)

    def give_up(self) -> None:
        """Lets all make batches: one takes far longer than others did, and may wait for another thread."""
        if self.at_once < self._threads:
            self._settle(self._threads, pause=2 * self._pause)

    def ended(self, trial: int, seconds: float) -> None:
        """Counts a batch that was made.

        Args:
            trial: the one in which it was begun.
            seconds: what it took by the clock.
        """
        if trial != self.trial or self._threads == 1:
            return
        if self._to_skip:
            self._to_skip -= 1
            return
        self._seconds.append(seconds)
        rate = self.at_once / max(median(self._seconds), 1e-9)
        # One batch tells what is out of the question, two what is no gain: the rest would cost time.
        least = self._usual_rate / 2 if len(self._seconds) == 1 else self._usual_rate
        if self._is_trial and rate < least:
            self._settle(self._other, pause=2 * self._pause)
        elif len(self._seconds) == TRIED:
            self._judge(rate)

    @property
    def _other(self) -> int:
        return self._threads if self.at_once == 1 else 1

    def _judge(self, rate: float) -> None:
        if not self._is_trial:
            self._usual_rate = rate
            if self.at_once / rate > LONG:
                self._settle(self.at_once, pause=2 * self._pause)
            else:
                self._change(self._other, to_skip=0 if self._other == 1 else self._threads)
                self._is_trial = True
        elif rate > _BETTER * self._usual_rate:
            self._settle(self.at_once, pause=FIRST_PAUSE)
        else:
            self._settle(self._other, pause=2 * self._pause)

    def _settle(self, at_once: int, *, pause: int) -> None:
        self._pause = min(pause, LONGEST_PAUSE)
        self._change(at_once, to_skip=self._pause)
        self._is_trial = False

    def _change(self, at_once: int, *, to_skip: int) -> None:
        self.at_once, self._to_skip, self._seconds = at_once, to_skip, []
        self.trial += 1
