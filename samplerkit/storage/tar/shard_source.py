"""Shards one by one, remote ones above all: each is opened and indexed when it is needed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any, final

import numpy as np

from samplerkit.order.layout import Layout
from samplerkit.order.once import once
from samplerkit.order.typing import Ids
from samplerkit.storage.ahead.shelf import CacheLimits
from samplerkit.storage.ahead.stats import FileStats
from samplerkit.storage.files.remote import with_requests
from samplerkit.storage.per_process import PerProcess
from samplerkit.storage.progress import Progress, silence
from samplerkit.storage.tar.contents import (
    THREADS,
    Contents,
    indexed_contents,
    told_contents,
)
from samplerkit.storage.tar.format.members import Skipped
from samplerkit.storage.tar.reading import Fetching, ShardReading
from samplerkit.storage.tar.shards import Shards
from samplerkit.storage.tar.source import ArchiveSource, Fetch, sizes_of, warn_of_skipped
from samplerkit.storage.threads import in_threads
from samplerkit.storage.workers import this_worker


@final
class ShardSource(ArchiveSource):
    """Shards that are opened one by one, on disk or remote.

    Each process has its own threads and open shards; what is fetched lies in a cache on disk that all
    processes of the machine share.

    Args:
        shards: which ones.
        lengths: the samples in each; None indexes all at first use.
        fetching: how they are read.
        progress: what tells how far the indexing is.
    """

    wants_to_know = True

    def __init__(
        self, shards: Shards, lengths: list[int] | None, fetching: Fetching, progress: Progress
    ) -> None:
        self.names = shards.names
        self.progress = progress
        self.logged: set[str] = set()
        self._shards = shards
        self._told = None if lengths is None else told_contents(shards.urls, lengths)
        self._fetching = fetching
        self._processes: PerProcess[ShardReading] = PerProcess()

    @once
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

    @once
    def _numbers(self) -> dict[str, int]:
        return {name: number for number, name in enumerate(self.names)}

    @property
    def layout(self) -> Layout:
        return self.contents.layout

    @property
    def fingerprint(self) -> str:
        return self.contents.fingerprint

    @property
    def fetch(self) -> Fetch:
        return self._fetching.fetch

    @property
    def max_cache_bytes(self) -> int | None:
        return None if self._shards.storage is None else self._shards.storage.options.max_cache_bytes

    @property
    def limits(self) -> CacheLimits:
        return self._fetching.limits

    @property
    def is_remote(self) -> bool:
        return any(map(self._shards.is_remote, range(len(self.names))))

    @property
    def is_layout_known(self) -> bool:
        """Whether the layout can be told without asking for a shard."""
        return self._told is not None or "contents" in self.__dict__

    @property
    def may_lack(self) -> bool:
        return self._shards.skips

    @property
    def skipped(self) -> Skipped:
        reading = self._processes.here().held
        return self.contents.skipped if self._told is None or reading is None else reading.skipped

    @property
    def stats(self) -> FileStats:
        process = self._processes.here()
        return process.with_workers(with_requests(process.stats, self._shards.storage))

    def count_workers(self, told: Callable[[], FileStats | None]) -> None:
        self._processes.here().of_workers.append(told)

    def expect(self, upcoming: Iterable[Ids], epoch_samples: int) -> None:
        self._reading().expect(upcoming, epoch_samples)

    def read(self, ids: Ids) -> list[dict[str, Any]]:
        return self._reading().read(ids) if ids.size else []

    def read_one(self, id: int) -> dict[str, Any]:
        return self._reading().read(np.array([id]))[0]

    def keys(self, ids: Ids) -> list[str]:
        keys: list[str] = [""] * ids.size
        reading = self._reading()
        parts = reading.split(ids)
        for number, index in reading.indexes(parts).items():
            rows, places = reading.present(number, *parts[number])
            for row, place in zip(rows.tolist(), places.tolist(), strict=True):
                keys[place] = index.key(row).decode("utf-8", "surrogateescape")
        return keys

    def is_large(self, ids: Ids) -> bool:
        # Together, for that is how requests go out at the same time.
        return False

    def shard_bytes(self) -> Ids:
        found = dict(in_threads(self._shards.archive, range(len(self.names)), THREADS, "samplerkit-version"))
        return sizes_of(found[number] for number in range(len(self.names)))

    def local_path(self, name: str) -> str | None:
        return self._shards.local_path(self._numbers[name])

    def close(self) -> None:
        self._processes.here().close()
        # Last: a thread that reads samples ahead would open it again.
        if self._shards.storage is not None:
            self._shards.storage.close()

    def __getstate__(self) -> dict[str, Any]:
        # Neither what is open nor threads, locks and the user's terminal travel to another process.
        return {**self.__dict__, "_processes": PerProcess(), "progress": silence}

    def _reading(self) -> ShardReading:
        process = self._processes.here()
        held = process.held
        if held is not None:
            return held
        # Before the lock is taken: indexing may take its time, and close must not wait for it.
        contents, fetching = self.contents, self._fetching_here()
        return process.opened(self, partial(ShardReading, self._shards, contents, fetching))

    def _fetching_here(self) -> Fetching:
        fetching = self._fetching
        if self.max_cache_bytes is None:
            return fetching
        # What workers hold open cannot be evicted: else they would wait for one another.
        share = self._shards.cache_capacity() // this_worker()[1]
        return replace(fetching, max_shards=max(1, min(fetching.max_shards, share)))
