"""Figures of a loader for a training log, and reports that come with its batches."""

from __future__ import annotations

import dataclasses
import logging
import time
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from samplerkit.loading.cursor import Iteration
from samplerkit.loading.run.delivery import Reading
from samplerkit.loading.workers.protocol import Answer, SkippedSample
from samplerkit.order.typing import Ids


@dataclass(frozen=True)
class LoaderStats:
    """Figures of the iteration under way, or of the last one.

    Args:
        epoch: which it reads.
        batches: the number of batches handed out.
        first_wait: seconds that the loop waited for the first one, the start of workers included.
        total_wait: seconds that it waited for all.
        longest_wait: seconds that it waited for one, the first one left out.
        seconds: from the first request to the last batch handed out: waits, and the steps of the loop.
        skipped: samples that could not be read and were left out, since the loader was made.
        dataset: the figures of the dataset, such as files read and cache hits, where it has `stats`. With
            workers, those of all workers that the loader had, added up as their batches were handed out; for
            that they must be a dataclass that can be added, else it is None.

    Example:
        >>> LoaderStats(epoch=0, batches=4, total_wait=1.0, seconds=4.0).to_dict()["waiting"]
        0.25
    """

    epoch: int = 0
    batches: int = 0
    first_wait: float = 0.0
    total_wait: float = 0.0
    longest_wait: float = 0.0
    seconds: float = 0.0
    skipped: int = 0
    dataset: Any = None

    @property
    def waiting(self) -> float:
        """The share of the time that the loop waited."""
        return self.total_wait / self.seconds if self.seconds > 0 else 0.0

    def to_dict(self) -> dict[str, float]:
        """Returns all figures by name in one flat mapping, those of the dataset as `dataset/name`."""
        figures = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        dataset = figures.pop("dataset")
        figures["waiting"] = self.waiting
        if dataclasses.is_dataclass(dataset):
            for field in dataclasses.fields(dataset):
                figures[f"dataset/{field.name}"] = getattr(dataset, field.name)
        return figures


@final
@dataclass
class Waits:
    """Adds up how long a loop waited for its batches; the first wait, which includes the start, is separate.

    Its attributes have the names of the figures.
    """

    batches: int = 0
    first_wait: float = 0.0
    total_wait: float = 0.0
    longest_wait: float = 0.0

    def add(self, seconds: float) -> None:
        """Counts a wait."""
        if self.batches == 0:
            self.first_wait = seconds
        else:
            self.longest_wait = max(self.longest_wait, seconds)
        self.batches += 1
        self.total_wait += seconds


@dataclass(frozen=True)
class DeviceStats:
    """Figures of a `DeviceLoader`, of the epoch so far, of the batches handed out.

    A short wait alone does not prove that loading and training overlap. Pure Python that loads in a thread
    takes the interpreter from the loop, whose steps then take longer: `cpu_share` is near 1 then. Measure the
    whole epoch instead.

    Args:
        batches: the number of batches handed out.
        first_wait: seconds that the loop waited for the first one.
        total_wait: seconds that it waited for all.
        longest_wait: seconds that it waited for one, the first one left out.
        mean_queue_depth: batches that were waiting when the loop asked for one, on average.
        load_seconds: seconds that the loading thread took to load them.
        copy_seconds: seconds that it took to pin them and to begin their copies, the window included.
        cpu_share: share of `load_seconds` in which the thread computed; the rest it waited.

    Example:
        >>> DeviceStats(batches=4, first_wait=0.1, total_wait=0.16, longest_wait=0.03).mean_wait
        0.04
    """

    batches: int = 0
    first_wait: float = 0.0
    total_wait: float = 0.0
    longest_wait: float = 0.0
    mean_queue_depth: float = 0.0
    load_seconds: float = 0.0
    copy_seconds: float = 0.0
    cpu_share: float = 0.0

    @property
    def mean_wait(self) -> float:
        """Seconds that the loop waited for a batch, on average."""
        return self.total_wait / self.batches if self.batches else 0.0


@final
class StageCounts:
    """Adds up the figures of device stages, batch by batch. Only the loop's thread uses it."""

    def __init__(self) -> None:
        self.begin_epoch()

    def begin_epoch(self) -> None:
        """Begins from zero."""
        self._waits = Waits()
        self._queued = 0
        self._load = self._load_cpu = self._copy = 0.0

    def add(self, wait: float, queued: int, load: float, load_cpu: float, copy: float) -> None:
        """Counts a batch that is handed out: its wait, the batches that were queued then, and its cost."""
        self._waits.add(wait)
        self._queued += queued
        self._load += load
        self._load_cpu += load_cpu
        self._copy += copy

    @property
    def stats(self) -> DeviceStats:
        """The figures so far."""
        return DeviceStats(
            **vars(self._waits),
            mean_queue_depth=self._queued / max(1, self._waits.batches),
            load_seconds=self._load,
            copy_seconds=self._copy,
            cpu_share=self._load_cpu / self._load if self._load > 0 else 0.0,
        )


