"""What a view reads from: archives on disk under one index, or shards that are opened one by one."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import Any, cast, final

import numpy as np

from samplerkit.order.caching import cached_property
from samplerkit.order.layout import Layout
from samplerkit.order.typing import Ids
from samplerkit.storage.ahead.cache_entries import CacheLimits, FileStats
from samplerkit.storage.catalogue.catalogue_file import opened_catalogue, refuse_lengths
from samplerkit.storage.lengths import fetched_lengths, given_lengths
from samplerkit.storage.names import short_names
from samplerkit.storage.per_process import OpenPerProcess, storage_for, with_requests
from samplerkit.storage.progress import Progress, silence
from samplerkit.storage.tar.format.flaws import Skipped
from samplerkit.storage.tar.index.archive import Archive
from samplerkit.storage.tar.index.index import Index
from samplerkit.storage.tar.index.joining import Joint, Summary, joint_index
from samplerkit.storage.tar.pipeline import ArchiveSource
from samplerkit.storage.tar.read.contents import Contents, told_contents
from samplerkit.storage.tar.read.reader import Reader
from samplerkit.storage.tar.read.shard_reading import ShardReading
from samplerkit.storage.tar.read.shards import (
    ASKED_AT_A_TIME,
    FETCHED_AT_A_TIME,
    Shards,
    TarOptions,
    archive_names,
)
from samplerkit.storage.threads import in_threads, this_worker
from samplerkit.storage.urls import is_remote, shown

_LOGGER = logging.getLogger(__name__)

BYTES_AT_ONCE = 4 << 20
"""Bytes up to which several samples on disk are read together."""


def warn_of_skipped(skipped: Skipped, name: str) -> None:
    """Logs what was skipped."""
    if len(skipped):
        counts = ", ".join(f"{count} {reason}" for reason, count in skipped.counts.items())
        _LOGGER.warning("skipped in %s and the other archives: %s", name, counts)


def sizes_of(archives: Iterable[Archive]) -> Ids:
    """Returns the size of each archive."""
    return np.array([archive.size for archive in archives], dtype=np.int64)


@final
class IndexedSource(ArchiveSource):
    """Archives on disk, indexed at first use."""

    is_indexed = True

    def __init__(self, names: tuple[str, ...], options: TarOptions, progress: Progress) -> None:
        self.names = names
        self.options = options
        self.progress = progress
        self.logged = set()
        self._made: tuple[Any, ...] | None = None

    @cached_property
    def index(self) -> Index:
        """Where all samples lie; made at first use.

        Raises:
            DatasetError: an archive cannot be read, or has a flaw and flaws are errors; or another process
                made it, and it is not in the cache any more.
        """
        if self._made is not None:
            make, arguments = self._made
            return cast(Index, make(*arguments))
        archives, options = tuple(map(Archive.of, self.names)), self.options
        found = joint_index(archives, options.cache, checksums=options.checksums, progress=self.progress)
        if not options.skips and len(found.skipped):
            raise found.skipped.places[0].error()
        warn_of_skipped(found.skipped, self.names[0])
        return found

    @cached_property
    def reader(self) -> Reader:
        """Reads samples."""
        return Reader(self.index, self.options.cache, self.options.max_handles)

    @property
    def layout(self) -> Layout:
        return self.index.layout

    @property
    def fingerprint(self) -> str:
        return self.index.fingerprint

    @property
    def skipped(self) -> Skipped:
        return self.index.skipped

    def read(self, ids: Ids) -> list[dict[str, Any]]:
        return self.reader.read(ids)

    def read_one(self, id: int) -> dict[str, Any]:
        return self.reader.read_one(id)

    def keys(self, ids: Ids) -> list[str]:
        return self.index.keys(ids)

    def is_large(self, ids: Ids) -> bool:
        # Large ones gain nothing from company, and one at a time they stay in the processor's cache.
        begins, ends = self.index.extents(ids)
        return bool((ends - begins).sum() > BYTES_AT_ONCE)

    def shard_bytes(self) -> Ids:
        return sizes_of(self.index.archives)

    def local_path(self, name: str) -> str | None:
        return name

    def close(self) -> None:
        # Without reading what would have to be indexed for it first.
        reader = self.__dict__.get("reader")
        if reader is not None:
            reader.close()

    def __getstate__(self) -> dict[str, Any]:
        # What shows the progress belongs to this process. The index is mapped at its first use: an error
        # of unpickling ends a spawned worker before it can say anything.
        state = {**self.__dict__, "progress": silence}
        state.pop("reader", None)
        made = state.pop("index", None)
        return state if made is None else {**state, "_made": made.__reduce__()}


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
                keys[place] = index.key(row)
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


def source_of(urls: Any, options: TarOptions, progress: Progress, lengths: Any) -> ArchiveSource:
    """Returns what is read: archives on disk are joined under one index, others are opened one by one.

    Raises:
        ArgumentTypeError: names or lengths have the wrong type.
        ArgumentValueError: they do not fit.
        DatasetError: a file is not there.
    """
    remote = options.cache.options
    known = opened_catalogue(urls, "tar", remote)
    if known is not None:
        refuse_lengths(lengths)
        storage = storage_for(known.is_remote, None, remote)
        shards = Shards(known.files, known.files, storage, options, known)
        return ShardSource(shards, known.lengths.tolist(), progress)
    # What is told and skipped may be missing from the start.
    names = archive_names(urls, remote, keeps_absent=lengths is not None and options.skips)
    if lengths is None and not any(map(is_remote, names)):
        return IndexedSource(names, options, progress)
    storage = storage_for(any(map(is_remote, names)), lengths, remote)
    if lengths is not None:
        lengths = given_lengths(fetched_lengths(lengths, storage), names, short_names(names))
    public = tuple(shown(name) if is_remote(name) else name for name in names)
    return ShardSource(Shards(names, public, storage, options), lengths, progress)


def indexed_contents(shards: Shards, progress: Progress) -> Contents:
    """Looks at the index of each shard: beside it, in the cache, or made of the shard.

    The fingerprint is that of the same shards on disk.

    Raises:
        DatasetError: a shard cannot be read, or has a flaw and flaws are errors.
    """
    number = len(shards.urls)
    checksums, found = shards.options.checksums, dict[int, Summary]()

    def find(shard: int) -> Summary | None:
        index = shards.known_index(shard)
        return None if index is None else Summary.of(index, checksums=checksums)

    def fetch(shard: int) -> Summary:
        return Summary.of(shards.open_shard(shard, refuses_stale=False)[0], checksums=checksums)

    progress("indexing archive", 0, number)
    for look, threads in ((find, ASKED_AT_A_TIME), (fetch, FETCHED_AT_A_TIME)):
        missing = [shard for shard in range(number) if shard not in found]
        for shard, part in in_threads(look, missing, threads, "samplerkit-index"):
            if part is not None:
                found[shard] = part
                progress("indexing archive", len(found), number)
    parts = [found[shard] for shard in range(number)]
    joint = Joint.of(parts)
    if len(joint.skipped) and not shards.options.skips:
        raise joint.skipped.places[0].error()
    firsts, stops = np.array(joint.cuts, dtype=np.int64).T
    counts = np.array([part.num_samples for part in parts], dtype=np.int64)
    layout = Layout(stops - firsts, short_names(shards.urls))
    return Contents(layout, counts, firsts, joint.fingerprint, joint.skipped, is_told=False)
