"""What a loop received with its batches: what was left out of them, and figures for a training log."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Collection
from typing import Any, final

import numpy as np

from samplerkit.loading.cursor import Iteration
from samplerkit.loading.run.reading import Reading
from samplerkit.loading.stats import LoaderStats, Waits
from samplerkit.loading.workers.protocol import Answer, SkippedSample
from samplerkit.order.typing import Ids

_LOG = logging.getLogger("samplerkit")

MOST_SKIPPED = 10_000
"""Skipped samples that are kept, the latest ones: a run of months may skip the same ones in each epoch."""


@final
class Received:
    """Keeps what came with the batches of a loader.

    Args:
        dataset: what workers read; one with a method `count_workers` receives a function that returns their
            figures, so that its own `stats` has them too. None in a loader without worker processes.

    Attributes:
        skipped: the latest samples that were left out, since the loader was made.
    """

    def __init__(self, dataset: Any) -> None:
        self.skipped: deque[SkippedSample] = deque(maxlen=MOST_SKIPPED)
        self._skipped = 0
        # By step: the places of samples that were left out, and the sample in place of a whole batch.
        self._left_out: dict[int, tuple[list[int], int | None]] = {}
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
        self._left_out.clear()
        self._begun = self._asked = self._last = time.perf_counter()
        for reader in self._of_workers.keys() - set(readers):
            self._of_ended_workers = _sum(self._of_ended_workers, self._of_workers.pop(reader))

    def ask(self) -> None:
        """Notes that the loop asks for a batch."""
        self._asked = time.perf_counter()

    def take(self, step: int, answer: Answer) -> Any:
        """Notes that the loop has it, and returns the batch alone."""
        self._last = time.perf_counter()
        self._waits.add(self._last - self._asked)
        for skipped in answer.skipped:
            self._log(skipped)
            self.skipped.append(skipped)
        if answer.skipped:
            self._skipped += len(answer.skipped)
            self._left_out[step] = [skipped.place for skipped in answer.skipped], answer.stand_in
        for report in answer.reports:
            self._of_workers[report.reader] = report.stats
        return answer.batch

    def ids(self, iteration: Iteration, reading: Reading, step: int) -> Ids:
        """Returns the ids of a step without those of the samples that were left out of it.

        Args:
            iteration: the current one; of another one than what was received, nothing was left out yet.
            reading: what it reads.
            step: the step.
        """
        ids, (places, stand_in) = reading.ids(step), self._left_out_of(iteration, step)
        return np.delete(ids, places) if stand_in is None else np.array([stand_in])

    def pads(self, iteration: Iteration, reading: Reading, step: int) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Likewise returns which of the rest are pads: a sample in place of a whole batch is one."""
        pads, (places, stand_in) = reading.pads(step), self._left_out_of(iteration, step)
        return np.delete(pads, places) if stand_in is None else np.array([True])

    def _left_out_of(self, iteration: Iteration, step: int) -> tuple[list[int], int | None]:
        return self._left_out.get(step, ([], None)) if iteration is self._iteration else ([], None)

    def _log(self, skipped: SkippedSample) -> None:
        if not skipped.file:
            _LOG.warning("sample %d of epoch %d was skipped: %s", skipped.id, skipped.epoch, skipped.error)
        elif skipped.file not in self._logged:
            self._logged.add(skipped.file)
            _LOG.warning("left out: %s", skipped.error)

    def stats(self, of_dataset: Any) -> LoaderStats:
        """Returns the figures so far.

        Args:
            of_dataset: those of the dataset in this process; None in a loader with workers.
        """
        return LoaderStats(
            epoch=0 if self._iteration is None else self._iteration.epoch,
            **vars(self._waits),
            seconds=self._last - self._begun,
            skipped=self._skipped,
            dataset=_sum(of_dataset, self.of_workers()),
        )

    def of_workers(self) -> Any:
        """Returns the figures of the dataset in all workers so far, added up; None where there are none."""
        total = self._of_ended_workers
        for stats in list(self._of_workers.values()):
            total = _sum(total, stats)
        return total


def _sum(one: Any, other: Any) -> Any:
    if one is None or other is None:
        return one if other is None else other
    return one + other
