"""Where a loader stands: the epoch, the position at which it began to read, and the batches handed out."""

from __future__ import annotations

from typing import Final, final

from samplerkit.loading.delivery import Tail
from samplerkit.loading.reading import Reading
from samplerkit.loading.run import Run
from samplerkit.loading.state import State


@final
class Progress:
    """How far a run has come through its epochs.

    Args:
        run: the recipe, the dataset and the rank.
        batch_size: samples a rank and step.
        tail: what becomes of the last samples, which do not fill a global batch.

    Attributes:
        epoch: the current epoch.
        start: the position of the epoch at which it began to read.
        delivered: how many batches were handed out since `begin`. The loop's last batch and this number
            change together: the loader sets it in the line before it hands the batch out.
    """

    def __init__(self, run: Run, batch_size: int, tail: Tail) -> None:
        self._run: Final = run
        self._batch_size: Final = batch_size
        self._tail: Final = tail
        self.epoch = self.start = self.delivered = 0
        self._reading: Reading | None = None

    def begin(self, epoch: int, position: int = 0) -> None:
        """Goes to a position of an epoch."""
        self.epoch, self.start, self.delivered = epoch, position, 0
        self._reading = None

    @property
    def reading(self) -> Reading:
        """What this rank reads from where it began."""
        if self._reading is None:
            self._reading = self._reading_from(self.start)
        return self._reading

    @property
    def whole_epoch(self) -> Reading:
        """What this rank reads in the whole of the current epoch."""
        return self._reading_from(0)

    @property
    def position(self) -> int:
        """The position up to which all ranks together have consumed the order."""
        return self.reading.delivery.position_after(self.delivered)

    @property
    def is_over(self) -> bool:
        """Whether the whole epoch was handed out: a trainer that counts batches does not ask for its end."""
        return 0 < self.delivered == self.reading.steps

    def state(self, delivered: int) -> State:
        """Gives the state of the run after a number of batches."""
        reading = self.reading
        if reading.is_over_after(delivered):
            return self._run.state(self.epoch + 1, 0, self._tail)
        return self._run.state(self.epoch, reading.delivery.position_after(delivered), self._tail)

    def _reading_from(self, start: int) -> Reading:
        return self._run.reading(self.epoch, start, self._batch_size, self._tail)
