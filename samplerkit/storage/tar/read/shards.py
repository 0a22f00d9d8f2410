"""The shards of a dataset that are opened one by one: what can be told of each before it is open."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import final

from samplerkit.errors import DatasetError
from samplerkit.storage.catalogue.known import FileCatalogue
from samplerkit.storage.names import short_names
from samplerkit.storage.progress import all_in_threads
from samplerkit.storage.remote.attempt import UNKNOWN_SIZE
from samplerkit.storage.remote.options import RemoteOptions
from samplerkit.storage.remote.storage import RemoteStorage
from samplerkit.storage.tar.index.archive import Archive
from samplerkit.storage.tar.read.source import TarOptions
from samplerkit.storage.urls import is_remote
from samplerkit.storage.user_cache import user_cache_folder

ASKED_AT_A_TIME = 16
"""Shards that are asked for at the same time,"""

FETCHED_AT_A_TIME = 2
"""and shards that are fetched, since a small cache has no room for many."""


@final
@dataclass(frozen=True, eq=False)
class Shards:
    """The shards of a dataset, as every process sees them: nothing is open.

    `names` are the `urls` without what is private; where none is remote, there is no `storage`. A `catalogue`
    has the state of each, which is not asked then.
    """

    urls: tuple[str, ...]
    names: tuple[str, ...]
    storage: RemoteStorage | None
    options: TarOptions
    catalogue: FileCatalogue | None = None

    @property
    def short_names(self) -> tuple[str, ...]:
        """The names below the folder that all share."""
        return short_names(self.urls) if self.catalogue is None else tuple(self.catalogue.names)

    def is_remote(self, number: int) -> bool:
        """Whether a shard lies elsewhere."""
        return is_remote(self.urls[number])

    def archive(self, number: int) -> Archive:
        """Asks for the size and the version of a shard.

        Raises:
            DatasetError: it is not there, or not what the catalogue tells, or the server does not answer.
        """
        self.require(number)
        return Archive.at(self.urls[number], self.storage)

    def require(self, number: int) -> None:
        """Sees to it that a shard is read as the catalogue tells, where there is one.

        Raises:
            DatasetError: it is gone, or another one.
        """
        if self.catalogue is not None:
            self.catalogue.require(number, self.storage)

    def archives(self) -> tuple[Archive, ...]:
        """Asks for the size and the version of each shard, several at the same time.

        Raises:
            DatasetError: one is not there, or the server does not answer.
        """
        return tuple(all_in_threads(self.archive, len(self.urls), ASKED_AT_A_TIME, "samplerkit-version"))

    def shard_bytes(self) -> int | None:
        """Tells the size of the first remote shard, for all; None where that cannot be told."""
        if self.catalogue is not None:
            return int(self.catalogue.sizes[0]) or None
        url = next(filter(is_remote, self.urls), None)
        if url is None or self.storage is None:
            return None
        try:
            size = self.storage.version(url).size
        except DatasetError:  # it may be one that this process does not read
            return None
        return None if size == UNKNOWN_SIZE or size <= 0 else size

    def cache_capacity(self) -> int:
        """Tells how many shards the cache on disk can hold, if all are as large as one of them."""
        size = self.shard_bytes()
        if size is None or self.storage is None:
            return len(self.urls)
        # Of a compressed one, the half of the room is for what is unpacked of it.
        first = next(name for name in self.names if is_remote(name))
        parts = 2 if first.endswith((".gz", ".tgz")) else 1
        return _room(self.storage.options) // (parts * size)

    def local_path(self, number: int) -> str | None:
        """Where a shard lies on a disk of this machine as a whole; None if it does not."""
        if self.storage is None or not self.is_remote(number):
            return self.urls[number]
        self.require(number)
        copy = self.storage.cached(self.urls[number])
        if copy is None:
            return None
        with copy:
            return copy.path


def _room(options: RemoteOptions) -> int:
    """Tells how many bytes the cache on disk may hold, about."""
    if options.max_cache_bytes is not None:
        return options.max_cache_bytes
    folder = Path(options.cache or user_cache_folder()).absolute()
    there = next(place for place in (folder, *folder.parents) if place.exists())
    return shutil.disk_usage(there).free // 2
