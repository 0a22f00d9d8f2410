"""The cost of starting an epoch, and the files that it reads; both without reading samples."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Sequence
from itertools import islice

import numpy as np
import numpy.typing as npt

from samplerkit.inspect.view import RunView
from samplerkit.loading.run.delivery import Reading
from samplerkit.order.typing import Ids

COUNTED_SAMPLES = 1 << 22
"""The longest epoch, in samples, of which the files of all ranks are counted; of longer ones, some steps."""

LISTED_BYTES = 49
"""Bytes per sample of a Python list of a permutation, measured: 4.6 GiB for 1e8 samples."""

MAX_BATCHES = 1 << 14
"""The most batches that are examined for files that are needed again."""

Flags = npt.NDArray[np.bool_]

_MAX_STEPS = 64
_MAX_IDS = 1 << 18
_BATCHES_PER_LOOKUP = 256


def cost_of_a_start(view: RunView, epoch: int) -> tuple[float, int]:
    """Measures the seconds and the peak bytes of the first batch of ids, one after the other.

    Tracing memory slows the code down, so the time is measured without it.
    """
    seconds = 0.0
    for _ in range(2):
        started = time.perf_counter()
        _first_ids(view, epoch)
        seconds = time.perf_counter() - started
    tracemalloc.start()
    _first_ids(view, epoch)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return seconds, peak


def _first_ids(view: RunView, epoch: int) -> None:
    run = view.run
    if view.recipe is not None:
        plan = view.recipe.plan(run.recipe, run.dataset, epoch, constants=run.constants)
        next(iter(plan), None)
        return
    order = run.recipe.undealt_order(run.dataset, epoch, constants=run.constants)
    order[: min(len(order), view.batch_size * view.num_ranks) : view.num_ranks]


def files_of_a_rank(view: RunView, epoch: int) -> tuple[int | None, bool]:
    """Counts the most files that a rank reads, and returns whether the whole epoch was counted."""
    if not view.layout.has_files:
        return None, True
    is_counted = len(view.run.epoch(epoch).order) <= COUNTED_SAMPLES
    ranks = range(view.num_ranks) if is_counted else sorted({0, view.num_ranks // 2, view.num_ranks - 1})
    return max(int(files_read(view, epoch, [rank]).sum()) for rank in ranks), is_counted


def files_of_a_worker(view: RunView, epoch: int) -> int | None:
    """Counts the files that the first worker of rank 0 reads; None without files, or without workers."""
    if not view.layout.has_files or not view.num_workers:
        return None
    return int(files_read(view, epoch, [0], view.num_workers).sum())


def files_read(view: RunView, epoch: int, ranks: Sequence[int], every: int = 1) -> Flags:
    """Finds the files that some ranks read; for a long epoch, from evenly spaced batches.

    Args:
        view: a run over files.
        epoch: the epoch.
        ranks: the ranks.
        every: the step between batches: 1 for all, or the number of workers, for those of one worker.

    Returns:
        Whether each file is read, shape (files,).
    """
    is_counted = len(view.run.epoch(epoch).order) <= COUNTED_SAMPLES
    seen: Flags = np.zeros(view.layout.num_files, dtype=bool)
    for rank in ranks:
        reading = view.reading(epoch, rank)
        most_ids = _MAX_IDS * every * len(ranks)
        stride = 1 if is_counted else max(1, reading.steps * view.samples_a_batch // most_ids)
        batches = (ids for _, ids in reading.batches(0, every * stride))
        # Several batches per lookup, since each lookup has a fixed cost.
        while chunk := list(islice(batches, _BATCHES_PER_LOOKUP)):
            seen[view.layout.file_of(np.concatenate(chunk))] = True
    return seen


def files_of_a_batch(view: RunView, epoch: int) -> float | None:
    """Returns the mean number of files in a batch of rank 0, over evenly spaced steps."""
    reading = view.reading(epoch)
    if not view.layout.has_files or reading.steps == 0:
        return None
    steps = spread_over(reading.steps, _MAX_STEPS).tolist()
    return float(np.mean([files_of_step(view, reading, step) for step in steps]))


def spread_over(count: int, most: int) -> Ids:
    """Returns at most `most` evenly spaced numbers of [0, count), including the first and the last."""
    if count <= most:
        return np.arange(count)
    return np.arange(most) * (count - 1) // max(1, most - 1)


def files_of_step(view: RunView, reading: Reading, step: int) -> int:
    """Counts the files that a rank reads in a step."""
    return np.unique(view.layout.file_of(reading.ids(step))).size


def files_needed_at_once(view: RunView, epoch: int, workers: int = 1) -> int:
    """Counts the files that a process of rank 0 must keep between batches to read none of them twice.

    These are the files that were read before and will be read again. If fewer are kept in memory, some are
    read again, whichever files are evicted. Files that only pads need are not counted. Of a long epoch only
    the beginning is counted, and more files may be needed later.

    Args:
        view: a run over files.
        epoch: the epoch.
        workers: the number of processes that share the batches of the rank, each with its own files.
    """
    reading = view.reading(epoch)
    most = min(MAX_BATCHES, max(1, COUNTED_SAMPLES // (4 * view.samples_a_batch)))
    first = np.full(view.layout.num_files, -1)
    last = first.copy()
    for number, (step, ids) in enumerate(islice(reading.batches(0, workers), most)):
        read = ids[~reading.pads(step)] if step == reading.steps - 1 else ids
        files = view.layout.file_of(read)
        first[files] = np.where(first[files] < 0, number, first[files])
        last[files] = number
    repeated = first < last
    starts = np.bincount(first[repeated], minlength=most)
    ends = np.bincount(last[repeated], minlength=most)
    return int(np.cumsum(starts - ends).max(initial=0))
