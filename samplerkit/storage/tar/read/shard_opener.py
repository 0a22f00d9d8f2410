"""Shards brought to a disk of this machine, and the index of each: found, confirmed or made."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import final

from samplerkit.errors import DatasetError
from samplerkit.storage.absent import AbsentError
from samplerkit.storage.remote.attempt import UNKNOWN_SIZE
from samplerkit.storage.remote.storage import LocalFile
from samplerkit.storage.tar.format.members import Flaw
from samplerkit.storage.tar.index.archive import Archive
from samplerkit.storage.tar.index.beside import agrees, index_beside
from samplerkit.storage.tar.index.finding import empty_index, find_index, found_or_made, kept, make_index
from samplerkit.storage.tar.index.handles import open_plain
from samplerkit.storage.tar.index.one import Catalogue, Index
from samplerkit.storage.tar.read.local import OpenShard, Reader
from samplerkit.storage.tar.read.shards import Shards
from samplerkit.storage.urls import is_remote


@final
@dataclass(frozen=True, eq=False)
class ShardOpener:
    """Opens the shards of a dataset."""

    shards: Shards

    def known_index(self, number: int) -> Index | None:
        """Finds the index of a shard without the shard: in the cache, or beside it; None if there is none.

        Raises:
            DatasetError: the shard is not there, or the server does not answer; or it has a flaw, and flaws
                are errors.
        """
        try:
            archive = self.shards.archive(number)
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
        if not self.shards.options.skips:
            try:
                raise error
            finally:
                del error  # it holds this frame
        name = self.shards.names[number]
        flaw = Flaw(name, 0, "unreadable", error.problem)
        return self._ready(number, empty_index(Archive(name, 0, 0, None, ""), flaw))

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
        if known is not None and known.is_lost:
            return self._ready(number, known)
        try:
            return self._opened(number, known, refuses_stale=refuses_stale)
        except AbsentError as error:
            return self.lost(number, error)

    def _opened(self, number: int, known: Index | None, *, refuses_stale: bool) -> OpenShard:
        url, storage, options = self.shards.urls[number], self.shards.storage, self.shards.options
        copy: LocalFile | None = None
        self.shards.require(number)
        if storage is None or not is_remote(url):
            archive = Archive.of(url)
            index = _again(known, archive)
            if index is None:
                index, _ = found_or_made(archive, options.cache, checksums=options.checksums)
        else:
            copy = storage.fetch(url)
            archive = Archive.of(self.shards.names[number], copy.path, storage.version(url).tag)
            index = _again(known, archive) or self._of_copy(number, archive, refuses_stale=refuses_stale)
        return self._ready(number, self._accepted(index), copy)

    def _ready(self, number: int, index: Index, copy: LocalFile | None = None) -> OpenShard:
        reader = Reader(Catalogue.of(index), self.shards.options.cache, 1)
        return OpenShard(self.shards.names[number], index.archive.size, index, reader, copy)

    def _without_shard(self, number: int, archive: Archive) -> Index | None:
        storage, cache = self.shards.storage, self.shards.options.cache
        checksums = self.shards.options.checksums
        found = find_index(archive, cache, checksums=checksums)
        if found is not None:
            return found[0]
        if storage is None or not archive.is_remote:
            return None
        index = index_beside(self.shards.urls[number], archive, storage, checksums=checksums)
        if index is not None:
            kept(index, cache.index_path(archive.url))
        return index

    def _of_copy(self, number: int, archive: Archive, *, refuses_stale: bool) -> Index:
        """Gives the index of a copy that has arrived: what lies beside the shard is tried first."""
        cache, checksums = self.shards.options.cache, self.shards.options.checksums
        index = self._without_shard(number, archive)
        if index is not None and index.is_certain:
            return replace(index, archive=archive)
        path = cache.index_path(archive.url)
        if index is not None:
            # Without the shard it had to be believed, and each header that was read was compared. Now all of
            # them can be, once and for all processes of this machine.
            index = replace(index, archive=archive, is_certain=True)
            if self._is_confirmed(index):
                kept(index, path)
                return index
            if refuses_stale:
                raise index.stale()
            warnings.warn(f"{index.stale()}; it is not used", stacklevel=2)
        with cache.lock(path):
            # Another process may have made it meanwhile.
            found = find_index(archive, cache, checksums=checksums)
            if found is not None and found[0].is_certain:
                return found[0]
            made = make_index(archive, cache, checksums=checksums)
            kept(made, path)
            return made

    def _is_confirmed(self, index: Index) -> bool:
        try:
            plain = open_plain(index.archive, index.unpacked_size, self.shards.options.cache)
        except DatasetError:  # a damaged gzip archive, of which the index knows nothing
            return False
        return agrees(plain.descriptor, index)

    def _accepted(self, index: Index) -> Index:
        if index.flaws and not self.shards.options.skips:
            raise index.flaws[0].error()
        if self.shards.options.checksums or "crc" not in index.arrays:
            return index
        return replace(index, arrays={name: array for name, array in index.arrays.items() if name != "crc"})


def _again(known: Index | None, archive: Archive) -> Index | None:
    """Gives an index that was met before, if it is certain, and the archive is still the same."""
    if known is None or not known.is_certain:
        return None
    before = known.archive
    is_same = (before.size, before.version) == (archive.size, archive.version) and archive.tag != ""
    return replace(known, archive=archive) if is_same else None
