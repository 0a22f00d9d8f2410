"""What a loop received beside its batches: what was left out of them, and figures for a training log."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Collection
from typing import Any, final

import numpy as np

from samplerkit.loading.answer import Answer, SkippedSample
from samplerkit.loading.cursor import Iteration
from samplerkit.loading.reading import Reading
from samplerkit.loading.stats import LoaderStats, Waits
from samplerkit.order.typing import Ids

_log = logging.getLogger("samplerkit")

MOST_SKIPPED = 10_000
"""Skipped samples that are kept, the latest ones: a run of months may skip the same ones in each epoch."""


@final
class Received:
    """Keeps what came with the batches of a loader.

    Args:
        dataset: what workers read; one with a method `count_workers` is told where their figures are, so that
            its own `stats` has them too. None in a loader without worker processes.

    Attributes:
        skipped: the latest samples that were left out, since the loader was made.
    """

    def __init__(self, dataset: Any) -> None:
        self.skipped: deque[SkippedSample] = deque(maxlen=MOST_SKIPPED)
        self._skipped = 0
        self._places: dict[int, list[int]] = {}
        self._stand_ins: dict[int, int] = {}
        self._logged: set[str] = set()
        self._iteration: Iteration | None = None
        self._waits = Waits()
        self._begun = self._asked = self._last = time.perf_counter()
        self._of_workers: dict[int, Any] = {}
        self._of_ended_workers: Any = None
        if callable(count := getattr(dataset, "count_workers", None)):
            count(self.of_workers)

    def begin(self, iteration: Iteration, readers: Collection[int]) -> None:
        """Begins the figures of an iteration.

        Args:
            iteration: which.
            readers: of the reports: those that live on from the one before.
        """
        self._waits, self._iteration = Waits(), iteration
        self._places.clear()
        self._stand_ins.clear()
        self._begun = self._asked = self._last = time.perf_counter()
        for reader in self._of_workers.keys() - set(readers):
            self._of_ended_workers = _sum(self._of_ended_workers, self._of_workers.pop(reader))

    def ask(self) -> None:
        """Notes that the loop asks for a batch."""
        self._asked = time.perf_counter()

    def take(self, step: int, answer: Any) -> Any:
        """Notes that the loop has it, and gives the batch alone."""
        self._last = time.perf_counter()
        self._waits.add(self._last - self._asked)
        if not isinstance(answer, Answer):
            return answer
        for skipped in answer.skipped:
            self._tell(skipped)
            self.skipped.append(skipped)
            self._skipped += 1
            self._places.setdefault(step, []).append(skipped.place)
        if answer.stand_in is not None:
            self._stand_ins[step] = answer.stand_in
        for report in answer.reports:
            self._of_workers[report.reader] = report.stats
        return answer.batch

    def ids(self, iteration: Iteration, reading: Reading, step: int) -> Ids:
        """Gives the ids of a step without those of the samples that were left out of it.

        Args:
            iteration: the current one; of another one than what was received, nothing was left out yet.
            reading: what it reads.
            step: the step.
        """
        ids = reading.ids(step)
        if iteration is self._iteration and step in self._stand_ins:
            return np.array([self._stand_ins[step]])
        return self._present(iteration, step, ids)

    def pads(self, iteration: Iteration, reading: Reading, step: int) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Likewise tells which of the rest are pads: a sample that stands in for a whole batch is one."""
        pads = reading.pads(step)
        if iteration is self._iteration and step in self._stand_ins:
            return np.array([True])
        return self._present(iteration, step, pads)

    def _present(self, iteration: Iteration, step: int, values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        places = self._places.get(step) if iteration is self._iteration else None
        return values if places is None else np.delete(values, places)

    def _tell(self, skipped: SkippedSample) -> None:
        if not skipped.file:
            _log.warning("sample %d of epoch %d was skipped: %s", skipped.id, skipped.epoch, skipped.error)
        elif skipped.file not in self._logged:
            self._logged.add(skipped.file)
            _log.warning("left out: %s", skipped.error)

    def stats(self, of_dataset: Any) -> LoaderStats:
        """Gives the figures so far.

        Args:
            of_dataset: those of the dataset in this process; None in a loader with workers.
        """
        waits = self._waits
        return LoaderStats(
            epoch=0 if self._iteration is None else self._iteration.epoch,
            batches=waits.number,
            first_wait=waits.first,
            total_wait=waits.total,
            longest_wait=waits.longest,
            seconds=self._last - self._begun,
            skipped=self._skipped,
            dataset=_sum(of_dataset, self.of_workers()),
        )

    def of_workers(self) -> Any:
        """Gives the figures of the dataset in all workers so far, added up; None where there are none."""
        total = self._of_ended_workers
        for stats in list(self._of_workers.values()):
            total = _sum(total, stats)
        return total


def _sum(one: Any, other: Any) -> Any:
    if one is None or other is None:
        return one if other is None else other
    return one + other
