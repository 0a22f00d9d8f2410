"""What this process reads of a run, from any place on."""

from __future__ import annotations

from typing import Any, Final, final

from samplerkit.loading.delivery import Delivery, Tail
from samplerkit.loading.reading import Reading
from samplerkit.loading.run import Run
from samplerkit.loading.run_edits import ramp_of, require_divided
from samplerkit.loading.stages import Ramp
from samplerkit.loading.units import SampleUnits
from samplerkit.samplers.base import Sampler
from samplerkit.samplers.context import RunConstants
from samplerkit.samplers.edit import Edit


def reading_of(run: Run, epoch: int, start: int, batch_size: int, tail: Tail) -> Reading:
    """Gives what this process reads of a run from a position of an epoch on.

    Args:
        run: the recipe over the dataset in the job.
        epoch: from 0.
        start: the position.
        batch_size: units a rank and step: samples, or one batch.
        tail: what becomes of the last units.
    """
    deal, units, ranks = run.recipe.root_deal(run.dataset), run.units(epoch), run.world.num_shards
    deals_samples = isinstance(units, SampleUnits)
    ramp: Ramp = ()
    if run.ledger is not None and run.ledger.ramp and deals_samples:
        begin = run.run_position(epoch, 0)
        require_divided(run.ledger, begin + start, ranks)
        ramp = ramp_of(run.ledger, begin, len(units))
    delivery = Delivery(
        total=len(units) if isinstance(units, SampleUnits) else units,
        start=start,
        num_shards=ranks,
        batch_size=batch_size,
        tail=tail,
        rotation=0 if deal is None else max(0, deal.offset),
        lanes=run.recipe.woven_lanes(run.dataset, run.constants) if deals_samples else 1,
        ramp=ramp,
    )
    return Reading(epoch, units, delivery, run.world.shard_id)


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
        reading = reading_of(self._run, epoch, start, self._batch_size, self.tail)
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
