"""The shards of a dataset that are opened one by one, and the index of each: found, confirmed or made."""

from __future__ import annotations

import os
import shutil
import warnings
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, final

import numpy as np

from samplerkit.errors import DatasetError
from samplerkit.order.caching import cached_property
from samplerkit.order.typing import Ids
from samplerkit.storage.ahead.cache_entries import CacheLimits
from samplerkit.storage.arrays import on_disk
from samplerkit.storage.atomic import user_cache_folder
from samplerkit.storage.catalogue.file_catalogue import FileCatalogue
from samplerkit.storage.files.paths import file_paths
from samplerkit.storage.names import short_names
from samplerkit.storage.opening import AbsentError
from samplerkit.storage.remote.access import UNKNOWN_SIZE
from samplerkit.storage.remote.filesystem import MOST_BYTES
from samplerkit.storage.remote.options import RemoteOptions
from samplerkit.storage.remote.storage import LocalFile, RemoteStorage
from samplerkit.storage.tar.format.flaws import Flaw
from samplerkit.storage.tar.index.archive import INDEX_SUFFIX, Archive
from samplerkit.storage.tar.index.finding import Cache, empty_index, found_or, kept, make_index
from samplerkit.storage.tar.index.index import Index, read_index
from samplerkit.storage.threads import all_in_threads
from samplerkit.storage.urls import beside, is_remote

ASKED_AT_A_TIME = 16
"""Shards that are asked for at the same time,"""

FETCHED_AT_A_TIME = 2
"""and shards that are fetched, since a small cache has no room for many."""


OnError = Literal["raise", "skip"]

Fetch = Literal["auto", "shards", "ranges"]
"""How remote samples are read: from whole shards, one by one, or as the order suggests."""


@dataclass(frozen=True)
class TarOptions:
    """How shards are read: what the arguments of a `TarDataset` of these names say."""

    on_error: OnError
    max_handles: int | None
    checksums: bool
    cache: Cache
    fetch: Fetch
    max_shards: int
    read_ahead: int

    @property
    def skips(self) -> bool:
        """Whether flaws are counted and skipped, and are no errors."""
        return self.on_error == "skip"

    @property
    def limits(self) -> CacheLimits:
        """What is at hand; a shard that is not needed soon is let go, and stays in the cache on disk."""
        threads = max(1, min(self.read_ahead, 4))
        return CacheLimits(
            self.max_shards, None, self.read_ahead, threads, keeps_unneeded=False, called="max_shards"
        )


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

    @property
    def is_remote(self) -> bool:
        """Whether some shards are remote."""
        return self.storage is not None and any(map(is_remote, self.names))

    def archive(self, number: int) -> Archive:
        """Asks for the size and the version of a shard.

        Raises:
            DatasetError: it is not there, or not what the catalogue says, or the server does not answer.
        """
        self.require(number)
        return Archive.found(self.urls[number], self.storage)

    def require(self, number: int) -> None:
        """Sees to it that a shard is read as the catalogue says, where there is one.

        Raises:
            DatasetError: it is gone, or another one.
        """
        if self.catalogue is not None:
            self.catalogue.require(number, self.storage)

    def sizes(self) -> Ids:
        """Returns the size of each shard; they are asked for it several at the same time."""
        if self.catalogue is not None:
            return self.catalogue.sizes
        found = all_in_threads(self.archive, len(self.urls), ASKED_AT_A_TIME, "samplerkit-version")
        return np.array([archive.size for archive in found], dtype=np.int64)

    def usual_size(self) -> int | None:
        """Returns the size of the first remote shard, for all; None where it is not known."""
        number = next((number for number, url in enumerate(self.urls) if is_remote(url)), None)
        if number is None:
            return None
        try:
            size = self.archive(number).size
        except DatasetError:  # it may be one that this process does not read
            return None
        return None if size in {UNKNOWN_SIZE, 0} else size

    def cache_capacity(self) -> int:
        """Returns how many shards the cache on disk can hold, if all are as large as one of them."""
        size = self.usual_size()
        if size is None or self.storage is None:
            return len(self.urls)
        # Of a compressed one, the half of the room is for what is unpacked of it.
        first = next(filter(is_remote, self.names))
        parts = 2 if first.endswith((".gz", ".tgz")) else 1
        return _room(self.storage.options) // (parts * size)

    @cached_property
    def numbers(self) -> dict[str, int]:
        """The number of each shard by its name."""
        return {name: number for number, name in enumerate(self.names)}

    def local_path(self, number: int) -> str | None:
        """Where a shard lies on a disk of this machine as a whole; None if it does not."""
        if self.storage is None or not is_remote(self.urls[number]):
            return self.urls[number]
        self.require(number)
        copy = self.storage.cached(self.urls[number])
        if copy is None:
            return None
        with copy:
            return copy.path

    def known_index(self, number: int) -> Index | None:
        """Finds the index of a shard without the shard: in the cache, or beside it; None if there is none.

        Raises:
            DatasetError: the shard is not there, or the server does not answer; or it has a flaw, and flaws
                are errors.
        """
        try:
            archive = self.archive(number)
            if archive.size == UNKNOWN_SIZE:
                return None
            make = partial(self._beside, number, archive)
            index = found_or(make, archive, self.options.cache, checksums=self.options.checksums)
        except AbsentError as error:
            return self.lost(number, error)
        return None if index is None else self._accepted(index)

    def lost(self, number: int, error: AbsentError) -> Index:
        """Returns the index of a shard that is not there: one without samples and with a flaw.

        Raises:
            AbsentError: flaws are errors.
        """
        if not self.options.skips:
            try:
                raise error
            finally:
                del error  # it holds this frame
        name = self.names[number]
        flaw = Flaw(name, 0, "unreadable", error.problem)
        return empty_index(Archive(name, 0, 0, None, ""), flaw)

    def open_shard(
        self, number: int, known: Index | None = None, *, refuses_stale: bool
    ) -> tuple[Index, LocalFile | None]:
        """Brings a whole shard to a disk of this machine, and finds or makes its index.

        Args:
            number: of the shard.
            known: its index, if it was met before.
            refuses_stale: whether an index beside the shard that is of another state of it is an error, for
                something relies on it already; else it is left aside with a warning.

        Returns:
            The index, and the copy of a remote shard, which is not evicted while anybody holds it.

        Raises:
            DatasetError: the shard cannot be read, or has a flaw, and flaws are errors.
        """
        if known is not None and known.is_lost:
            return known, None
        url, storage, copy = self.urls[number], self.storage, None
        try:
            self.require(number)
            if storage is None or not is_remote(url):
                archive = Archive.of(url)
            else:
                copy = storage.fetch(url)
                archive = Archive.of(self.names[number], copy.path, storage.version(url).tag)
            index = _again(known, archive) or self._of_shard(number, archive, refuses_stale=refuses_stale)
            return self._accepted(index), copy
        except AbsentError as error:
            return self.lost(number, error), None

    def _beside(self, number: int, archive: Archive) -> Index | None:
        """Asks for the index beside a remote shard, by one request.

        Only the size shows of which state of the shard it is. So it is not certain: the headers in the shard
        are compared before what it says is believed. One of another size, or a damaged one, is left aside
        with a warning.

        Raises:
            DatasetError: the server does not answer.
        """
        if self.storage is None or not archive.is_remote:
            return None
        data = self.storage.read_small(beside(self.urls[number], INDEX_SUFFIX), MOST_BYTES)
        if data is None:
            return None
        with on_disk(data) as path:
            index = read_index(path, (archive,), by_size=True)
        if index is None:
            name = f"{archive.url}{INDEX_SUFFIX}"
            warnings.warn(
                f"{name} is damaged, or of another state of the archive, and is not used: make it again with "
                "`samplerkit index`",
                stacklevel=2,
            )
        return index if index is not None and index.serves(self.options.checksums) else None

    def _of_shard(self, number: int, archive: Archive, *, refuses_stale: bool) -> Index:
        """Returns the index of a shard that is on this machine: what lies beside it is tried first."""
        cache, checksums = self.options.cache, self.options.checksums
        make = partial(make_index, archive, cache)
        index = found_or(
            lambda: self._beside(number, archive) or make(checksums=checksums),
            archive,
            cache,
            checksums=checksums,
        )
        if not index.is_certain:
            # Without the shard it had to be believed, and each header that was read was compared. Now all
            # of them can be, once and for all processes of this machine.
            if make(checksums=False).is_like(index):
                index = replace(index, is_certain=True)
            elif refuses_stale:
                raise index.stale()
            else:
                warnings.warn(f"{index.stale()}; it is not used", stacklevel=2)
                index = make(checksums=checksums)
            kept(index, cache)
        return replace(index, archives=(archive,))

    def _accepted(self, index: Index) -> Index:
        if index.skipped.places and not self.options.skips:
            raise index.skipped.places[0].error()
        if self.options.checksums or "crc" not in index.arrays:
            return index
        return replace(index, arrays={name: array for name, array in index.arrays.items() if name != "crc"})


