"""What travels to the workers: one request a batch."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, Protocol

from samplerkit.batches.segments import Segments
from samplerkit.errors import note_once
from samplerkit.loading.affinity import BatchShare
from samplerkit.loading.reading import Reading
from samplerkit.loading.units import as_array
from samplerkit.order.typing import Ids
from samplerkit.samplers.edit import Edit

BadSamples = Literal["raise", "skip"]
"""What becomes of a sample that cannot be read."""


@dataclass(frozen=True, eq=False)
class Request:
    """One batch that a rank reads.

    Args:
        epoch: the epoch, which so reaches persistent workers too.
        start: the position of the epoch at which the reading began.
        step: the step of the reading.
        ids: the samples, int64 of shape (samples,).
        positions: theirs in the epoch's order, which are their draws; mostly a range, which is less to send.
        told: what the dataset wants to know of each: the pass over its source, the epoch of that, or both.
        segments: which parts of the samples are read, for packs; None where they are whole.
        edits: all edits of the run, if one was made since it began.
        share: whose files the samples lie in, where files are of one worker each; else None.
    """

    epoch: int
    start: int
    step: int
    ids: Ids
    positions: range | Ids
    told: tuple[Ids, ...] = ()
    segments: Segments | None = None
    edits: tuple[Edit, ...] = ()
    share: BatchShare | None = None

    def shared(self, share: BatchShare) -> Request:
        """Gives the request of a share of the batch."""
        if (places := share.places) is None:
            return replace(self, share=share)
        return replace(
            self,
            share=share,
            ids=self.ids[places],
            positions=as_array(self.positions)[places],
            told=tuple(told[places] for told in self.told),
            segments=self.segments and self.segments.at(places),
        )

    def asked(self, what: Ids, places: slice = slice(None)) -> tuple[Ids, ...]:
        """Gives what the method of a dataset that reads some samples of the batch is called with."""
        return (what, *(told[places] for told in self.told))

    def tell(self, error: Exception, place: int | None = None) -> None:
        """Adds to an error which sample it is about, so that a traceback alone is enough to find it."""
        what = "one of the samples"
        if place is not None:
            in_batch = place if self.places is None else int(self.places[place])
            what = f"sample {self.ids[place]}, at place {in_batch}"
        note_once(
            error,
            f"samplerkit: while reading {what} of the batch in step {self.step} of epoch {self.epoch}, "
            f"counted from position {self.start}",
        )

    @property
    def places(self) -> Ids | None:
        """Where its samples stand in the batch; None where they are all of it."""
        return None if self.share is None else self.share.places


class Foreseen(Protocol):
    """What tells which samples come."""

    def __call__(self, epoch: int, start: int) -> Reading:
        """Gives the reading from a position of an epoch on."""

    def follow(self, edits: tuple[Edit, ...]) -> None:
        """Makes the edits that were made elsewhere since the last time."""
