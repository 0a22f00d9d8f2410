"""What an epoch asks of the place where the files lie: requests and bytes, by the way in which it is read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import islice, zip_longest
from typing import Any, final

import numpy as np

from samplerkit.errors import DatasetError
from samplerkit.inspect.costs import files_read
from samplerkit.inspect.view import RunView
from samplerkit.order.typing import Ids
from samplerkit.storage.tar.read.costs import COSTLY, EpochCosts, FetchCosts, epoch_costs, stretch_of

COUNTED_SAMPLES = 1 << 20
"""Up to this many samples an epoch all requests are counted; above, a stretch of so many is, and scaled."""

COUNTED_BATCHES = 1 << 14
"""The same of batches, of all ranks together: each takes its time, be it ever so small."""

FILES_IN_A_BLOCK = 4
"""The `partial_size` that is advised holds as many samples as so many files."""


@final
@dataclass(frozen=True)
class Transfers:
    """What an epoch of all ranks asks of remote storage, where those of a machine share its cache.

    Args:
        num_files: the files.
        num_bytes: what they hold; None where nobody knows their sizes.
        is_remote: whether they lie elsewhere.
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
    def ratio(self) -> float | None:
        """How many times the cost of the cheapest way this epoch has; None where sizes are not known.

        A request counts as 1 MiB. The cheapest way is to fetch each file once.
        """
        if self.num_bytes is None:
            return None
        taken = self.whole if self.ranges is None or self.way == "whole" else self.ranges
        return taken.cost / max(1, FetchCosts(self.num_files, self.num_bytes).cost)

    def to_dict(self) -> dict[str, Any]:
        """Gives plain data, for JSON; bytes that are not known are None."""
        told = {**asdict(self), "ratio": self.ratio}
        for way in ("whole", "ranges"):
            if told[way] is not None and self.num_bytes is None:
                told[way]["bytes"] = None
        return told


def transfers(view: RunView, epoch: int, ranks_per_machine: int | None = None) -> Transfers | None:
    """Counts what an epoch asks; no file is read, only sizes are asked for.

    Args:
        view: a run.
        epoch: which one.
        ranks_per_machine: how many ranks share a cache, in their order; None for all of them.

    Returns:
        None of a dataset whose files can be read no cheaper in another order: local ones, other than tar
        shards that are read sample by sample; and what is no dataset of files.
    """
    dataset, layout = view.run.dataset, view.layout
    if not layout.has_files or not callable(getattr(dataset, "shard_bytes", None)):
        return None
    is_remote = bool(getattr(dataset, "is_remote", False))
    if not is_remote and not hasattr(dataset, "fetch"):
        return None
    sizes, unknown = _sizes(dataset)
    cached = _cached_files(dataset, sizes)
    way, is_local = _way(view, epoch, cached, sizes)
    costs, is_counted = _of_machines(view, epoch, sizes, cached, ranks_per_machine or view.num_ranks)
    found = Transfers(
        num_files=layout.num_files,
        num_bytes=None if sizes is None else int(sizes.sum()),
        is_remote=is_remote,
        way=way,
        cached_files=cached,
        whole=costs.shards,
        ranges=costs.ranges if hasattr(dataset, "fetch") else None,
        is_counted=is_counted,
        advice="",
        unknown=unknown,
    )
    if not is_remote or (found.ratio or 0) <= COSTLY:
        return found
    lanes = view.num_ranks if is_local and way == "ranges" else None
    return Transfers(**{**vars(found), "advice": _advice(found, layout.num_samples, lanes)})


