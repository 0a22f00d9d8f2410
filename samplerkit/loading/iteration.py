"""Iterations over epochs, and the cursor of a reader: its place, and where its next iteration begins.

All readers share it:

| reader | one unit is | epoch | `set_epoch` in a loop |
|---|---|---|---|
| `Loader` | a batch of each rank | advances | waits for its end |
| `DeviceLoader` over a loader that cannot count | a batch | advances | waits for its end |
| `TorchSampler`, `DistributedSamplerViaLocallyShuffle` | a sample of each rank | advances | holds at once |
| torch's samplers | a sample of each rank | stays until it is set | holds at once |

What differs in the arithmetic is one method, `reached`: where a `Run` is read, that of `RunCursor`; elsewhere
often a function.
"""

from __future__ import annotations

import logging
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final

from samplerkit.errors import StateError
from samplerkit.loading.state.state import EpochsRead, Past, Place

_log = logging.getLogger("samplerkit")


@dataclass(eq=False)
class Iteration:
    """One way through the rest of an epoch. It counts for itself, so an old one never counts for a newer.

    Args:
        epoch: the epoch.
        place: what a state saved before the first unit contains: where this iteration begins; or the
            beginning of the next epoch, if this epoch was finished before: it is then read again, or empty.
        is_loaded: whether it begins at the place of a loaded state.
        is_spent: whether the epoch was finished before a state was loaded, so that this iteration is empty.
        past: what was read before it.
        after: the epoch that was finished just before it, which may be this one; unlike `ended` it is not
            saved, and stays when units are handed out.

    Attributes:
        taken: the units that were handed out. It is set in the line before a unit is handed out, so that
            neither a signal handler nor an exception can see one without the other.
        is_open: whether it is under way.
    """

    epoch: int
    place: Place
    is_loaded: bool = False
    is_spent: bool = False
    past: Past = field(default_factory=Past)
    after: int | None = None
    taken: int = field(default=0, init=False)
    is_open: bool = field(default=False, init=False)

    @property
    def start(self) -> int:
        """The position at which it begins."""
        return self.place.position

    @property
    def ended(self) -> int | None:
        """The epoch that ended before it, as long as nothing was handed out; else None."""
        return None if self.taken else self.place.ended

    def reads_as(self, other: Iteration) -> bool:
        """Returns whether another one reads the same."""
        return (self.epoch, self.start, self.is_spent) == (other.epoch, other.start, other.is_spent)

    def __getstate__(self) -> dict[str, Any]:
        """A copy is not under way: no loop asks for its batches."""
        return {**self.__dict__, "is_open": False}


