"""What a DataLoader is told to fetch: the requests of a reading, step by step, by the edits made so far."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, final

from samplerkit.loading.reading import Reading
from samplerkit.loading.request import Request
from samplerkit.loading.run_edits import Requested
from samplerkit.loading.units import StepSamples
from samplerkit.order.typing import Ids


@final
class Requests:
    """The batch sampler of torch's DataLoader: an iterator over it takes the requests that `make` makes."""

    def __init__(self) -> None:
        # torch asks for an iterator twice when workers start, so this is no iterator but a way to make one.
        self.make: Callable[[], Iterator[Request]] = _none_yet

    def __iter__(self) -> Iterator[Any]:
        return self.make()


@final
@dataclass(frozen=True, eq=False)
class Asked:
    """How requests are made. It knows no stage: a stage's thread holds it, and must not hold what ends it.

    Args:
        readings: gives what is read from a position of an epoch on.
        edits: how far a run was asked for that may be edited; None for one that may not.
        run_position: gives the position of the run up to which a position of an epoch leads.
        run_ahead: whether the epochs after the one asked for follow.
        tells: what the dataset wants to know of each sample, `passes` or `epochs`.
    """

    readings: Callable[[int, int], Reading]
    edits: Requested | None
    run_position: Callable[[int, int], int]
    run_ahead: bool
    tells: tuple[str, ...]

    def requests(self, reading: Reading) -> Iterator[Request]:
        """Gives the requests of a reading, and perhaps of the epochs after it."""
        while reading.has(0):
            for made_of, step, (ids, draws, segments) in self._steps(reading):
                told = tuple(_told(made_of, name, draws) for name in self.tells)
                edits = () if self.edits is None else self.edits.made
                yield Request(reading.epoch, reading.start, step, ids, draws, told, segments, edits)
            if not self.run_ahead:
                return
            reading = self.readings(reading.epoch + 1, 0)

    def _steps(self, reading: Reading) -> Iterator[tuple[Reading, int, StepSamples]]:
        """Gives the steps of a reading, each by the edits that were made before it is asked for."""
        if self.edits is None:
            yield from ((reading, step, samples) for step, samples in reading.samples())
            return
        next_step, edition = 0, -1
        while edition != self.edits.edition:
            edition = self.edits.edition
            reading = self.readings(reading.epoch, reading.start)
            for step, samples in reading.samples(next_step):
                with self.edits.lock:
                    if edition != self.edits.edition:
                        break
                    end = self.run_position(reading.epoch, reading.delivery.position_after(step + 1))
                    self.edits.position = max(self.edits.position, end)
                next_step = step + 1
                yield reading, step, samples


def _told(reading: Reading, name: str, draws: range | Ids) -> Ids:
    """Gives what a dataset wants to know of some draws."""
    if name == "passes":
        return reading.units.passes(draws)
    return reading.units.epochs(reading.epoch, draws)


def _none_yet() -> Iterator[Request]:
    return iter(())