_LOG = logging.getLogger("samplerkit")

MAX_SKIPPED = 10_000
"""Skipped samples that are kept, the latest ones: a run of months may skip the same ones in each epoch."""


@final
class Received:
    """The reports and skipped samples that came with the batches of a loader.

    Args:
        dataset: the dataset of the workers; its method `count_workers`, if any, receives a function that
            returns their figures, so that its `stats` has them too. None in a loader without worker
            processes.

    Attributes:
        skipped: the latest samples that were left out, since the loader was made.
    """

    def __init__(self, dataset: Any) -> None:
        self.skipped: deque[SkippedSample] = deque(maxlen=MAX_SKIPPED)
        self._skipped = 0
        self._logged: set[str] = set()
        self._worker_stats: dict[int, Any] = {}
        self._ended_worker_stats: Any = None
        self.begin(None, [])
        if callable(count := getattr(dataset, "count_workers", None)):
            count(self.worker_stats)

    def begin(self, iteration: Iteration | None, readers: Collection[int]) -> None:
        """Begins the figures of an iteration.

        Args:
            iteration: which; None before the first one.
            readers: of the reports: those that stay alive from the previous one.
        """
        self._waits, self._iteration = Waits(), iteration
        # By step: the places of samples that were left out, and the sample in place of a whole batch.
        self._left_out: dict[int, tuple[list[int], int | None]] = {}
        self._started = self._wait_start = self._last = time.perf_counter()
        for reader in self._worker_stats.keys() - set(readers):
            self._ended_worker_stats = _sum(self._ended_worker_stats, self._worker_stats.pop(reader))

    def begin_wait(self) -> None:
        """Records that the loop waits for a batch."""
        self._wait_start = time.perf_counter()

    def take(self, step: int, answer: Answer) -> Any:
        """Records that the loop has it, and returns the batch alone."""
        self._last = time.perf_counter()
        self._waits.add(self._last - self._wait_start)
        for skipped in answer.skipped:
            self._log(skipped)
            self.skipped.append(skipped)
        if answer.skipped:
            self._skipped += len(answer.skipped)
            self._left_out[step] = [skipped.place for skipped in answer.skipped], answer.stand_in
        self._worker_stats.update(answer.reports)
        return answer.batch

    def ids(self, iteration: Iteration, reading: Reading, step: int) -> Ids:
        """Returns the ids of a step without those of the samples that were left out of it.

        Args:
            iteration: the current one; if nothing of it was received yet, nothing was left out.
            reading: what it reads.
            step: the step.
        """
        ids, (places, stand_in) = reading.ids(step), self._left_out_in(iteration, step)
        return np.delete(ids, places) if stand_in is None else np.array([stand_in])

    def pads(self, iteration: Iteration, reading: Reading, step: int) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Likewise returns which of the rest are pads: a sample in place of a whole batch is one."""
        pads, (places, stand_in) = reading.pads(step), self._left_out_in(iteration, step)
        return np.delete(pads, places) if stand_in is None else np.array([True])

    def _left_out_in(self, iteration: Iteration, step: int) -> tuple[list[int], int | None]:
        return self._left_out.get(step, ([], None)) if iteration is self._iteration else ([], None)

    def _log(self, skipped: SkippedSample) -> None:
        if not skipped.file:
            _LOG.warning("sample %d of epoch %d was skipped: %s", skipped.id, skipped.epoch, skipped.error)
        elif skipped.file not in self._logged:
            self._logged.add(skipped.file)
            _LOG.warning("left out: %s", skipped.error)

    def stats(self, dataset_stats: Any) -> LoaderStats:
        """Returns the figures so far.

        Args:
            dataset_stats: those of the dataset in this process; None in a loader with workers.
        """
        return LoaderStats(
            epoch=0 if self._iteration is None else self._iteration.epoch,
            **vars(self._waits),
            seconds=self._last - self._started,
            skipped=self._skipped,
            dataset=_sum(dataset_stats, self.worker_stats()),
        )

    def worker_stats(self) -> Any:
        """Returns the figures of the dataset in all workers so far, added up; None where there are none."""
        total = self._ended_worker_stats
        for stats in list(self._worker_stats.values()):
            total = _sum(total, stats)
        return total


def _sum(first: Any, second: Any) -> Any:
    if first is None or second is None:
        return first if second is None else second
    return first + second
