"""Who makes the batches of threads: all threads at once, one after another, or the loop itself.

A batch of small samples is Python with many short calls that let go of the interpreter. Each time another
thread takes it, across processors, and so several threads can be slower together than one alone, and one in
the background slower than the loop by itself. Where a batch is decoded in C, or waits for a network, or where
the loop trains meanwhile, threads are as many times as fast. Which it is cannot be seen from a dataset, so
the ways are tried now and then on a few batches, and the fastest one stays: all threads against one of them,
by what a batch takes in its thread; then threads against the loop, by the time between two of its batches.
"""

from __future__ import annotations

import sys
from statistics import median
from typing import Final, final

TRIED: Final = 5
"""Measurements by which a number of threads is judged."""

FIRST_PAUSE, LONGEST_PAUSE = 50, 3200
"""Batches from one trial to the next: twice as many each time that nothing changed."""

LONG: Final = 0.25
"""Seconds of a batch from which on nothing is tried: what takes that long mostly waits, or computes in C."""

PATIENCE: Final = 0.05
"""Seconds that the loop waits for the batch of one thread at the least, before all make batches at once."""

_PROMISING = 1.25


@final
class Trials:
    """Two ways to make batches: each is tried now and then on a few of them, and the quicker one stays.

    Args:
        usual: the way to begin with: how many batches are made at once, or 0.
        other: the other way.
        warming_up: how many batches are not measured at first.
        skipped: how many batches after a change are not measured.
        group: how many batches are one measurement: those that come together.
        tried: the measurements by which a way is judged.
        better: how many times as fast the other way must have been to stay.

    Attributes:
        way: the way in which batches are made now.
        number: of the trial, which changes with the way.
        is_trial: whether this way is only looked at.
        rate: batches a second of the way that stays; 0 while it is not known.
        seconds: what a batch takes in each way, as far as it is known.
    """

    def __init__(
        self,
        usual: int,
        other: int,
        *,
        warming_up: int,
        skipped: int = 0,
        group: int = 1,
        tried: int = TRIED,
        better: float = 1.1,
    ) -> None:
        self.way, self._other = usual, other
        self.number = 0
        self.is_trial = False
        self.rate = 0.0
        self.seconds: Final[dict[int, float]] = {}
        self._to_skip, self._skipped = warming_up, skipped
        self._group, self._tried, self._better = group, tried, better
        self._pause = FIRST_PAUSE
        self._measured: list[float] = []
        self._batches: list[float] = []

    def count(self, seconds: float, *, at_least: float = 0.0) -> None:
        """Counts a batch.

        Args:
            seconds: what it took by the clock.
            at_least: what it would take in the other way, as far as is known.
        """
        if self._to_skip:
            self._to_skip -= 1
            return
        self._batches.append(seconds)
        if len(self._batches) == self._group:
            self._measured.append(sum(self._batches) / self._group)
            self._batches = []
            self._judge(at_least)

    def _judge(self, at_least: float) -> None:
        seconds = self.seconds[self.way] = median(self._measured)
        rate = max(1, self.way) / max(seconds, 1e-9)
        # One measurement shows what is hopeless, two what is no gain: the rest would cost time.
        least = self.rate / 2 if len(self._measured) == 1 else self.rate
        if self.is_trial and rate < least:
            self.keep(self._other)
        elif len(self._measured) < self._tried:
            return
        elif self.is_trial:
            self.keep(self.way if rate > self._better * self.rate else self._other)
        else:
            self.rate = rate
            if seconds > LONG or at_least > _PROMISING * seconds:
                self.keep(self.way)
            else:
                self._change(self._other, self._skipped)
                self.is_trial = True

    def keep(self, way: int) -> None:
        """Keeps to a way for some batches."""
        is_new = self.is_trial and way == self.way
        self._pause = FIRST_PAUSE if is_new else min(2 * self._pause, LONGEST_PAUSE)
        self._change(way, self._pause)
        self.is_trial = False

    def _change(self, way: int, to_skip: int) -> None:
        if way != self.way:
            self.way, self._other = way, self.way
        self._to_skip, self._measured, self._batches = to_skip, [], []
        self.number += 1


@final
class ThreadSchedule:
    """Decides how many threads make batches at once, and whether threads make them at all, or the loop.

    Args:
        threads: how many there are.
        ahead: how many batches they may have ahead of the loop.

    Example:
        >>> schedule = ThreadSchedule(2, ahead=4)
        >>> while schedule.at_once == 2:  # batches take .01 seconds where two threads make one each
        ...     _ = schedule.made(schedule.trial, 0.01)
        >>> for _ in range(TRIED):  # and .003 where one makes them
        ...     _ = schedule.made(schedule.trial, 0.003)
        >>> schedule.at_once
        1
    """

    def __init__(self, threads: int, ahead: int) -> None:
        self._threads: Final = threads
        # Threads open files and fill caches at first. Without the GIL, all at once is nearly always the
        # quickest way, and one thread that is looked at when all is warm would seem quicker than all before.
        has_gil: bool = getattr(sys, "_is_gil_enabled", lambda: True)()
        self._crowd: Final = Trials(threads, 1, warming_up=threads * (1 if has_gil else 4))
        # What threads have made ahead comes in one go, and what they make behind it late. Handing over takes
        # a few percent of a batch of a millisecond: little, but of each.
        group, skipped = 2 * threads, ahead + 1
        self._loop: Final = Trials(1, 0, warming_up=group, skipped=skipped, group=group, tried=3, better=1.03)
        self._gives_up = False

    @property
    def at_once(self) -> int:
        """How many threads may make a batch now."""
        return self._threads if self._gives_up else self._crowd.way

    @property
    def trial(self) -> int:
        """Changes when `at_once` does: a batch that was begun before says nothing of what is tried now."""
        return self._crowd.number

    @property
    def loop_makes(self) -> bool:
        """Whether the loop makes batches."""
        return not self._loop.way

    @property
    def patience(self) -> float:
        """Seconds after which the loop, which waits for a batch, ends that only one thread makes any."""
        rate = self._crowd.rate
        return max(PATIENCE, 4 * self._threads / rate if rate else 0.0)

    def give_up(self) -> None:
        """Lets all make batches: one takes far longer than others did, and may wait for another thread."""
        self._gives_up = self._gives_up or self.at_once < self._threads

    def made(self, trial: int, seconds: float) -> bool:
        """Counts a batch that a thread made; the caller holds a lock.

        Args:
            trial: in which it was begun.
            seconds: what it took by the clock.

        Returns:
            Whether another number of threads may make batches from now on.
        """
        before = self.at_once
        if self._gives_up:
            self._crowd.is_trial = False
            self._crowd.keep(self._threads)
            self._crowd.seconds.pop(1, None)
            self._gives_up = False
        elif self._threads > 1 and trial == self.trial:
            self._crowd.count(seconds)
        return self.at_once != before

    def received(self, step: float, wait: float) -> None:
        """Counts a batch that the loop received.

        Args:
            step: seconds from the batch before until it was asked for.
            wait: seconds from then until it was there.
        """
        alone = self._crowd.seconds.get(1)
        # Only what one thread was seen to make alone, with no other one that it could wait for, may be made
        # in the loop. There it takes as long, and the step comes on top.
        if alone is not None and not self._crowd.is_trial:
            self._loop.count(step + wait, at_least=0.0 if self.loop_makes else step + alone)
