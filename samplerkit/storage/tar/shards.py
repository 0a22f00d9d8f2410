"""Shards one by one: the index of each, and the whole shard on a disk of this machine."""

from __future__ import annotations

import shutil
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import final

from samplerkit.errors import DatasetError
from samplerkit.storage.absent import AbsentError
from samplerkit.storage.remote.attempt import UNKNOWN_SIZE
from samplerkit.storage.remote.options import RemoteOptions
from samplerkit.storage.remote.storage import LocalFile, RemoteStorage
from samplerkit.storage.tar.archive import Archive
from samplerkit.storage.tar.beside import index_beside
from samplerkit.storage.tar.cache import Cache
from samplerkit.storage.tar.catalogue import Catalogue
from samplerkit.storage.tar.confirm import agrees, stale
from samplerkit.storage.tar.format.members import Flaw
from samplerkit.storage.tar.index.one import Index, empty_index, find_index, found_or_made, kept, make_index
from samplerkit.storage.tar.reader import Reader, open_plain
from samplerkit.storage.urls import is_remote
from samplerkit.storage.user_cache import user_cache_folder


@final
@dataclass(frozen=True, eq=False)
class OpenShard:
    """A shard on a disk of this machine, ready to be read; a copy is not evicted while anybody holds this.

    Args:
        path: its name.
        num_bytes: its size.
        index: where its samples lie.
        reader: reads them, by their numbers in the shard.
        copy: the copy of a remote one.
    """

    path: str
    num_bytes: int
    index: Index
    reader: Reader
    copy: LocalFile | None


@final
@dataclass(frozen=True, eq=False)
class Shards:
    """The shards of a dataset, as every process sees them: nothing is open.

    Args:
        urls: of the shards: paths and URLs.
        names: the same without what is private.
        storage: reads remote ones; None where there are none.
        cache: where indexes and unpacked archives are kept.
        checksums: whether what is read is compared with a CRC-32 that was taken with the index.
        skips: whether flaws are skipped.
    """

    urls: tuple[str, ...]
    names: tuple[str, ...]
    storage: RemoteStorage | None
    cache: Cache
    checksums: bool
    skips: bool

    def is_remote(self, number: int) -> bool:
        """Whether a shard lies elsewhere."""
        return is_remote(self.urls[number])

    def archive(self, number: int) -> Archive:
        """Asks for the size and the version of a shard.

        Raises:
            DatasetError: it is not there, or the server does not answer.
        """
        url = self.urls[number]
        if self.storage is None or not is_remote(url):
            return Archive.of(url)
        version = self.storage.version(url)
        return Archive(self.names[number], version.size, 0, None, version.tag)

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
            index = self._without_shard(number, archive)
        except AbsentError as error:
            return self.lost(number, error).index
        return None if index is None else self._accepted(index)

    def lost(self, number: int, error: AbsentError) -> OpenShard:
        """Gives what stands for a shard that is not there: one without samples and with a flaw.

        Raises:
            AbsentError: flaws are errors.
        """
        if not self.skips:
            try:
                raise error
            finally:
                del error  # it holds this frame
        name = self.names[number]
        flaw = Flaw(name, 0, "unreadable", error.problem)
        return self.lost_shard(number, empty_index(Archive(name, 0, 0, None, ""), flaw))

    def lost_shard(self, number: int, index: Index) -> OpenShard:
        """Gives what stands for a shard that is known to be lost."""
        return OpenShard(self.names[number], 0, index, Reader(Catalogue.of(index), self.cache, 1), None)

    def shard_bytes(self) -> int | None:
        """Tells the size of the first remote shard, for all; None where that cannot be told."""
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
        copy = self.storage.cached(self.urls[number])
        if copy is None:
            return None
        with copy:
            return copy.path

    def open(self, number: int, known: Index | None = None, *, refuses_stale: bool) -> OpenShard:
        """Brings a whole shard to a disk of this machine, and finds or makes its index.

        Args:
            number: of the shard.
            known: its index, if it was met before.
            refuses_stale: whether an index beside the shard that is of another state of it is an error, for
                something relies on it already; else it is left aside with a warning.

        Raises:
            DatasetError: the shard cannot be read, or has a flaw, and flaws are errors.
        """
        try:
            return self._opened(number, known, refuses_stale=refuses_stale)
        except AbsentError as error:
            return self.lost(number, error)

    def _opened(self, number: int, known: Index | None, *, refuses_stale: bool) -> OpenShard:
        url = self.urls[number]
        copy: LocalFile | None = None
        if self.storage is None or not is_remote(url):
            archive = Archive.of(url)
            index = _again(known, archive)
            if index is None:
                index, _ = found_or_made(archive, self.cache, checksums=self.checksums)
        else:
            copy = self.storage.fetch(url)
            archive = Archive.of(self.names[number], copy.path, self.storage.version(url).tag)
            index = _again(known, archive) or self._of_copy(number, archive, refuses_stale=refuses_stale)
        index = self._accepted(index)
        reader = Reader(Catalogue.of(index), self.cache, 1)
        return OpenShard(self.names[number], archive.size, index, reader, copy)

    def _without_shard(self, number: int, archive: Archive) -> Index | None:
        found = find_index(archive, self.cache, checksums=self.checksums)
        if found is not None:
            return found[0]
        if self.storage is None or not archive.is_remote:
            return None
        index = index_beside(self.urls[number], archive, self.storage, checksums=self.checksums)
        if index is not None:
            kept(index, self.cache.index_path(archive.url))
        return index

    def _of_copy(self, number: int, archive: Archive, *, refuses_stale: bool) -> Index:
        """Gives the index of a copy that has arrived: what lies beside the shard is tried first."""
        index = self._without_shard(number, archive)
        if index is not None and index.is_certain:
            return replace(index, archive=archive)
        path = self.cache.index_path(archive.url)
        if index is not None:
            index = replace(index, archive=archive, is_certain=True)
            if self._is_confirmed(index):
                kept(index, path)
                return index
            if refuses_stale:
                raise stale(archive.url)
            warnings.warn(f"{stale(archive.url)}; it is not used", stacklevel=2)
        with self.cache.lock(path):
            # Another process may have made it meanwhile.
            found = find_index(archive, self.cache, checksums=self.checksums)
            if found is not None and found[0].is_certain:
                return found[0]
            made = make_index(archive, self.cache, checksums=self.checksums)
            kept(made, path)
            return made

    def _is_confirmed(self, index: Index) -> bool:
        try:
            plain = open_plain(Catalogue.of(index), self.cache, 0)
        except DatasetError:  # a damaged gzip archive, of which the index knows nothing
            return False
        return agrees(plain.descriptor, index)

    def _accepted(self, index: Index) -> Index:
        if index.flaws and not self.skips:
            raise index.flaws[0].error()
        if self.checksums or "crc" not in index.arrays:
            return index
        return replace(index, arrays={name: array for name, array in index.arrays.items() if name != "crc"})


def _room(options: RemoteOptions) -> int:
    """Tells how many bytes the cache on disk may hold, about."""
    if options.max_cache_bytes is not None:
        return options.max_cache_bytes
    folder = Path(options.cache or user_cache_folder()).absolute()
    there = next(place for place in (folder, *folder.parents) if place.exists())
    return shutil.disk_usage(there).free // 2


def _again(known: Index | None, archive: Archive) -> Index | None:
    """Gives an index that was met before, if it is certain, and the archive is still the same."""
    if known is None or not known.is_certain:
        return None
    before = known.archive
    is_same = (before.size, before.version) == (archive.size, archive.version) and archive.tag != ""
    return replace(known, archive=archive) if is_same else None
