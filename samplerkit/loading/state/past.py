"""The past of a run: which parts of which epochs all ranks together have read, as a small value."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import NamedTuple, final

from samplerkit.errors import StateError
from samplerkit.loading.state.state import Section, State, checks_of, int_in, list_of, require_fields
from samplerkit.order.arguments import INT64_MAX

MAX_STRETCHES = 64
"""The most stretches in a state; older ones are only counted, so that it stays below 4 KB."""

SECTION = "read"
"""The name of the section of a state."""

_STRETCH = list_of(int_in(-INT64_MAX, INT64_MAX), 4)


class EpochsRead(NamedTuple):
    """The same part of some successive epochs.

    Args:
        epoch: the first of the epochs.
        epochs: how many.
        begin: the position at which it begins in each, in units of the run.
        end: the position at which it ends; or -G, where it holds all whole steps of G units that the rest of
            the epoch has: -1 for all of the rest.
    """

    epoch: int
    epochs: int
    begin: int
    end: int

    def end_in(self, total: int) -> int:
        """Returns the position at which it ends in an epoch of so many units."""
        return self.end if self.end >= 0 else total - (total - self.begin) % -self.end

    @property
    def reached(self) -> tuple[int, int]:
        """The epoch and the position up to which all was read or left out; the next epoch after its end."""
        last = self.epoch + self.epochs - 1
        return (last, self.end) if self.end >= 0 else (last + 1, 0)

    def joined(self, later: EpochsRead) -> EpochsRead | None:
        """Returns both as one stretch; None where they are not one."""
        if (later.begin, later.end) == (self.begin, self.end) and later.epoch == self.epoch + self.epochs:
            return self._replace(epochs=self.epochs + later.epochs)
        is_one_epoch = self.epochs == later.epochs == 1 and self.epoch == later.epoch
        # Whole steps end at the same place if they are counted from the beginning of the epoch.
        has_same_end = later.end >= 0 or later.begin % -later.end == 0
        if is_one_epoch and self.end == later.begin and has_same_end:
            return self._replace(end=later.end)
        return None


@final
@dataclass(frozen=True)
class Past:
    """What was read, in the order in which it was read.

    Args:
        stretches: at most 64, in the order in which they were read.
        older: how many epochs, or parts of one, were read before, of which nothing else is known.

    Example:
        >>> past = Past()
        >>> for stretch in (EpochsRead(0, 1, 0, -1), EpochsRead(1, 1, 0, 40), EpochsRead(1, 1, 40, -1)):
        ...     past = past.then(stretch)
        >>> past.stretches
        (EpochsRead(epoch=0, epochs=2, begin=0, end=-1),)
    """

    stretches: tuple[EpochsRead, ...] = field(default=(), metadata={"check": list_of(_STRETCH)})
    older: int = field(default=0, metadata={"check": int_in(0, INT64_MAX)})

    def then(self, stretch: EpochsRead) -> Past:
        """Returns the past after one stretch more."""
        if stretch.end == stretch.begin:
            return self
        *before, last = self.stretches or (None,)
        if last is not None and (joined := last.joined(stretch)) is not None:
            # A stretch that is now a whole epoch may continue the epochs before it.
            return Past(tuple(before), self.older).then(joined)
        stretches = (*self.stretches, stretch)
        forgotten, stretches = stretches[:-MAX_STRETCHES], stretches[-MAX_STRETCHES:]
        return Past(stretches, self.older + sum(old.epochs for old in forgotten))

    def forgotten(self) -> Past:
        """Returns the past of a run that reads other samples at the same positions."""
        return Past((), self.older + sum(part.epochs for part in self.stretches))

    def rescaled(self, multiple: int, before: int, after: int) -> Past:
        """Returns the past in units of another size, without stretches that cannot be expressed in these.

        Args:
            multiple: the units between two positions at which both sizes have read the same.
            before: how many of the units make as many samples as `after` of the new ones.
            after: likewise.
        """
        past = Past((), self.older)
        for part in self.stretches:
            if part.begin % multiple or (part.end != -1 and (part.end < 0 or part.end % multiple)):
                past = Past((*past.stretches, part), past.older).forgotten()
                continue
            end = -1 if part.end == -1 else part.end * after // before
            past = past.then(part._replace(begin=part.begin * after // before, end=end))
        return past

    def saved(self) -> dict[str, Section]:
        """Returns the section of a state: JSON values, under 3 KB."""
        return {SECTION: {"stretches": [list(part) for part in self.stretches], "older": self.older}}

    def in_state(self, state: State) -> State:
        """Returns a state with this past."""
        return replace(state, sections={**state.sections, **self.saved()})

    @classmethod
    def of(cls, state: State) -> Past:
        """Reads the section of a state; without it, as in states of torch's samplers, nothing is known.

        Raises:
            StateError: it holds what no run saves.
        """
        if (saved := state.sections.get(SECTION)) is None:
            return cls((), state.epoch + (state.position > 0))
        require_fields(SECTION, saved, checks_of(cls))
        stretches = tuple(EpochsRead(*part) for part in saved["stretches"])
        for part in stretches:
            are_epochs = 0 <= part.epoch < part.epoch + part.epochs <= INT64_MAX
            if not are_epochs or part.begin < 0 or 0 <= part.end <= part.begin:
                raise StateError(SECTION, "has a range that no run reads", list(part))
        # At the beginning of an epoch another one may have been read last.
        if state.position and stretches and stretches[-1].reached != (state.epoch, state.position):
            raise StateError(SECTION, "does not end where the state is", list(stretches[-1]), state.place[:2])
        return cls(stretches, saved["older"])


EMPTY_PAST = Past()
"""The past of a run that has read nothing."""
