"""The cost of an epoch: of its start, the files that it reads, and requests and bytes from storage.

Nothing here reads samples.
"""

import logging
import time
import tracemalloc
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass
from itertools import islice, zip_longest
from typing import Any

import numpy as np
import numpy.typing as npt

from samplerkit.errors import DatasetError
from samplerkit.inspect.view import RunView
from samplerkit.loading.run.delivery import Reading
from samplerkit.order.caching import cached_property
from samplerkit.order.layout import Layout
from samplerkit.order.modes import Shuffle
from samplerkit.order.typing import Ids
from samplerkit.samplers.mixing.sources import parts_of
from samplerkit.storage.tar.fetch_costs import COSTLY, FetchCosts, choose_fetch, epoch_costs

COUNTED_SAMPLES = 1 << 22
"""The longest epoch, in samples, of which the files of all ranks are counted; of longer ones, some steps."""

LISTED_BYTES = 49
"""Bytes per sample of a Python list of a permutation, measured: 4.6 GiB for 1e8 samples."""

COUNTED_REQUESTS = 1 << 20
"""The most samples of an epoch whose requests are counted; for longer epochs the count is scaled up."""

MAX_BATCHES = 1 << 14
"""The most batches that are examined for requests, or for files that are needed again."""

FILES_IN_A_BLOCK = 4
"""The recommended `partial_size`, in files of mean size."""

_log = logging.getLogger("samplerkit")

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
    was_tracing = tracemalloc.is_tracing()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    tracemalloc.reset_peak()
    _first_ids(view, epoch)
    peak = tracemalloc.get_traced_memory()[1] - before
    if not was_tracing:
        tracemalloc.stop()
    return seconds, max(0, peak)


def _first_ids(view: RunView, epoch: int) -> None:
    run = view.run
    if view.recipe is not None:
        plan = view.recipe.plan(run.sampler, run.dataset, epoch, constants=run.constants)
        next(iter(plan), None)
        return
    order = run.sampler.undealt_order(run.dataset, epoch, constants=run.constants)
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


