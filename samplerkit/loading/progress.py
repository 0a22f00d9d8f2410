"""Where a loader stands: the epoch, the position at which it began to read, and the batches handed out."""

from __future__ import annotations

from dataclasses import replace
from typing import Final, final

from samplerkit.errors import OutOfDatasetError
from samplerkit.loading.delivery import Tail
from samplerkit.loading.reading import Reading
from samplerkit.loading.run import Run
from samplerkit.loading.state import State


@final
class Progress:
    """How far a run has come through its epochs, and which iteration carries it on.

    Args:
        run: the recipe, the dataset and the rank.
        batch_size: samples a rank and step.
        tail: what becomes of the last samples, which do not fill a global batch.

    Attributes:
        epoch: the current epoch.
        start: the position of the epoch at which it began to read.
        delivered: how many batches were handed out since `go_to`. The loop's last batch and this number
            change together: the loader sets it in the line before it hands the batch out.
        iteration: the iteration under way; None between two of them.
    """

    def __init__(self, run: Run, batch_size: int, tail: Tail) -> None:
        self._run: Final = run
        self._batch_size: Final = batch_size
        self._tail: Final = tail
        self.epoch = self.start = self.delivered = 0
        self.iteration: object | None = None
        self._asked_epoch: int | None = None
        self._reading: Reading | None = None

    def go_to(self, epoch: int, position: int = 0) -> None:
        """Goes to a position of an epoch."""
        self.epoch, self.start, self.delivered = epoch, position, 0
        self._reading = None

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch that the next iteration reads; the current one keeps its position."""
        if self.iteration is not None:
            self._asked_epoch = epoch
        elif epoch != self.epoch:
            self.go_to(epoch)

    def begin_iteration(self, *, goes_on: bool) -> object:
        """Begins to read what is next, and ends the iteration under way, if there is one.

        Args:
            goes_on: whether an epoch that was left early goes on where it stopped.

        Returns:
            What `iteration` is from now on.
        """
        self.end_iteration(self.iteration)
        if self.delivered:
            self.go_to(self.epoch, self.position if goes_on else 0)
        self.iteration = object()
        return self.iteration

    def end_iteration(self, iteration: object | None, *, at_its_end: bool = False) -> None:
        """Ends an iteration, and goes to the epoch that comes next; nothing if a newer one has begun.

        Args:
            iteration: from `begin_iteration`.
            at_its_end: whether the loop was told that there are no more batches.
        """
        if self.iteration is not iteration:
            return
        asked, following = self._asked_epoch, self._following_epoch
        self.iteration = self._asked_epoch = None
        # A trainer that counts batches does not ask for the end.
        if at_its_end or (self.delivered and self.reading.delivery.is_over_after(self.delivered)):
            self.go_to(following)
        elif asked is not None and asked != self.epoch:
            self.go_to(asked)

    @property
    def _following_epoch(self) -> int:
        return self.epoch + 1 if self._asked_epoch is None else self._asked_epoch

    @property
    def reading(self) -> Reading:
        """What this rank reads from where it began; another object after each `go_to`."""
        if self._reading is None:
            self._reading = self._run.reading(self.epoch, self.start, self._batch_size, self._tail)
        return self._reading

    @property
    def epoch_steps(self) -> int:
        """The number of batches of this rank in the whole of the current epoch."""
        reading = self.reading
        return replace(reading.delivery, start=0).steps(reading.shard)

    @property
    def remaining(self) -> int:
        """The number of batches of this rank that are not handed out yet."""
        return self.reading.steps - self.delivered

    @property
    def position(self) -> int:
        """The position up to which all ranks together have consumed the order."""
        return self.reading.delivery.position_after(self.delivered)

    def state_after(self, steps: int) -> State:
        """Gives the state of the run after a number of steps of all ranks.

        Raises:
            OutOfDatasetError: the job takes fewer steps, or they are negative.
        """
        delivery = self.reading.delivery
        if not 0 <= steps <= delivery.job_steps:
            raise OutOfDatasetError("step", f"must be in [0, {delivery.job_steps}]", steps)
        if delivery.is_over_after(steps):
            return self._run.state(self._following_epoch, 0, self._tail)
        return self._run.state(self.epoch, delivery.position_after(steps), self._tail)
