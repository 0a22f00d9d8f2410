"""What this process reads of a run, from any place on."""

from __future__ import annotations

from typing import Any, Final, final

from samplerkit.loading.delivery import Tail
from samplerkit.loading.reading import Reading
from samplerkit.loading.run import Run
from samplerkit.samplers.base import Sampler
from samplerkit.samplers.context import RunConstants
from samplerkit.samplers.edit import Edit


@final
class Readings:
    """What this process reads of a run, from any place on: the arithmetic of a loader's cursor.

    Args:
        run: the recipe over the dataset in the job.
        batch_size: samples a rank and step.
        tail: what becomes of the last samples, which do not fill a global batch.
    """

    def __init__(self, run: Run, batch_size: int, tail: Tail) -> None:
        self._run = run
        self._batch_size = batch_size
        self.tail: Final[Tail] = tail
        self._last: tuple[RunConstants, Sampler, Reading] | None = None

    @property
    def samples_a_step(self) -> int:
        """How many samples all ranks together read in a step."""
        return self._run.world.num_shards * self._batch_size

    def __call__(self, epoch: int, start: int) -> Reading:
        """Gives the reading from a position of an epoch on; the last one asked for is kept."""
        constants, recipe = self._run.constants, self._run.recipe
        if self._last is not None:
            *made_of, last = self._last
            if (last.epoch, last.start) == (epoch, start) and made_of == [constants, recipe]:
                return last
        reading = self._run.reading(epoch, start, self._batch_size, self.tail)
        self._last = (constants, recipe, reading)
        return reading

    def follow(self, edits: tuple[Edit, ...]) -> None:
        """Makes the edits that were made elsewhere since: a worker has a run of its own, as it was begun."""
        ledger = self._run.ledger
        while ledger is not None and len(ledger.edits) < len(edits):
            ledger = ledger.edited(edits[len(ledger.edits)])
            self._run.take_edit(ledger)

    def reached(self, epoch: int, start: int, steps: int) -> tuple[int, bool]:
        """Gives the position after some steps of all ranks, and whether nothing is left to any of them."""
        delivery = self(epoch, start).delivery
        return delivery.position_after(steps), delivery.is_over_after(steps)

    def __getstate__(self) -> dict[str, Any]:
        """A worker makes readings of its own: an order can be large to send."""
        return {**self.__dict__, "_last": None}