@dataclass(frozen=True, eq=False)
class StoredFiles:
    """A dataset of files that a run reads: the run's dataset, or a part of its tree.

    Args:
        view: the run.
        epoch: the epoch.
        dataset: the dataset.
        layout: the layout of the dataset.
        sizes: the bytes of each file.
        begin: the first id of the dataset in the run.
        first_file: the number of the first file of the dataset in the run.
    """

    view: RunView
    epoch: int
    dataset: Any
    layout: Layout
    sizes: Ids
    begin: int
    first_file: int

    @property
    def is_part(self) -> bool:
        """Whether the run also reads other datasets."""
        return len(self.layout) < len(self.view.layout)

    @cached_property
    def cached_files(self) -> int | None:
        """The number of files of mean size that fit into the cache on disk; None for all files."""
        most, sizes = getattr(self.dataset, "max_cache_bytes", None), self.sizes
        if most is None or sizes.sum() <= most:
            return None
        return max(1, int(most // (sizes.sum() / sizes.size)))

    def batches(self, ranks: Sequence[int]) -> Iterator[Ids]:
        """Yields the dataset's ids in the batches of some ranks: for each step, rank by rank."""
        readings = (self.view.reading(self.epoch, rank) for rank in ranks)
        for step in zip_longest(*((ids for _, ids in reading.batches()) for reading in readings)):
            for ids in step:
                if ids is not None:
                    local = ids - self.begin
                    yield local[(local >= 0) & (local < len(self.layout))] if self.is_part else ids

    def costs(self, ranks: Sequence[int], most: int | None = None) -> npt.NDArray[np.float64]:
        """Counts requests and bytes for fetching whole files, and for reading single samples.

        Args:
            ranks: the ranks of a machine.
            most: the most batches of these ranks that are counted; None for all.
        """
        batches = islice(self.batches(ranks), most)
        shards, single = epoch_costs(
            self.layout, batches, shard_bytes=self.sizes, cached_shards=self.cached_files
        )
        return np.array([*astuple(shards), *astuple(single)], dtype=np.float64)

    def costs_of_each_file(self, ranks: Sequence[int]) -> tuple[int, int]:
        """Counts requests and bytes if each file that some ranks read is fetched once."""
        files: Flags = np.ones(self.layout.num_files, dtype=bool)
        if self.is_part or len(ranks) < self.view.num_ranks:
            read = files_read(self.view, self.epoch, ranks)
            files = read[self.first_file : self.first_file + self.layout.num_files]
        return int(files.sum()), int(self.sizes[files].sum())


@dataclass(frozen=True)
class Downloads:
    """Requests and bytes of an epoch of all ranks, where the ranks of a machine share a cache.

    Args:
        num_files: the number of files.
        num_bytes: their total bytes.
        is_remote: whether they are remote.
        way: how they are read: `whole`, or `ranges` for single samples.
        cached_files: the number of files that fit into the cache on disk; None if all fit.
        whole: requests and bytes if whole files are fetched.
        ranges: requests and bytes if single samples are read; None if that is not possible.
        is_counted: whether the whole epoch was counted; otherwise the numbers are estimates.
        advice: how to make an expensive epoch cheaper; "" for none.
        ratio: the cost of this epoch divided by that of fetching each file once; a request counts as 1 MiB.
    """

    num_files: int
    num_bytes: int
    is_remote: bool
    way: str
    cached_files: int | None
    whole: FetchCosts
    ranges: FetchCosts | None
    is_counted: bool
    advice: str
    ratio: float

    @property
    def actual(self) -> FetchCosts:
        """Requests and bytes of `way`, the way in which the files are read."""
        return self.whole if self.ranges is None or self.way == "whole" else self.ranges


def dataset_at(tree: Any, path: Sequence[str]) -> Any:
    """Returns the dataset at a path of part names in a tree; the tree itself for an empty path."""
    for name in path:
        tree = parts_of(tree)[name]
    return tree


def downloads_of_parts(
    view: RunView, epoch: int, ranks_per_machine: int | None = None
) -> dict[str, Downloads]:
    """Counts the requests and bytes of an epoch for each dataset; only the sizes of files are requested.

    Args:
        view: the run.
        epoch: the epoch.
        ranks_per_machine: the number of consecutive ranks that share a cache; None for all ranks.

    Returns:
        The counts by the path of a dataset in a tree, such as "web" or "web/de", or "" for the run's dataset.
        Datasets whose cost does not depend on the order are left out: local files, except tar shards that are
        read sample by sample; and datasets without files. So are those whose sizes cannot be requested, with
        a warning.
    """
    ranks = ranks_per_machine or view.num_ranks
    downloads, begin, first_file = {}, 0, 0
    for path, layout in view.layout.leaves:
        dataset = dataset_at(view.run.dataset, path)
        is_ordered = getattr(dataset, "is_remote", False) or hasattr(dataset, "fetch")
        if layout.has_files and callable(getattr(dataset, "shard_bytes", None)) and is_ordered:
            try:
                sizes = np.asarray(dataset.shard_bytes())
            except DatasetError as error:
                _log.warning("requests are not counted, since a size could not be requested: %s", error)
            else:
                stored = StoredFiles(view, epoch, dataset, layout, sizes, begin, first_file)
                downloads["/".join(path)] = _downloads_of(stored, ranks)
        # A part without files counts as one file in the tree.
        begin, first_file = begin + len(layout), first_file + layout.sizes.size
    return downloads


def _downloads_of(stored: StoredFiles, per_machine: int) -> Downloads:
    way, is_local = _way(stored)
    (whole, ranges), is_counted = _costs_of_machines(stored, per_machine)
    each_once = FetchCosts(stored.layout.num_files, int(stored.sizes.sum()))
    ratio = (whole if way == "whole" else ranges).cost / max(1, each_once.cost)
    is_remote = bool(getattr(stored.dataset, "is_remote", False))
    return Downloads(
        num_files=each_once.requests,
        num_bytes=each_once.bytes,
        is_remote=is_remote,
        way=way,
        cached_files=stored.cached_files,
        whole=whole,
        ranges=ranges if hasattr(stored.dataset, "fetch") else None,
        is_counted=is_counted,
        advice=_advice(stored, way, ratio, is_local) if is_remote and ratio > COSTLY else "",
        ratio=ratio,
    )


def _way(stored: StoredFiles) -> tuple[str, bool]:
    """Determines how a dataset reads in this order: as its `fetch` option says, or as it will choose itself.

    Returns:
        `whole`, or `ranges` if any rank reads ranges; and whether the order stays in few files for a while.
    """
    layout, ranks = stored.layout, stored.view.num_ranks
    fetch = getattr(stored.dataset, "fetch", "shards")  # files of other kinds are read as a whole
    if fetch != "auto":  # None: in place, on a disk of this machine
        return "whole" if fetch == "shards" else "ranges", False
    shard_bytes = int(stored.sizes.mean())
    # If ranks share lanes, ranks in the middle read from two lanes, and less of each file.
    for rank in sorted({0, ranks // 2, ranks - 1}):
        shards = (layout.file_of(ids) for ids in stored.batches([rank]))
        choice = choose_fetch(shards, layout.sizes, stored.cached_files or layout.num_files, 1, shard_bytes)
        if not choice.by_shards:
            return "ranges", choice.is_local
    return "whole", True


def _costs_of_machines(stored: StoredFiles, per_machine: int) -> tuple[list[FetchCosts], bool]:
    """Counts the requests of all machines, for both ways of reading; for a long epoch, estimates them.

    The estimate takes some batches of the first machine, and scales up their second half, when the first
    files are in the cache.
    """
    view, ranks = stored.view, range(stored.view.num_ranks)
    samples, batches = len(view.run.epoch(stored.epoch).order), COUNTED_REQUESTS // view.samples_a_batch
    batches = min(batches, MAX_BATCHES)
    is_counted = samples <= batches * view.samples_a_batch
    if is_counted:
        costs = sum(stored.costs(ranks[first : first + per_machine]) for first in ranks[::per_machine])
    else:
        machine, half = ranks[:per_machine], max(1, batches // 2)
        costs = stored.costs(machine, 2 * half) - stored.costs(machine, half)
        costs *= samples * len(machine) / (len(ranks) * half * view.samples_a_batch)
        # An epoch fetches each file at least once, and exactly once if all stay in the cache.
        once = stored.costs_of_each_file(machine)
        costs[:2] = once if stored.cached_files is None else np.maximum(once, costs[:2])
        costs *= len(ranks) / len(machine)
    numbers = np.rint(costs).astype(np.int64).tolist()
    return [FetchCosts(*numbers[:2]), FetchCosts(*numbers[2:])], is_counted


def _advice(stored: StoredFiles, way: str, ratio: float, is_local: bool) -> str:
    size = round(stored.layout.num_samples * FILES_IN_A_BLOCK / max(1, stored.layout.num_files))
    is_partial = (mode := stored.view.mode) and mode.shuffle is Shuffle.PARTIAL and mode.partial_size <= size
    partial = "" if is_partial else f"shuffle: partial with partial_size: {size}, or "
    costs = f"costs {ratio:.1f} times as much as fetching each file once"
    if way == "whole":
        cached = f"the cache holds {stored.cached_files} files"
        return f"this order {costs}, since {cached}: take {partial}a larger cache"
    if is_local:
        lanes = stored.view.num_ranks
        return f"reading single samples {costs}: several ranks read each file, set lanes: {lanes}"
    return f"reading single samples {costs}: take {partial}a cache for all files and fetch: shards"
