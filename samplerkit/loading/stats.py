"""Figures of a loader for a training log, and reports that come with its batches."""

import dataclasses
import logging
import time
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from samplerkit.loading.iteration import Iteration
from samplerkit.loading.run.delivery import Reading
from samplerkit.loading.workers.protocol import Answer, SkippedSample
from samplerkit.order.typing import Ids


@dataclass(frozen=True)
class WaitStats:
    """How long a loop waited for its batches.

    Args:
        batches: the number of batches handed out.
        first_wait: seconds that the loop waited for the first one, the start of workers included.
        total_wait: seconds that it waited for all.
        longest_wait: seconds that it waited for one, the first one left out.
    """

    batches: int = 0
    first_wait: float = 0.0
    total_wait: float = 0.0
    longest_wait: float = 0.0

    def with_wait(self, wait: float, **others: Any) -> Self:
        """Returns the figures with one more batch, for which the loop waited so long; others are replaced."""
        if self.batches == 0:
            others["first_wait"] = wait
        else:
            others["longest_wait"] = max(self.longest_wait, wait)
        return replace(self, batches=self.batches + 1, total_wait=self.total_wait + wait, **others)


@dataclass(frozen=True)
class LoaderStats(WaitStats):
    """Figures of the iteration under way, or of the last one.

    Args:
        batches: the number of batches handed out.
        first_wait: seconds that the loop waited for the first one, the start of workers included.
        total_wait: seconds that it waited for all.
        longest_wait: seconds that it waited for one, the first one left out.
        epoch: which it reads.
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
    seconds: float = 0.0
    skipped: int = 0
    dataset: Any = None

    @property
    def waiting(self) -> float:
        """The share of the time that the loop waited."""
        return self.total_wait / self.seconds if self.seconds > 0 else 0.0

    def to_dict(self) -> dict[str, float]:
        """Returns all figures by name in one flat mapping, those of the dataset as `dataset/name`."""
        figures = {**vars(self), "waiting": self.waiting}
        dataset = figures.pop("dataset")
        if dataclasses.is_dataclass(dataset):
            for field in dataclasses.fields(dataset):
                figures[f"dataset/{field.name}"] = getattr(dataset, field.name)
        return figures


@dataclass(frozen=True)
class DeviceStats(WaitStats):
    """Figures of a `DeviceLoader`, of the epoch so far, of the batches handed out.

    A short wait alone does not prove that loading and training overlap. Pure Python that loads in a thread
    takes the interpreter from the loop, whose steps then take longer: `cpu_share` is near 1 then. Measure the
    whole epoch instead.

    Args:
        batches: the number of batches handed out.
        first_wait: seconds that the loop waited for the first one.
        total_wait: seconds that it waited for all.
        longest_wait: seconds that it waited for one, the first one left out.
        load_seconds: seconds that the loading thread took to load them.
        copy_seconds: seconds that it took to pin them and to begin their copies, the window included.
        cpu_share: share of `load_seconds` in which the thread computed; the rest it waited.
    """

    load_seconds: float = 0.0
    copy_seconds: float = 0.0
    cpu_share: float = 0.0


class StageCounts:
    """Adds up the figures of device stages, batch by batch. Only the loop's thread uses it.

    Attributes:
        stats: the figures so far.
    """

    def __init__(self) -> None:
        self.stats = DeviceStats()

    def add(self, wait: float, load: float, load_cpu: float, copy: float) -> None:
        """Counts a batch that is handed out: its wait, and its cost."""
        before = self.stats
        total, computed = before.load_seconds + load, before.cpu_share * before.load_seconds + load_cpu
        self.stats = before.with_wait(
            wait,
            load_seconds=total,
            copy_seconds=before.copy_seconds + copy,
            cpu_share=computed / total if total > 0 else 0.0,
        )


_LOG = logging.getLogger("samplerkit")

MAX_SKIPPED = 10_000
"""Skipped samples that are kept, the latest ones: a run of months may skip the same ones in each epoch."""


class Received:
    """The reports and skipped samples that came with the batches of a loader.

    Attributes:
        skipped: the latest samples that were left out, since the loader was made.
    """

    def __init__(self) -> None:
        self.skipped: deque[SkippedSample] = deque(maxlen=MAX_SKIPPED)
        self._stats = LoaderStats()
        self._logged: set[str] = set()
        self._worker_stats: dict[int, Any] = {}
        self._ended_worker_stats: Any = None
        self.begin(None, [])

    def begin(self, iteration: Iteration | None, pids: Collection[int]) -> None:
        """Begins the figures of an iteration.

        Args:
            iteration: which; None before the first one.
            pids: of the workers that stay alive from the previous one.
        """
        self._iteration = iteration
        self._stats = LoaderStats(epoch=iteration.epoch if iteration else 0, skipped=self._stats.skipped)
        # By step: the places of samples that were left out, and the sample in place of a whole batch.
        self._left_out: dict[int, tuple[list[int], int | None]] = {}
        self._started = self._wait_start = time.perf_counter()
        for pid in self._worker_stats.keys() - set(pids):
            self._ended_worker_stats = _sum(self._ended_worker_stats, self._worker_stats.pop(pid))

    def begin_wait(self) -> None:
        """Records that the loop waits for a batch."""
        self._wait_start = time.perf_counter()

    def take(self, step: int, answer: Answer) -> Any:
        """Records that the loop has it, and returns the batch alone."""
        now, before = time.perf_counter(), self._stats
        seconds, skipped = now - self._started, before.skipped + len(answer.skipped)
        self._stats = before.with_wait(now - self._wait_start, seconds=seconds, skipped=skipped)
        for sample in answer.skipped:
            self.skipped.append(sample)
            if not sample.file:
                _LOG.warning("sample %d of epoch %d was skipped: %s", sample.id, sample.epoch, sample.error)
            elif sample.file not in self._logged:
                self._logged.add(sample.file)
                _LOG.warning("left out: %s", sample.error)
        if answer.skipped:
            self._left_out[step] = answer.places_skipped, answer.substitute
        self._worker_stats.update(answer.reports)
        return answer.batch

    def ids(self, iteration: Iteration, reading: Reading, step: int) -> Ids:
        """Returns the ids of a step without those of the samples that were left out of it.

        Args:
            iteration: the current one; if nothing of it was received yet, nothing was left out.
            reading: what it reads.
            step: the step.
        """
        ids, (places, substitute) = reading.ids(step), self._left_out_in(iteration, step)
        return np.delete(ids, places) if substitute is None else np.array([substitute])

    def pads(self, iteration: Iteration, reading: Reading, step: int) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Returns which samples of `ids` are pads; one that replaces a whole bad batch counts as one."""
        pads, (places, substitute) = reading.pads(step), self._left_out_in(iteration, step)
        return np.delete(pads, places) if substitute is None else np.array([True])

    def _left_out_in(self, iteration: Iteration, step: int) -> tuple[list[int], int | None]:
        return self._left_out.get(step, ([], None)) if iteration is self._iteration else ([], None)

    def stats(self, dataset_stats: Any) -> LoaderStats:
        """Returns the figures so far.

        Args:
            dataset_stats: those of the dataset in this process; None in a loader with worker processes.
        """
        total = _sum(dataset_stats, self._ended_worker_stats)
        for stats in list(self._worker_stats.values()):
            total = _sum(total, stats)
        return replace(self._stats, dataset=total)


def _sum(first: Any, second: Any) -> Any:
    if first is None or second is None:
        return first if second is None else second
    return first + second
