"""What an epoch asks of the place where the files lie: requests and bytes, by the way in which it is read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, astuple, dataclass, replace
from itertools import islice, zip_longest
from typing import Any, final

import numpy as np
import numpy.typing as npt

from samplerkit.errors import DatasetError
from samplerkit.inspect.costs import Flags, files_read
from samplerkit.inspect.view import RunView
from samplerkit.order.caching import cached_property
from samplerkit.order.layout import Layout
from samplerkit.order.typing import Ids
from samplerkit.samplers.mixing.sources import parts_of
from samplerkit.storage.tar.fetch_costs import COSTLY, FetchCosts, epoch_costs, stretch_of

COUNTED_SAMPLES = 1 << 20
"""Up to this many samples an epoch all requests are counted; above, a stretch of so many is, and scaled."""

COUNTED_BATCHES = 1 << 14
"""The same of batches, of all ranks together: each takes its time, be it ever so small."""

FILES_IN_A_BLOCK = 4
"""The `partial_size` that is advised holds as many samples as so many files."""


@final
@dataclass(frozen=True, eq=False)
class StoredFiles:
    """A dataset of files that a run reads: its own, or one that lies in its tree.

    Args:
        view: the run.
        epoch: which one is looked at.
        dataset: itself.
        layout: of the dataset.
        begin: its first id in the run.
        first_file: the number of its first file in the run.
    """

    view: RunView
    epoch: int
    dataset: Any
    layout: Layout
    begin: int
    first_file: int

    @property
    def is_remote(self) -> bool:
        """Whether its files are remote."""
        return bool(getattr(self.dataset, "is_remote", False))

    @property
    def is_part(self) -> bool:
        """Whether the run reads other samples too."""
        return len(self.layout) < len(self.view.layout)

    @cached_property
    def sizes_asked(self) -> tuple[Ids | None, str]:
        """The bytes of each file; or None, and why these are not known."""
        try:
            return np.asarray(self.dataset.shard_bytes()), ""
        except DatasetError as error:
            return None, f"bytes, for a size could not be asked: {error}"

    @property
    def sizes(self) -> Ids | None:
        """The bytes of each file; None where they are not known."""
        return self.sizes_asked[0]

    @cached_property
    def cached_files(self) -> int | None:
        """How many files the cache on disk holds, by their mean size; None for all, or as many as fit."""
        most, sizes = getattr(self.dataset, "max_cache_bytes", None), self.sizes
        if most is None or sizes is None or sizes.sum() <= most:
            return None
        return max(1, int(most // (sizes.sum() / sizes.size)))

    def batches(self, ranks: Sequence[int]) -> Iterator[Ids]:
        """Gives its own ids in the batches of some ranks, one after another within each step."""
        readings = (self.view.reading(self.epoch, rank) for rank in ranks)
        for step in zip_longest(*((ids for _, ids in reading.batches()) for reading in readings)):
            for ids in step:
                if ids is not None:
                    local = ids - self.begin
                    yield local[(local >= 0) & (local < len(self.layout))] if self.is_part else ids

    def costs(self, ranks: Sequence[int], most: int | None = None) -> npt.NDArray[np.float64]:
        """Counts requests and bytes if whole files are fetched, and both if single samples are read.

        Args:
            ranks: those of a machine.
            most: how many of their batches are looked at; None for all.
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
        return int(files.sum()), 0 if self.sizes is None else int(self.sizes[files].sum())


@final
@dataclass(frozen=True)
class Downloads:
    """What an epoch of all ranks asks of remote storage, where those of a machine share its cache.

    Args:
        num_files: the files.
        num_bytes: what they hold; None where nobody knows their sizes.
        is_remote: whether they are remote.
        way: how they are read: `whole`, or `ranges` for single samples.
        cached_files: how many of them the cache on disk holds; None where no limit was said.
        whole: requests and bytes if whole files are fetched.
        ranges: the same if single samples are read; None where that cannot be.
        is_counted: whether all of the epoch was looked at; else the numbers are estimates.
        advice: what to do about an epoch that costs too much; "" for nothing.
        unknown: what could not be found out, and why; "" for nothing.
    """

    num_files: int
    num_bytes: int | None
    is_remote: bool
    way: str
    cached_files: int | None
    whole: FetchCosts
    ranges: FetchCosts | None
    is_counted: bool
    advice: str
    unknown: str

    @property
    def taken(self) -> FetchCosts:
        """Requests and bytes of the way in which it is read."""
        return self.whole if self.ranges is None or self.way == "whole" else self.ranges

    @property
    def ratio(self) -> float | None:
        """How many times the cost of the cheapest way this epoch has; None where sizes are not known.

        A request counts as 1 MiB. The cheapest way is to fetch each file once.
        """
        if self.num_bytes is None:
            return None
        return self.taken.cost / max(1, FetchCosts(self.num_files, self.num_bytes).cost)

    def to_dict(self) -> dict[str, Any]:
        """Gives plain data, for JSON; bytes that are not known are None."""
        told = {**asdict(self), "ratio": self.ratio}
        for way in ("whole", "ranges"):
            if told[way] is not None and self.num_bytes is None:
                told[way]["bytes"] = None
        return told


def dataset_at(tree: Any, path: Sequence[str]) -> Any:
    """Returns the dataset to which some names of parts lead in a tree; with none, the tree itself."""
    for name in path:
        tree = parts_of(tree)[name]
    return tree