def _room(options: RemoteOptions) -> int:
    """Returns how many bytes the cache on disk may hold, about."""
    if options.max_cache_bytes is not None:
        return options.max_cache_bytes
    folder = Path(options.cache or user_cache_folder()).absolute()
    there = next(place for place in (folder, *folder.parents) if place.exists())
    return shutil.disk_usage(there).free // 2


def _again(known: Index | None, archive: Archive) -> Index | None:
    """Returns an index that was met before, if it is certain, and the archive is still the same."""
    if known is None or not known.is_certain:
        return None
    before = known.archive
    is_same = (before.size, before.version) == (archive.size, archive.version) and archive.tag != ""
    return replace(known, archives=(archive,)) if is_same else None


def archive_names(
    urls: Any, options: RemoteOptions | None = None, *, keeps_absent: bool = False
) -> tuple[str, ...]:
    """Returns the names of the archives that a user means. Of remote ones nothing is asked, but for a glob.

    Args:
        urls: a path or a URL, or a list of these. In each, `{000..127}`, `{000..127..2}` and `{a,b}` are
            expanded as a shell does, then `*`, `?` and `[...]`, sorted by bytes. A path that exists is taken
            as it is. Web servers list no files.
        options: how remote archives are reached; None for the defaults.
        keeps_absent: whether a path that is named and not there stays, if another one is there.

    Returns:
        One path or URL an archive, in the order given.

    Raises:
        ArgumentTypeError: no path and no list of paths.
        ArgumentValueError: an empty list, or braces that do not match.
        DatasetError: there is no such file, one is no plain file, or nothing matches.
    """
    names = file_paths(urls, options or RemoteOptions(), "urls", INDEX_SUFFIX)
    # Path's own methods raise where a name is too long to be one.
    missing = [name for name in names if not (is_remote(name) or os.path.isfile(name))]  # noqa: PTH113
    for name in filter(os.path.exists, missing):
        hint = "give the files themselves, as in 'folder/*.tar'"
        raise DatasetError("urls", "is no plain file", name, hint=hint)
    if missing and not (keeps_absent and len(missing) < len(names)):
        is_link = os.path.islink(missing[0])  # noqa: PTH114
        problem = "is a link whose target is missing" if is_link else "there is no such file"
        raise DatasetError("urls", problem, missing[0], hint="check the path")
    return names
