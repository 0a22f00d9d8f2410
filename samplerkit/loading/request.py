"""What travels to the workers: one request a batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

from samplerkit.batches.segments import Segments
from samplerkit.loading.reading import Reading
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
    """

    epoch: int
    start: int
    step: int
    ids: Ids
    positions: range | Ids
    told: tuple[Ids, ...] = ()
    segments: Segments | None = None
    edits: tuple[Edit, ...] = ()


class Foreseen(Protocol):
    """What tells which samples come."""

    def __call__(self, epoch: int, start: int) -> Reading:
        """Gives the reading from a position of an epoch on."""

    def follow(self, edits: tuple[Edit, ...]) -> None:
        """Makes the edits that were made elsewhere since the last time."""