class Cursor(ABC):
    """Carries a reader from iteration to iteration, from epoch to epoch, and from a saved state on.

    A state depends on one reference, `current`: any code, also a signal handler, sees the place before a
    change or the one after it.

    Args:
        advances: whether the epoch advances when it is finished. Otherwise it stays until `set_epoch`; a
            state then has the next epoch if any epoch was set before, since the loop will set that one.
        waits: whether `set_epoch` during an iteration waits for its end, else ends it.
        resumes: whether an epoch that was left early resumes where it was left, else it begins again.

    Attributes:
        current: the iteration under way, or the last one: what it has taken is what counts.
        next_epoch: the epoch that waits for the end of the iteration.
        was_set: whether an epoch was ever set.

    Example:
        >>> cursor = FunctionCursor(lambda epoch, start, taken: (start + taken, start + taken == 5))
        >>> iteration = cursor.begin()
        >>> iteration.taken = 3
        >>> cursor.place(), cursor.upcoming.epoch
        (Place(epoch=0, position=3, ended=None), 0)
        >>> iteration.taken = 5
        >>> cursor.place(), cursor.upcoming.epoch
        (Place(epoch=1, position=0, ended=0), 1)

        A job that loads a state saved at the end of an epoch, and sets this epoch, reads nothing of it again:

        >>> resumed = FunctionCursor(lambda epoch, start, taken: (start + taken, start + taken == 5))
        >>> resumed.load(cursor.place())
        >>> resumed.set_epoch(0)
        >>> resumed.begin().is_spent
        True
    """

    def __init__(self, *, advances: bool = True, waits: bool = False, resumes: bool = False) -> None:
        self._advances: Final = advances
        self._waits: Final = waits
        self._resumes: Final = resumes
        self.next_epoch: int | None = None
        self.was_set = False
        self.current = Iteration(0, Place(0, 0))

    @abstractmethod
    def reached(self, epoch: int, start: int, taken: int) -> tuple[int, bool]:
        """Returns the position that all ranks have reached, and whether the epoch is finished for all.

        At position 0 it is never finished: an empty epoch is noticed when it is read.

        Args:
            epoch: the epoch.
            start: the position at which the iteration began.
            taken: the units taken since.
        """

    def stretch(self, epoch: int, start: int, taken: int) -> EpochsRead:
        """Returns the stretch of an epoch that all ranks have read; an empty one if no past is kept."""
        return EpochsRead(epoch, 1, start, start)

    @property
    def epoch(self) -> int:
        """The current epoch."""
        return self.current.epoch

    def place(self, taken: int | None = None) -> Place:
        """Returns what a state says: where all ranks are after some units; None for those handed out.

        After the last unit of an epoch this is the beginning of the next one, even before `next` raises
        StopIteration: a loop that counts its steps never asks for that. The place then names the epoch that
        has ended.
        """
        current = self.current
        taken = current.taken if taken is None else taken
        if not taken and not current.start:
            return current.place
        position, is_over = self.reached(current.epoch, current.start, taken)
        return self._end_of(current.epoch) if is_over else Place(current.epoch, position)

    def past(self, taken: int | None = None) -> Past:
        """Returns what all ranks have read, up to `place(taken)`."""
        current = self.current
        taken = current.taken if taken is None else taken
        if not taken:
            return current.past
        return current.past.then(self.stretch(current.epoch, current.start, taken))

    @property
    def upcoming(self) -> Iteration:
        """Returns the iteration that would begin now."""
        current, following = self.current, self._following()
        if following is not None:
            return following
        if not current.taken:
            return replace(current)
        return Iteration(current.epoch, Place(current.epoch, self.place().position if self._resumes else 0))

    def begin(self, expected: Iteration | None = None) -> Iteration:
        """Begins an iteration, and ends the one under way, if there is one.

        Args:
            expected: what was `upcoming` when it was made, for one that begins later. If that is no longer
                what comes, an epoch was set or a state loaded since: it is read all the same, and not
                counted.
        """
        upcoming = self.upcoming
        iteration = upcoming if expected is None else expected
        iteration.is_open = True
        if iteration.reads_as(upcoming):
            self._move(iteration)
        return iteration

    def end(self, iteration: Iteration, *, at_its_end: bool = False) -> None:
        """Ends an iteration, and goes to the epoch that comes next; nothing if it is not under way any more.

        Args:
            iteration: from `begin`.
            at_its_end: whether the loop has reached the end.
        """
        if iteration is self.current and iteration.is_open and not sys.is_finalizing():
            following = self._following(at_its_end=at_its_end)
            if following is None:
                # One that was left early stays: what it has handed out is what a state counts.
                self.next_epoch = None
            else:
                # At its end a rank may be one step behind the others: that step counts as read.
                lacks_a_step = at_its_end and not iteration.is_spent and not self._is_over
                self._move(following, self.past(iteration.taken + (1 if lacks_a_step else 0)))
            iteration.is_open = False

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch that the next iteration reads; the current one keeps a loaded position.

        If the loaded state was saved at the end of this epoch, the next iteration is empty.
        """
        self.was_set = True
        now = self.current
        if self._waits and now.is_open:
            self.next_epoch = epoch
            return
        if now.is_loaded and epoch == now.ended:
            self._move(Iteration(epoch, now.place, is_spent=True, after=epoch))
            return
        is_over = self._is_over
        if epoch == now.epoch and not is_over and (now.is_spent or epoch != now.ended):
            return
        if now.is_loaded and not now.taken and epoch < now.epoch:
            _log.warning("epoch %d is set and read again: the loaded state is at epoch %d", epoch, now.epoch)
        after = now.epoch if is_over else None if now.taken else now.after
        self._move(Iteration(epoch, Place(epoch, 0, None if after == epoch else after), after=after))

    def go_to(self, epoch: int, position: int = 0) -> None:
        """Makes the next iteration begin at a position of an epoch."""
        self._move(Iteration(epoch, Place(epoch, position)))

    def require_closed(self) -> None:
        """Refuses to load a state while a loop holds an iteration, where `set_epoch` waits for its end too.

        Raises:
            StateError: one is under way.
        """
        if self._waits and self.current.is_open:
            problem = "cannot be loaded while an iteration is under way"
            raise StateError("state", problem, hint="load before iterating")

    def load(self, place: Place, past: Past | None = None) -> None:
        """Makes the next iteration begin at the place of a loaded state.

        If the state was saved at the end of the epoch that was set before, that iteration is empty.
        """
        set_before = self.current.epoch
        self._move(Iteration(place.epoch, place, is_loaded=True, after=place.ended), past or Past())
        if self.was_set and place.ended == set_before:
            self.set_epoch(set_before)

    def _move(self, iteration: Iteration, past: Past | None = None) -> None:
        iteration.past = self.past() if past is None else past
        previous, self.current, self.next_epoch = self.current, iteration, None
        previous.is_open = False

    def _following(self, *, at_its_end: bool = False) -> Iteration | None:
        """Returns the iteration that follows the current one; None if the epoch continues."""
        now = self.current
        if at_its_end or self._is_over:
            end = self._end_of(now.epoch)
            return Iteration(end.epoch if self._advances else now.epoch, end, after=now.epoch)
        if self.next_epoch is not None and self.next_epoch != now.epoch:
            return Iteration(self.next_epoch, Place(self.next_epoch, 0))
        return None

    @property
    def _is_over(self) -> bool:
        """Whether all was handed out; False before the first unit, so that an empty rest is iterated too."""
        current = self.current
        return current.taken > 0 and self.reached(current.epoch, current.start, current.taken)[1]

    def _end_of(self, epoch: int) -> Place:
        if self.next_epoch is not None:
            return Place(self.next_epoch, 0, None if self.next_epoch == epoch else epoch)
        return Place(epoch + (self._advances or self.was_set), 0, ended=epoch)


class FunctionCursor(Cursor):
    """The cursor of a reader that reads no run.

    Args:
        reached: returns what the method of that name returns.
        **choices: as for `Cursor`.
    """

    def __init__(self, reached: Callable[[int, int, int], tuple[int, bool]], **choices: bool) -> None:
        super().__init__(**choices)
        self._reached: Final = reached

    def reached(self, epoch: int, start: int, taken: int) -> tuple[int, bool]:
        """Asks the function."""
        return self._reached(epoch, start, taken)
