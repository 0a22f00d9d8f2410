"""Reading of shards in one process, by whole shards or by single samples."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import tee
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from samplerkit.order.typing import Ids
from samplerkit.storage.ahead.batches import BatchesAhead
from samplerkit.storage.ahead.cache import ReadAheadCache
from samplerkit.storage.ahead.limits import CacheLimits
from samplerkit.storage.file_stats import FileStats
from samplerkit.storage.open_files import AbsentError
from samplerkit.storage.remote.access import Span
from samplerkit.storage.remote.disk_cache import LocalFile
from samplerkit.storage.remote.storage import RemoteStorage
from samplerkit.storage.tar.fetch_costs import choose_fetch
from samplerkit.storage.tar.format.flaws import Skipped
from samplerkit.storage.tar.format.headers import BLOCK
from samplerkit.storage.tar.format.samples import is_header_of
from samplerkit.storage.tar.index.index import Index
from samplerkit.storage.tar.read.contents import Contents, LoadedIndexes
from samplerkit.storage.tar.read.reader import Reader, verify
from samplerkit.storage.tar.read.shards import PARALLEL_REQUESTS, Shards
from samplerkit.storage.threads import in_threads, this_worker, weak_method
from samplerkit.storage.urls import is_remote

INDEXES_AT_ONCE = 64
"""Indexes of shards that are used at a time, since each keeps a file open."""


@dataclass(frozen=True, eq=False)
class OpenShard:
    """An open shard on a disk of this machine; a cached copy is not evicted while this object exists."""

    number: int
    path: str
    num_bytes: int
    index: Index
    reader: Reader
    copy: LocalFile | None


class ShardReading:
    """Reads samples in one process, with threads and open shards."""

    def __init__(self, shards: Shards, contents: Contents, stats: FileStats) -> None:
        self._shards = shards
        self._contents = contents
        self._limits = process_limits(shards)
        # If no shard is remote, whole shards are read.
        self._fetch = shards.options.fetch if shards.is_remote else "shards"
        self._index_lock = threading.Lock()
        self._open: ReadAheadCache[OpenShard] = self._new_cache(stats)
        self._live_shards: WeakValueDictionary[int, OpenShard] = WeakValueDictionary()
        self._loaded = LoadedIndexes(shards.names, contents, skips=shards.options.skips)
        self._batches: BatchesAhead[list[Any]] | None = None
        self._fetches_shards = self._fetch == "shards"  # otherwise ranges are read

    @property
    def stats(self) -> FileStats:
        """The counters of open shards."""
        return self._open.stats

    @property
    def skipped(self) -> Skipped:
        """The skipped flaws: of all shards if they were indexed, else of those used so far."""
        return self._loaded.skipped if self._contents.is_given else self._contents.skipped

    def expect(self, upcoming: Iterable[Any]) -> None:
        """Receives the upcoming ids, chooses how to read them, and starts prefetching.

        Args:
            upcoming: the ids of each batch.
        """
        batches = iter(upcoming)
        layout = self._contents.layout
        by_shards = self._fetch == "shards"
        if self._fetch == "auto":
            batches, peeked = tee(batches)
            shards = map(layout.file_of, peeked)
            capacity, shard_bytes = self._shards.cache_capacity(), self._shards.usual_size()
            by_shards = choose_fetch(shards, layout.sizes, capacity, this_worker()[1], shard_bytes).by_shards
            # Otherwise `tee` would keep all later batches for it.
            del shards, peeked
        ahead, self._batches = self._batches, None
        if ahead is not None:
            ahead.close(waits=False)
        self._fetches_shards = by_shards
        if by_shards:
            self._open.expect(batches, layout.file_of)
            return
        previous = self._open
        previous.close(waits=False)
        self._open = self._new_cache(previous.stats)
        self._batches = BatchesAhead(weak_method(self._read_by_ranges), batches)

    def read(self, ids: Ids) -> list[dict[str, Any]]:
        """Reads samples; if flaws are skipped, missing samples are replaced by an `AbsentError`."""
        batches = self._batches
        if batches is not None:
            return batches.read(ids)
        return self._read_by_shards(ids) if self._fetches_shards else self._read_by_ranges(ids)

    def index(self, number: int) -> Index:
        """Returns the index of a shard; fetches the shard if there is no index."""
        loaded = self._loaded.get(number)
        if loaded is not None:
            return loaded
        existing = self._shards.lookup_index(number)
        if existing is not None:
            return self._loaded.add(number, existing)
        with self._open.using(number) as shard:
            return shard.index

    def indexes(self, numbers: Iterable[int]) -> dict[int, Index]:
        """Returns the indexes of several shards; missing ones are requested in parallel."""
        requested = list(numbers)
        indexes = {number: index for number in requested if (index := self._loaded.get(number)) is not None}
        if len(indexes) < len(requested):
            # A lock, since the prefetched next batch mostly lacks the same indexes.
            with self._index_lock:
                missing = [number for number in requested if number not in indexes]
                indexes |= dict(in_threads(self.index, missing, PARALLEL_REQUESTS, "samplerkit-index"))
        return indexes

    def read_one(self, id: int) -> dict[str, Any]:
        """Reads one sample, like `read`."""
        return self.read(np.array([id]))[0]

    def keys(self, ids: Ids) -> list[str]:
        """Returns the keys of samples; "" for missing ones."""
        keys: list[str] = [""] * ids.size
        parts = self._contents.split(ids)
        numbers = [*parts]
        for at in range(0, len(numbers), INDEXES_AT_ONCE):
            for number, index in self.indexes(numbers[at : at + INDEXES_AT_ONCE]).items():
                rows, places = self._loaded.present(number, *parts[number], {})
                for key, place in zip(index.keys(rows), places.tolist(), strict=True):
                    keys[place] = key
        return keys

    def is_large(self, ids: Ids) -> bool:
        """Returns False: large samples are also read together, since requests run in parallel."""
        return False

    def close(self, *, waits: bool = True) -> None:
        """Closes everything; threads end after their task; `waits` for them, at most a second each."""
        batches = self._batches
        if batches is not None:
            batches.close(waits=waits)
        self._open.close(waits=waits)

    def _read_by_shards(self, ids: Ids) -> list[dict[str, Any]]:
        samples: list[Any] = [None] * ids.size
        parts, cache = self._contents.split(ids), self._open
        cache.begin(ids)
        with closing(cache.each(parts)) as shards:
            for shard, rows, places in shards:
                self._put(shard, rows, places, samples)
        return samples

    def _read_by_ranges(self, ids: Ids) -> list[dict[str, Any]]:
        samples: list[Any] = [None] * ids.size
        parts = self._contents.split(ids)
        requests = []
        for number, index in self.indexes(parts).items():
            rows, places = self._loaded.present(number, *parts[number], samples)
            if not rows.size:
                continue
            if (shard := self._live_shards.get(number)) is not None:
                self._put(shard, rows, places, samples)
            elif self._reads_whole_shard(number, index):
                with self._open.using(number) as opened:
                    self._put(opened, rows, places, samples)
            else:
                requests.append(RowRequest(number, index, rows, places))
        if requests and self._shards.storage is not None:
            self._read_ranges(requests, self._shards.storage, samples)
        return samples

    def _reads_whole_shard(self, number: int, index: Index) -> bool:
        """Returns whether a shard is read as a whole, even if samples are read by ranges."""
        # A compressed shard does not allow random access.
        if not is_remote(self._shards.urls[number]) or index.unpacked[0] is not None:
            return True
        return self._fetch == "auto" and self._shards.local_path(number) is not None

    def _open_shard(self, number: int) -> OpenShard:
        """Fetches and opens a shard; called by the cache of open shards."""
        loaded = self._loaded.get(number)
        index, copy = self._shards.open_shard(number, loaded)
        reader = Reader(index, self._shards.options.cache, 1)
        # One shard may always be open, also if it is larger than the share of this process.
        size, limit = index.archive.size, self._limits.max_bytes
        num_bytes = size if limit is None else min(size, limit)
        shard = OpenShard(number, self._shards.names[number], num_bytes, index, reader, copy)
        self._loaded.add(number, index)
        self._live_shards[number] = shard
        return shard

    def _put(self, shard: OpenShard, rows: Ids, places: Ids, samples: list[Any]) -> None:
        """Reads samples of a shard on disk into their positions."""
        number = shard.number
        rows, places = self._loaded.present(number, rows, places, samples)
        try:
            results = shard.reader.read(rows) if rows.size else []
        except AbsentError as error:  # the shard existed when its index was found
            self._loaded.add(number, self._shards.missing_index(number, error))
            self._loaded.present(number, rows, places, samples)
            return
        for place, sample in zip(places.tolist(), results, strict=True):
            samples[place] = sample

    def _read_ranges(self, requests: list[RowRequest], storage: RemoteStorage, samples: list[Any]) -> None:
        """Reads parts of shards; missing shards may be skipped."""
        try:
            read_ranges(requests, storage, samples)
        except AbsentError as error:
            if len(requests) > 1 and self._shards.options.skips:
                for request in requests:
                    self._read_ranges([request], storage, samples)
                return
            request = requests[0]
            self._loaded.add(request.number, self._shards.missing_index(request.number, error))
            self._loaded.present(request.number, request.rows, request.places, samples)

    def _new_cache(self, stats: FileStats) -> ReadAheadCache[OpenShard]:
        return ReadAheadCache(weak_method(self._open_shard), self._limits, stats)


def process_limits(shards: Shards) -> CacheLimits:
    """Returns the limits on open shards of this process.

    Open shards cannot be evicted, so in a small cache each worker gets a share; otherwise workers would wait
    for each other, or for themselves. The number assumes that all shards are as large as the first one.
    """
    limits, max_bytes = shards.options.limits, shards.options.cache.options.max_cache_bytes
    if not shards.is_remote or max_bytes is None:
        return limits
    workers = this_worker()[1]
    share = shards.cache_capacity() // workers
    return replace(limits, max_files=max(1, min(limits.max_files, share)), max_bytes=max_bytes // workers)


@dataclass(frozen=True, eq=False)
class RowRequest:
    """Rows of one shard to read.

    Args:
        number: the number of the shard.
        index: its index.
        rows: the samples in it, shape (n,).
        places: the position of each sample in the batch, shape (n,).
    """

    number: int
    index: Index
    rows: Ids
    places: Ids

    def spans(self) -> list[Span]:
        """Returns the part of the shard with each sample, starting at the header of its first file."""
        begins, ends = self.index.extents(self.rows)
        starts, lengths = (begins - BLOCK).tolist(), (ends - begins + BLOCK).tolist()
        url = self.index.archive.path
        return [Span(url, *extent) for extent in zip(starts, lengths, strict=True)]


def read_ranges(parts: Sequence[RowRequest], storage: RemoteStorage, samples: list[Any]) -> None:
    """Reads samples of remote shards into their positions.

    Each file is read with its header, which must match the index: so an index of another version of the shard
    is detected, even if the size is the same.

    Raises:
        DatasetError: a part cannot be read, a shard was changed, its index is of another version, or a file
            fails its checksum.
    """
    data = iter(storage.read([span for part in parts for span in part.spans()]))
    for part in parts:
        rows, keys, places = part.rows.tolist(), part.index.keys(part.rows), part.places.tolist()
        url = part.index.archive.name
        for row, key, place in zip(rows, keys, places, strict=True):
            samples[place] = _sample(part.index, row, {"__key__": key, "__url__": url}, next(data))


def _sample(index: Index, row: int, sample: dict[str, Any], data: bytes) -> dict[str, Any]:
    """Adds the files of a sample from its part of a shard, which starts at the header of the first one."""
    arrays = index.arrays
    first, stop = arrays["first"][row : row + 2].tolist()
    begins, sizes = arrays["offset"][first:stop].tolist(), arrays["size"][first:stop].tolist()
    for field, begin, size in zip(index.fields_of(row), begins, sizes, strict=True):
        at = begin - begins[0] + BLOCK
        if not is_header_of(data[at - BLOCK : at], sample["__key__"], field, size):
            raise index.stale()
        sample[field] = data[at : at + size]
    if "crc" in arrays:
        verify(index, row, sample)
    return sample
