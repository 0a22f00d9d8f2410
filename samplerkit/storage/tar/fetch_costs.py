"""Costs of an epoch over remote shards, and the choice between fetching shards and reading samples."""

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from samplerkit.order.layout import Layout
from samplerkit.order.typing import Ids

GOOD_PART = 0.5
"""The fraction of the samples of some shards that must be needed for fetching these shards to pay off."""

REQUEST_BYTES = 1 << 20
"""Bytes that could be fetched in the time of one request: 20 to 50 ms at a few hundred Mbit/s."""

SEVERAL = 4
"""Samples per shard in one window that are not by chance: GLOBAL rarely reads a shard twice in a window."""

COSTLY = 2.0
"""A way of reading that costs more than this many times as much as another is reported as costly."""

MAX_SAMPLES = 1 << 20
"""The most upcoming samples of a process that are examined for the choice."""

_MIN_WINDOW = 16


@dataclass(frozen=True)
class FetchCosts:
    """Requests to a server and their size.

    Args:
        requests: the number of requests.
        bytes: the number of bytes received.
    """

    requests: int
    bytes: int

    @property
    def cost(self) -> int:
        """The cost in bytes: those received, plus `REQUEST_BYTES` per request."""
        return self.bytes + self.requests * REQUEST_BYTES


@dataclass(frozen=True)
class FetchChoice:
    """How the samples that are read next are fetched.

    Args:
        by_shards: whether to fetch whole shards for them.
        is_local: whether they stay in few shards for a while.
    """

    by_shards: bool
    is_local: bool


def choose_fetch(
    upcoming: Iterable[Ids],
    lengths: Ids,
    max_shards: int,
    sharers: int = 1,
    shard_bytes: int | None = None,
) -> FetchChoice:
    """Decides from the upcoming samples whether to fetch whole shards or to read single samples.

    It examines windows of the upcoming samples that are half a mean shard long, then one, two, four shards
    and so on, up to the capacity of the cache on disk. Whole shards are fetched if there is a window that

    - needs at least `GOOD_PART` of all samples of its shards, or on average `SEVERAL` of each if fetching
      these shards costs no more than reading its samples; and
    - touches at most half of the dataset's shards, or one. Otherwise the order is spread over the whole
      dataset, and only seems local because the dataset is small.

    All shards and all samples are assumed to be of equal size. So orders that stay in few shards for a while
    (FALSE, FILES, INFILE, PARTIAL) fetch shards, even if several ranks read parts of the same shards, and
    GLOBAL reads samples.

    Args:
        upcoming: the shards of the samples that this process reads next, batch by batch; iterated as far as
            needed, at most over `MAX_SAMPLES`.
        lengths: the number of samples of each shard.
        max_shards: the number of shards that fit into the cache on disk.
        sharers: the number of processes that read an order together and share fetched shards, such as the
            workers of a loader.
        shard_bytes: the size of a shard; None if unknown, in which case only `GOOD_PART` counts.

    Example:
        >>> lengths = np.full(100, 50)
        >>> in_order = np.repeat(np.arange(100), 50)
        >>> everywhere = np.random.default_rng(0).permutation(in_order)
        >>> [choose_fetch([shards], lengths, 100).by_shards for shards in (in_order, everywhere)]
        [True, False]
    """
    total = int(lengths.sum())
    batches = iter(upcoming)
    seen = np.zeros(0, dtype=np.int64)
    length = total / lengths.size / 2
    is_local = is_over = False
    while not is_over and length <= max_shards * total / lengths.size:
        own = max(_MIN_WINDOW, int(length / sharers))
        while seen.size < own and not is_over:
            batch = next(batches, None)
            is_over = batch is None
            seen = seen if batch is None else np.concatenate([seen, batch])
        window = seen[:own]
        touched = np.unique(window)
        if not window.size or own > MAX_SAMPLES:
            break
        if touched.size > max(1, lengths.size // 2):
            return FetchChoice(by_shards=False, is_local=is_local)
        needed = min(window.size * sharers, total)
        is_local = is_local or needed >= SEVERAL * touched.size
        if needed >= GOOD_PART * lengths[touched].sum():
            return FetchChoice(by_shards=True, is_local=True)
        if shard_bytes is not None and needed >= SEVERAL * touched.size:
            whole_bytes = touched.size * shard_bytes
            single_bytes = round(needed * shard_bytes * lengths.size / max(1, total))
            if FetchCosts(touched.size, whole_bytes).cost <= FetchCosts(needed, single_bytes).cost:
                return FetchChoice(by_shards=True, is_local=True)
        length *= 2
    return FetchChoice(by_shards=False, is_local=is_local)


def epoch_costs(
    layout: Layout,
    batches: Iterable[Ids],
    *,
    shard_bytes: Ids | None = None,
    cached_shards: int | None = None,
) -> tuple[FetchCosts, FetchCosts]:
    """Returns the costs of an epoch of one process: with whole shards fetched, and with single samples read.

    Shards are fetched when they are needed; a full cache evicts the least recently used one. Adjacent samples
    of a batch share a request.

    Args:
        layout: the number of samples in each shard.
        batches: the ids of each batch, int64 arrays.
        shard_bytes: the size of each shard, shape (shards,); None counts no bytes.
        cached_shards: the number of shards that fit into the cache on disk; None for all.

    Example:
        >>> shards, ranges = epoch_costs(Layout([4, 4]), [np.array([0, 1, 2, 3]), np.array([5, 7])])
        >>> shards.requests, ranges.requests
        (2, 3)
    """
    sizes = np.zeros(layout.num_files, dtype=np.int64) if shard_bytes is None else np.asarray(shard_bytes)
    sample_bytes = sizes / np.maximum(1, layout.sizes)
    cached: OrderedDict[int, None] = OrderedDict()
    fetched = fetched_bytes = requests = 0
    read_bytes = 0.0
    for batch in batches:
        ids = np.unique(batch)
        files = layout.file_of(ids)
        if ids.size:
            requests += 1 + int(((np.diff(ids) != 1) | (np.diff(files) != 0)).sum())
            read_bytes += float(sample_bytes[files].sum())
        for shard in np.unique(files).tolist():
            if shard in cached:
                cached.move_to_end(shard)
                continue
            cached[shard] = None
            fetched += 1
            fetched_bytes += int(sizes[shard])
            if cached_shards is not None and len(cached) > cached_shards:
                cached.popitem(last=False)
    return FetchCosts(fetched, fetched_bytes), FetchCosts(requests, round(read_bytes))