def _way(view: RunView, epoch: int, cached: int | None, sizes: Ids | None) -> tuple[str, bool]:
    """Tells how a dataset reads in this order, as it was asked to, or as it will find out by itself.

    Returns:
        `whole`, or `ranges` where a rank reads so; and whether the order stays in few files for a while.
    """
    dataset, layout = view.run.dataset, view.layout
    fetch = getattr(dataset, "fetch", "shards")  # files of other kinds are read as a whole
    if fetch in {None, "ranges"}:  # None: in place, on a disk of this machine
        return "ranges", False
    if fetch == "shards":
        return "whole", False
    shard_bytes = None if sizes is None else int(sizes.mean())
    # Where ranks share lanes, those in the middle read of two, and less of each file.
    for rank in sorted({0, view.num_ranks // 2, view.num_ranks - 1}):
        shards = (layout.file_of(ids) for _, ids in view.reading(epoch, rank).batches())
        found = stretch_of(shards, layout.sizes, cached or layout.num_files, 1, shard_bytes)
        if not found.is_whole:
            return "ranges", found.is_local
    return "whole", True


def _sizes(dataset: Any) -> tuple[Ids | None, str]:
    try:
        return np.asarray(dataset.shard_bytes()), ""
    except DatasetError as error:
        return None, f"bytes, for a size could not be asked: {error}"


def _cached_files(dataset: Any, sizes: Ids | None) -> int | None:
    """Gives how many files the cache on disk holds, by their mean size; None for all, or as many as fit."""
    most = getattr(dataset, "max_cache_bytes", None)
    if most is None or sizes is None or sizes.sum() <= most:
        return None
    return max(1, int(most // (sizes.sum() / sizes.size)))


def _of_machines(
    view: RunView, epoch: int, sizes: Ids | None, cached: int | None, per_machine: int
) -> tuple[EpochCosts, bool]:
    """Counts the requests of all machines; of a long epoch those of the first one, which stands for all."""
    ranks = range(view.num_ranks)
    machines = [ranks[first : first + per_machine] for first in ranks[::per_machine]]
    batches = min(COUNTED_SAMPLES // view.samples_a_batch, COUNTED_BATCHES)
    if len(view.run.undealt(epoch)) <= batches * view.samples_a_batch:
        each = [
            epoch_costs(view.layout, _batches(view, epoch, machine), shard_bytes=sizes, cached_shards=cached)
            for machine in machines
        ]
        return _times(each, 1), True
    one = _estimated(view, epoch, sizes, cached, machines[0], batches)
    return _times([one], view.num_ranks / len(machines[0])), False


def _times(each: list[EpochCosts], factor: float) -> EpochCosts:
    def summed(costs: list[FetchCosts]) -> FetchCosts:
        requests, amount = sum(cost.requests for cost in costs), sum(cost.bytes for cost in costs)
        return FetchCosts(round(factor * requests), round(factor * amount))

    return EpochCosts(summed([costs.shards for costs in each]), summed([costs.ranges for costs in each]))


def _estimated(
    view: RunView, epoch: int, sizes: Ids | None, cached: int | None, machine: range, batches: int
) -> EpochCosts:
    """Estimates the requests of one machine from a stretch of its batches, as they come to its cache."""

    def counted(most: int) -> EpochCosts:
        stretch = islice(_batches(view, epoch, machine), most)
        return epoch_costs(view.layout, stretch, shard_bytes=sizes, cached_shards=cached)

    # The second half of a stretch tells what goes on when the first files are there.
    half = max(1, batches // 2)
    whole, first = counted(2 * half), counted(half)
    share = len(view.run.undealt(epoch)) * len(machine) / view.num_ranks
    scale = share / (half * view.samples_a_batch)
    # An epoch fetches each file, and if all stay in the cache, none twice.
    files = np.ones(view.layout.num_files, dtype=bool)
    if len(machine) < view.num_ranks:
        files = files_read(view, epoch, machine)
    shards = FetchCosts(int(files.sum()), 0 if sizes is None else int(sizes[files].sum()))
    if cached is not None:
        shards = FetchCosts(
            max(shards.requests, round(scale * (whole.shards.requests - first.shards.requests))),
            max(shards.bytes, round(scale * (whole.shards.bytes - first.shards.bytes))),
        )
    ranges = FetchCosts(
        round(scale * (whole.ranges.requests - first.ranges.requests)),
        round(scale * (whole.ranges.bytes - first.ranges.bytes)),
    )
    return EpochCosts(shards, ranges)


def _batches(view: RunView, epoch: int, ranks: range) -> Iterator[Ids]:
    """Gives the batches of some ranks, one after another within each step."""
    readings = (view.reading(epoch, rank) for rank in ranks)
    for step in zip_longest(*((ids for _, ids in reading.batches()) for reading in readings)):
        yield from (ids for ids in step if ids is not None)


def _advice(found: Transfers, num_samples: int, lanes: int | None) -> str:
    size = round(num_samples * FILES_IN_A_BLOCK / max(1, found.num_files))
    partial = f"shuffle: partial with partial_size: {size}"
    costs = f"costs {found.ratio or 0:.1f} times as much as fetching each file once"
    if lanes is not None:
        return f"reading single samples {costs}: several ranks read each file, say lanes: {lanes}"
    if found.way == "ranges":
        return f"reading single samples {costs}: take {partial}, or a cache for all files and fetch: shards"
    held = f"the cache holds {found.cached_files} files"
    return f"this order {costs}, since {held}: take {partial}, or a larger cache"
