"""Who makes the batches of threads: all at once, one after another, or the loop, where that is quicker."""

from __future__ import annotations

import sys
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

_PROMISING = 1.25


@final
class TwoWays:
    """Two ways to make batches: both are tried now and then on a few of them, and the quicker one stays.

    Args:
        usual: how many are made at once in the way to begin with.
        other: and in the other one.
        skipped: how many batches after a change to each of the two tell nothing of it.
        together: how many batches are one measurement: those that come in one go.
        tried: the measurements by which a way is judged.
        better: how many times as fast the other way must have been to stay.
        warming_up: how many batches tell nothing at first, beyond those after a change.

    Attributes:
        now: how many are made at once now.
        trial: changes when `now` does. A batch that was begun before says nothing of it.
        is_trial: whether this way is only looked at.
        rate: batches a second of the way that stays; 0 while it is not known.
        seconds: what a batch takes in each way, as far as it is known.
    """

    def __init__(
        self,
        usual: int,
        other: int,
        skipped: tuple[int, int],
        *,
        together: int = 1,
        tried: int = TRIED,
        better: float = 1.1,
        warming_up: int = 0,
    ) -> None:
        self.now, self._other = usual, other
        self.trial = 0
        self.is_trial = False
        self.rate = 0.0
        self.seconds: Final[dict[int, float]] = {}
        self._skipped: Final = {usual: skipped[0], other: skipped[1]}
        self._together, self._tried, self._better = together, tried, better
        self._pause = FIRST_PAUSE
        self._to_skip = skipped[0] + warming_up
        self._batches: list[float] = []
        self._measured: list[float] = []

    def ended(self, trial: int, seconds: float, *, at_least: float = 0.0) -> None:
        """Counts a batch.

        Args:
            trial: the one in which it was begun.
            seconds: what it took by the clock.
            at_least: what it would take in the other way, as far as is known.
        """
        if trial != self.trial:
            return
        if self._to_skip:
            self._to_skip -= 1
            return
        self._batches.append(seconds)
        if len(self._batches) == self._together:
            self._measured.append(sum(self._batches) / self._together)
            self._batches = []
            self._judge(at_least)

    def _judge(self, at_least: float) -> None:
        seconds = self.seconds[self.now] = median(self._measured)
        rate = max(1, self.now) / max(seconds, 1e-9)
        # One measurement tells what is out of the question, two what is no gain: the rest would cost time.
        least = self.rate / 2 if len(self._measured) == 1 else self.rate
        if self.is_trial and rate < least:
            self.settle(self._other, is_new=False)
        elif len(self._measured) < self._tried:
            return
        elif self.is_trial:
            is_new = rate > self._better * self.rate
            self.settle(self.now if is_new else self._other, is_new=is_new)
        elif seconds > LONG or at_least > _PROMISING * seconds:
            self.rate = rate
            self.settle(self.now, is_new=False)
        else:
            self.rate = rate
            self._change(self._other, to_skip=self._skipped[self._other])
            self.is_trial = True

    def settle(self, way: int, *, is_new: bool) -> None:
        """Stays with a way for some batches."""
        self._pause = FIRST_PAUSE if is_new else min(2 * self._pause, LONGEST_PAUSE)
        self._change(way, to_skip=self._pause)
        self.is_trial = False

    def _change(self, way: int, *, to_skip: int) -> None:
        if way != self.now:
            self.now, self._other = way, self.now
        self._to_skip, self._batches, self._measured = to_skip, [], []
        self.trial += 1


def warming_up(threads: int) -> int:
    """How many batches of so many threads tell nothing at first, beyond one of each.

    Threads open files and fill caches at first. Without the GIL, all at once is nearly always the quickest
    way, and one thread that is looked at when all is warm would seem quicker than what was measured before.
    """
    has_gil: bool = getattr(sys, "_is_gil_enabled", lambda: True)()
    return 0 if has_gil else 3 * threads


@final
class ThreadTurns:
    """Decides who makes batches: so many threads at once, or the loop itself; whoever tells it holds a lock.

    A batch of small samples is Python with many short calls that let go of the interpreter. Each time another
    thread takes it, across processors, and so several threads can be slower together than one alone, and one
    beside the loop slower than the loop by itself. Where a batch is decoded in C, or waits for a network, or
    where the loop trains meanwhile, threads are as many times as fast. No look at a dataset tells which it
    is, so the ways are tried now and then on a few batches, and the fastest one stays.

    How many threads make batches at once is judged by what a batch takes in its thread. Whether the loop
    makes them is judged by what the loop takes from one batch to the next, the step between them included.

    Args:
        threads: how many there are.

    Attributes:
        crowd: how many threads at once.
        loop: whether threads make batches, 1, or the loop does, 0.

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
        # A thread that goes on alone is warm, and works already.
        self.crowd: Final = TwoWays(threads, 1, (threads, 0), warming_up=warming_up(threads))
        # What threads have made ahead comes in one go, and what they make behind it late. Handing over takes
        # a few percent of a batch of a millisecond: little, but of each.
        self.loop: Final = TwoWays(1, 0, (2 * threads, 1), together=2 * threads, tried=3, better=1.03)
        self._threads: Final = threads

    @property
    def at_once(self) -> int:
        """How many threads may make a batch now."""
        return self.crowd.now

    @property
    def trial(self) -> int:
        """Changes when `at_once` does."""
        return self.crowd.trial

    @property
    def patience(self) -> float:
        """Seconds after which a thread that waits for its turn goes on, by `give_up`."""
        rate = self.crowd.rate
        return max(PATIENCE, 4 * self._threads / rate if rate else 0.0)

    def give_up(self) -> None:
        """Lets all make batches: one takes far longer than others did, and may wait for another thread."""
        if self.at_once < self._threads:
            self.crowd.settle(self._threads, is_new=False)
            self.crowd.seconds.pop(1, None)

    def ended(self, trial: int, seconds: float) -> None:
        """Counts a batch that a thread made.

        Args:
            trial: the one in which it was begun.
            seconds: what it took by the clock.
        """
        if self._threads > 1:
            self.crowd.ended(trial, seconds)

    def received(self, trial: int, step: float, wait: float) -> None:
        """Counts a batch that the loop received.

        Args:
            trial: of `loop`, the one in which it was asked for.
            step: seconds from the batch before until it was asked for.
            wait: seconds from then until it was there.
        """
        alone = self.crowd.seconds.get(1)
        # Only what one thread was seen to make alone, with no other one that it could wait for, may be made
        # in the loop. There it takes as long, and the step comes on top.
        if alone is not None and not self.crowd.is_trial:
            self.loop.ended(trial, step + wait, at_least=step + alone if self.loop.now else 0.0)