def downloads_of_parts(
    view: RunView, epoch: int, ranks_per_machine: int | None = None
) -> dict[str, Downloads]:
    """Counts what an epoch asks of each dataset; no file is read, only sizes are asked for.

    Args:
        view: a run.
        epoch: which one.
        ranks_per_machine: how many ranks share a cache, in their order; None for all of them.

    Returns:
        By the names of the parts that lead to a dataset in a tree, such as "web" or "web/de"; the run's own
        one has the name "". Left out is what could be read no cheaper in another order: local files, other
        than tar shards that are read sample by sample; and what is no dataset of files.
    """
    ranks = ranks_per_machine or view.num_ranks
    found, begin, first_file = {}, 0, 0
    for path, layout in view.layout.leaves:
        dataset = dataset_at(view.run.dataset, path)
        stored = StoredFiles(view, epoch, dataset, layout, begin, first_file)
        is_ordered = stored.is_remote or hasattr(dataset, "fetch")
        if layout.has_files and callable(getattr(dataset, "shard_bytes", None)) and is_ordered:
            found["/".join(path)] = _of_one(stored, ranks)
        # A part without files is one file of the tree.
        begin, first_file = begin + len(layout), first_file + layout.sizes.size
    return found


def _of_one(stored: StoredFiles, per_machine: int) -> Downloads:
    layout, sizes = stored.layout, stored.sizes
    way, is_local = _way(stored)
    (whole, ranges), is_counted = _of_machines(stored, per_machine)
    found = Downloads(
        num_files=layout.num_files,
        num_bytes=None if sizes is None else int(sizes.sum()),
        is_remote=stored.is_remote,
        way=way,
        cached_files=stored.cached_files,
        whole=whole,
        ranges=ranges if hasattr(stored.dataset, "fetch") else None,
        is_counted=is_counted,
        advice="",
        unknown=stored.sizes_asked[1],
    )
    if not found.is_remote or (found.ratio or 0) <= COSTLY:
        return found
    lanes = stored.view.num_ranks if is_local and way == "ranges" else None
    return replace(found, advice=_advice(found, layout.num_samples, lanes))


def _way(stored: StoredFiles) -> tuple[str, bool]:
    """Reports how a dataset reads in this order, as it was asked to, or as it will find out by itself.

    Returns:
        `whole`, or `ranges` where a rank reads so; and whether the order stays in few files for a while.
    """
    layout, ranks = stored.layout, stored.view.num_ranks
    fetch = getattr(stored.dataset, "fetch", "shards")  # files of other kinds are read as a whole
    if fetch in {None, "ranges"}:  # None: in place, on a disk of this machine
        return "ranges", False
    if fetch == "shards":
        return "whole", False
    shard_bytes = None if stored.sizes is None else int(stored.sizes.mean())
    # Where ranks share lanes, those in the middle read of two, and less of each file.
    for rank in sorted({0, ranks // 2, ranks - 1}):
        shards = (layout.file_of(ids) for ids in stored.batches([rank]))
        found = stretch_of(shards, layout.sizes, stored.cached_files or layout.num_files, 1, shard_bytes)
        if not found.is_whole:
            return "ranges", found.is_local
    return "whole", True


def _of_machines(stored: StoredFiles, per_machine: int) -> tuple[list[FetchCosts], bool]:
    """Counts the requests of all machines, of both ways; of a long epoch, estimates them.

    Then the first machine stands for all, and a stretch of its batches for the epoch: the second half of it,
    which reports what continues when the first files are there.
    """
    view, ranks = stored.view, range(stored.view.num_ranks)
    samples, batches = len(view.run.undealt(stored.epoch)), COUNTED_SAMPLES // view.samples_a_batch
    batches = min(batches, COUNTED_BATCHES)
    is_counted = samples <= batches * view.samples_a_batch
    if is_counted:
        found = sum(stored.costs(ranks[first : first + per_machine]) for first in ranks[::per_machine])
    else:
        machine, half = ranks[:per_machine], max(1, batches // 2)
        found = stored.costs(machine, 2 * half) - stored.costs(machine, half)
        found *= samples * len(machine) / (len(ranks) * half * view.samples_a_batch)
        # An epoch fetches each file, and if all stay in the cache, none twice.
        once = stored.costs_of_each_file(machine)
        found[:2] = once if stored.cached_files is None else np.maximum(once, found[:2])
        found *= len(ranks) / len(machine)
    numbers = np.rint(found).astype(np.int64).tolist()
    return [FetchCosts(*numbers[:2]), FetchCosts(*numbers[2:])], is_counted


def _advice(found: Downloads, num_samples: int, lanes: int | None) -> str:
    size = round(num_samples * FILES_IN_A_BLOCK / max(1, found.num_files))
    partial = f"shuffle: partial with partial_size: {size}"
    costs = f"costs {found.ratio or 0:.1f} times as much as fetching each file once"
    if lanes is not None:
        return f"reading single samples {costs}: several ranks read each file, say lanes: {lanes}"
    if found.way == "ranges":
        return f"reading single samples {costs}: take {partial}, or a cache for all files and fetch: shards"
    held = f"the cache holds {found.cached_files} files"
    return f"this order {costs}, since {held}: take {partial}, or a larger cache"
