"""The cursor: where a reader of epochs stands, and where its next iteration begins. One for all of them.

| reader | one unit is | epoch | `set_epoch` in a loop |
|---|---|---|---|
| `Loader` | a batch of each rank | advances | waits for its end |
| `DeviceLoader` over a loader that cannot count | a batch | advances | waits for its end |
| `TorchSampler`, `DistributedSamplerViaLocallyShuffle` | a sample of each rank | advances | holds at once |
| torch's samplers | a sample of each rank | stays until it is set | holds at once |

What differs in the arithmetic is one function, `Reached`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple, final

from samplerkit.loading.at_exit import leave_at_exit

Reached = Callable[[int, int, int], tuple[int, bool]]
"""From an epoch, a start and the units taken since: the position up to which all ranks come together, and
whether nothing is left there to any of them. At position 0 something is: only asking shows an empty epoch."""


class Place(NamedTuple):
    """A position of an epoch."""

    epoch: int
    position: int


@final
class Iteration:
    """One way through the rest of an epoch. It counts for itself, so an old one never counts for a newer.

    Args:
        epoch: the epoch.
        start: the position at which it begins.

    Attributes:
        taken: the units that were handed out. Whoever hands them out sets it, in the line before, so that
            the two cannot be told apart: neither a signal handler nor an exception comes between them.
        is_open: whether it is under way.
        is_finished: whether it only marks an epoch that was read to its end, and stays until it is set.
    """

    __slots__ = ("__weakref__", "epoch", "is_finished", "is_open", "start", "taken")

    def __init__(self, epoch: int, start: int = 0, *, is_finished: bool = False) -> None:
        self.epoch = epoch
        self.start = start
        self.taken = 0
        self.is_open = False
        self.is_finished = is_finished


@final
class Cursor:
    """Carries a reader from iteration to iteration, from epoch to epoch, and from a saved state on.

    All that a state says hangs on one reference, `at`: whoever looks, be it a signal handler, sees the place
    before a change or the one after it.

    Args:
        reached: the reader's arithmetic.
        advances: whether a finished epoch moves on by itself. Else it stays until `set_epoch` says another
            one; a state then stands at the next epoch once any was ever set, since that is what comes.
        waits: whether `set_epoch` during an iteration waits for its end, else ends it.
        goes_on: whether an epoch that was left early goes on where it was left, else begins anew.

    Attributes:
        at: the iteration under way, or the last one: what it has taken is what counts.
        asked: the epoch that waits for the end of the iteration.
        is_told: whether an epoch was ever set.

    Example:
        >>> cursor = Cursor(lambda epoch, start, taken: (start + taken, start + taken == 5))
        >>> iteration = cursor.begin()
        >>> iteration.taken = 3
        >>> cursor.place(), cursor.upcoming
        (Place(epoch=0, position=3), Place(epoch=0, position=0))
        >>> iteration.taken = 5
        >>> cursor.place(), cursor.upcoming
        (Place(epoch=1, position=0), Place(epoch=1, position=0))
    """

    def __init__(
        self, reached: Reached, *, advances: bool = True, waits: bool = False, goes_on: bool = False
    ) -> None:
        self._reached: Final = reached
        self._advances: Final = advances
        self._waits: Final = waits
        self._goes_on: Final = goes_on
        self.asked: int | None = None
        self.is_told = False
        self.at = Iteration(0)

    @property
    def epoch(self) -> int:
        """The current epoch."""
        return self.at.epoch

    def place(self, taken: int | None = None) -> Place:
        """Gives what a state says: where all ranks are after some units; None for those handed out.

        At the end of an epoch that is the beginning of the next one, asked for or not: a reader that counts
        does not ask for the end.
        """
        at = self.at
        position, is_over = self._reached(at.epoch, at.start, at.taken if taken is None else taken)
        return Place(self._following, 0) if is_over or at.is_finished else Place(at.epoch, position)

    @property
    def upcoming(self) -> Place:
        """Where an iteration begins that begins now."""
        at, beyond = self.at, self._beyond()
        if beyond is not None:
            return Place(beyond.epoch, 0)
        if not at.taken:
            return Place(at.epoch, at.start)
        return self.place() if self._goes_on else Place(at.epoch, 0)

    def begin(self, made_for: Place | None = None) -> Iteration:
        """Begins an iteration, and ends the one under way, if there is one.

        Args:
            made_for: what was `upcoming` when it was made, for one that begins later. If that is no longer
                what comes, somebody has set an epoch or loaded a state since: it is read all the same, and
                counts for nobody.
        """
        upcoming = self.upcoming
        iteration = Iteration(*(upcoming if made_for is None else made_for))
        iteration.is_open = True
        leave_at_exit(iteration)
        if made_for is None or made_for == upcoming:
            self._move(iteration)
        return iteration

    def end(self, iteration: Iteration, *, at_its_end: bool = False) -> None:
        """Ends an iteration, and goes to the epoch that comes next; nothing if it is not under way any more.

        Args:
            iteration: from `begin`.
            at_its_end: whether the loop was told that there is no more.
        """
        if iteration is self.at and iteration.is_open:
            beyond = self._beyond(at_its_end=at_its_end)
            # One that was left early stays: what it has handed out is what a state counts.
            self._move(iteration if beyond is None else beyond)
            iteration.is_open = False

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch that the next iteration reads; the current one keeps a loaded position."""
        self.is_told = True
        at = self.at
        if self._waits and at.is_open:
            self.asked = epoch
        elif epoch != at.epoch or at.is_finished or self._is_over:
            self._move(Iteration(epoch))

    def go_to(self, epoch: int, position: int = 0) -> None:
        """Makes the next iteration begin at a position of an epoch, of a loaded state for instance."""
        self._move(Iteration(epoch, position))

    def _move(self, iteration: Iteration) -> None:
        left, self.at, self.asked = self.at, iteration, None
        if left is not iteration:
            left.is_open = False

    def _beyond(self, *, at_its_end: bool = False) -> Iteration | None:
        """Where the end of the current iteration leads; None if it leads nowhere."""
        at = self.at
        if at_its_end or self._is_over:
            return Iteration(self._following) if self._advances else Iteration(at.epoch, is_finished=True)
        if self.asked is not None and self.asked != at.epoch:
            return Iteration(self.asked)
        return None

    @property
    def _is_over(self) -> bool:
        """Whether all was handed out. A state that stands at an end is read, as nothing, before the next."""
        at = self.at
        return at.taken > 0 and self._reached(at.epoch, at.start, at.taken)[1]

    @property
    def _following(self) -> int:
        if self.asked is not None:
            return self.asked
        return self.at.epoch + (self._advances or self.is_told)
