"""Shards one by one, remote ones above all: each is opened and indexed when it is needed."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, final

import numpy as np

from samplerkit.order.caching import cached_property
from samplerkit.order.layout import Layout
from samplerkit.order.typing import Ids
from samplerkit.storage.ahead.cache_entries import CacheLimits
from samplerkit.storage.ahead.stats import FileStats
from samplerkit.storage.arrays import (
    Array,
    Column,
    UnreadableFileError,
    read_arrays,
    unsound,
    write_arrays,
)
from samplerkit.storage.files.remote import with_requests
from samplerkit.storage.names import short_names
from samplerkit.storage.per_process import OpenPerProcess
from samplerkit.storage.progress import Progress, silence
from samplerkit.storage.tar.format.flaws import Flaw, Skipped
from samplerkit.storage.tar.index.checks import check_joint_meta
from samplerkit.storage.tar.index.index import Index
from samplerkit.storage.tar.index.joining import IndexPart, joined, without_split_samples
from samplerkit.storage.tar.read.contents import Contents, told_contents
from samplerkit.storage.tar.read.shard_reading import ShardReading
from samplerkit.storage.tar.read.shards import ASKED_AT_A_TIME, FETCHED_AT_A_TIME, Shards
from samplerkit.storage.tar.read.sources import ArchiveSource, sizes_of, warn_of_skipped
from samplerkit.storage.threads import in_threads
from samplerkit.storage.workers import this_worker


@final
class ShardSource(OpenPerProcess[ShardReading], ArchiveSource):
    """Shards that are opened one by one, on disk or remote.

    Each process has its own threads and open shards; what is fetched lies in a cache on disk that all
    processes of the machine share.
    """

    is_indexed = False

    def __init__(self, shards: Shards, lengths: list[int] | None, progress: Progress) -> None:
        super().__init__()
        self.names = shards.names
        self.options = shards.options
        self.progress = progress
        self.logged: set[str] = set()
        self._shards = shards
        self._told = None if lengths is None else told_contents(shards.short_names, lengths)

    @cached_property
    def contents(self) -> Contents:
        """What lies in the shards.

        Raises:
            DatasetError: they are indexed now, and one cannot be read, or has a flaw and flaws are errors.
        """
        if self._told is not None:
            return self._told
        found = indexed_contents(self._shards, self.progress)
        warn_of_skipped(found.skipped, self.names[0])
        return found

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {name: number for number, name in enumerate(self.names)}

    @property
    def layout(self) -> Layout:
        return self.contents.layout

    @property
    def fingerprint(self) -> str:
        return self.contents.fingerprint

    @property
    def is_remote(self) -> bool:
        known = self._shards.catalogue
        return any(map(self._shards.is_remote, range(len(self.names)))) if known is None else known.is_remote

    @property
    def is_layout_known(self) -> bool:
        """Whether the layout can be told without asking for a shard."""
        return self._told is not None or "contents" in self.__dict__

    @property
    def skipped(self) -> Skipped:
        reading = self._processes.here().held
        return self.contents.skipped if self._told is None or reading is None else reading.skipped

    @property
    def stats(self) -> FileStats:
        process = self._processes.here()
        return process.with_workers(with_requests(process.stats, self._shards.storage))

    def expect(self, upcoming: Iterable[Ids], epoch_samples: int) -> None:
        self._reading().expect(upcoming, epoch_samples)

    def read(self, ids: Ids) -> list[dict[str, Any]]:
        return self._reading().read(ids) if ids.size else []

    def read_one(self, id: int) -> dict[str, Any]:
        return self._reading().read(np.array([id]))[0]

    def keys(self, ids: Ids) -> list[str]:
        keys: list[str] = [""] * ids.size
        reading = self._reading()
        parts = self.contents.split(ids)
        for number, index in reading.indexes(parts).items():
            rows, places = reading.present(number, *parts[number])
            for row, place in zip(rows.tolist(), places.tolist(), strict=True):
                keys[place] = index.key(row).decode("utf-8", "surrogateescape")
        return keys

    def is_large(self, ids: Ids) -> bool:
        # Together, for that is how requests go out at the same time.
        return False

    def shard_bytes(self) -> Ids:
        known = self._shards.catalogue
        return sizes_of(self._shards.archives()) if known is None else known.sizes

    def local_path(self, name: str) -> str | None:
        return self._shards.local_path(self._numbers[name])

    def close(self) -> None:
        self._processes.here().close()
        # Last: a thread that reads samples ahead would open it again.
        if self._shards.storage is not None:
            self._shards.storage.close()

    def __getstate__(self) -> dict[str, Any]:
        # The user's terminal does not travel to another process.
        return {**super().__getstate__(), "progress": silence}

    def _reading(self) -> ShardReading:
        process = self._processes.here()
        held = process.held
        if held is not None:
            return held
        # Before the lock is taken: indexing may take its time, and close must not wait for it.
        make = partial(ShardReading, self._shards, self.contents, self._limits_here())
        return process.opened(self, make)

    def _limits_here(self) -> CacheLimits:
        limits, storage = self.options.limits, self._shards.storage
        if storage is None or storage.options.max_cache_bytes is None:
            return limits
        # What workers hold open cannot be evicted: else they would wait for one another.
        share = self._shards.cache_capacity() // this_worker()[1]
        return replace(limits, max_files=max(1, min(limits.max_files, share)))


def indexed_contents(shards: Shards, progress: Progress) -> Contents:
    """Looks at the index of each shard: beside it, in the cache, or made of the shard.

    The fingerprint is that of the same shards on disk.

    Raises:
        DatasetError: a shard cannot be read, or has a flaw and flaws are errors.
    """
    cache, checksums = shards.options.cache, shards.options.checksums
    archives = shards.archives()
    path = cache.catalogue_path(json.dumps(["remote", checksums, shards.names]))
    identity = json.dumps([(archive.size, archive.version) for archive in archives])
    try:
        meta, arrays = read_arrays(path)
    except (OSError, UnreadableFileError):
        meta, arrays = {}, {}
    if meta.get("identity") == identity:
        check_joint_meta(str(path), meta, len(archives))
        _check_lengths(str(path), arrays, len(archives))
    else:
        meta, arrays = _joined(shards, progress)
        meta["identity"] = identity
        columns = {name: Column.of(array) for name, array in arrays.items()}
        with suppress(OSError):  # the cache cannot be written to
            write_arrays(path, meta, columns)
    flaws = (Flaw(shards.names[number], *flaw) for number, *flaw in meta["flaws"])
    skipped = Skipped.of(flaws, meta["counts"])
    if len(skipped) and not shards.options.skips:
        raise skipped.places[0].error()
    layout = Layout(arrays["samples"], short_names(shards.urls))
    counts, firsts = np.array(arrays["counts"]), np.array(arrays["firsts"])
    return Contents(layout, counts, firsts, meta["fingerprint"], skipped, is_told=False)


def _check_lengths(place: str, arrays: Mapping[str, Array], shards: int) -> None:
    """Looks at all numbers that are kept of some shards."""
    for name in ("samples", "counts", "firsts"):
        if name not in arrays or arrays[name].size != shards:
            raise unsound(place, f"{name} has another length than {shards}", arrays.get(name, ())[:9])
    samples, counts, firsts = (arrays[name] for name in ("samples", "counts", "firsts"))
    # A sample that is split may be missing at either end.
    most = np.iinfo(np.int64).max // max(1, shards)
    wrong = (samples < 0) | (firsts < 0) | (firsts > 1) | (counts > most) | (samples > counts - firsts)
    if wrong.any():
        shard = int(np.argmax(wrong))
        found = tuple(int(numbers[shard]) for numbers in (samples, counts, firsts))
        raise unsound(place, f"samples, counts and firsts of shard {shard} cannot be", found)


def _joined(shards: Shards, progress: Progress) -> tuple[dict[str, Any], dict[str, Ids]]:
    number, checksums = len(shards.urls), shards.options.checksums
    found: dict[int, Index] = {}

    def fetch(shard: int) -> Index:
        return shards.open_shard(shard, refuses_stale=False).index

    progress("indexing archive", 0, number)
    for shard, known in in_threads(shards.known_index, range(number), ASKED_AT_A_TIME, "samplerkit-index"):
        if known is not None:
            found[shard] = known
            progress("indexing archive", len(found), number)
    missing = [shard for shard in range(number) if shard not in found]
    for shard, made in in_threads(fetch, missing, FETCHED_AT_A_TIME, "samplerkit-index"):
        found[shard] = made
        progress("indexing archive", len(found), number)
    parts = [
        IndexPart.of(found[shard], partial(found.__getitem__, shard), checksums=checksums)
        for shard in range(number)
    ]
    meta, columns = joined(parts, checksums=checksums)
    cuts, _ = without_split_samples(parts)
    arrays = {
        "samples": np.concatenate([*columns["samples"].parts()]),
        "counts": np.array([part.num_samples for part in parts], dtype=np.int64),
        "firsts": np.array([start for start, _ in cuts], dtype=np.int64),
    }
    return {name: meta[name] for name in ("flaws", "counts", "fingerprint")}, arrays
