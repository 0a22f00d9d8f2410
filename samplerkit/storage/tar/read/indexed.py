"""Archives on disk under one index: one mapped file, shared by all processes that read it."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any, cast, final

import numpy as np

from samplerkit.errors import DatasetError
from samplerkit.order.layout import Layout
from samplerkit.order.once import once
from samplerkit.order.told import fingerprint_of
from samplerkit.order.typing import Ids
from samplerkit.storage.ahead.stats import FileStats
from samplerkit.storage.arrays import write_arrays
from samplerkit.storage.progress import Progress, silence
from samplerkit.storage.tar.format.members import Skipped
from samplerkit.storage.tar.index.archive import Archive, Cache
from samplerkit.storage.tar.index.finding import found_or_made, read_index
from samplerkit.storage.tar.index.joining import IndexPart, joined
from samplerkit.storage.tar.index.one import Catalogue, Index
from samplerkit.storage.tar.index.sound import check_catalogue
from samplerkit.storage.tar.read.local import Reader
from samplerkit.storage.tar.read.source import ArchiveSource, TarOptions, sizes_of, warn_of_skipped

BYTES_AT_ONCE = 4 << 20
"""Bytes up to which several samples on disk are read together."""

_LOGGER = logging.getLogger(__name__)


@final
class IndexedSource(ArchiveSource):
    """Archives on disk, indexed at first use."""

    is_indexed = True
    is_remote = False
    is_layout_known = True
    stats = None

    def __init__(self, names: tuple[str, ...], options: TarOptions, progress: Progress) -> None:
        self.names = names
        self.options = options
        self.progress = progress
        self.logged: set[str] = set()
        self._made: tuple[Any, ...] | None = None

    @once
    def catalogue(self) -> Catalogue:
        """Where all samples lie; made at first use.

        Raises:
            DatasetError: an archive cannot be read, or has a flaw and flaws are errors; or another process
                made it, and it is not in the cache any more.
        """
        if self._made is not None:
            make, arguments = self._made
            return cast(Catalogue, make(*arguments))
        archives, options = tuple(Archive.of(name) for name in self.names), self.options
        found = open_catalogue(archives, options.cache, checksums=options.checksums, progress=self.progress)
        if not options.skips and len(found.skipped):
            raise found.skipped.places[0].error()
        warn_of_skipped(found.skipped, self.names[0])
        return found

    @once
    def reader(self) -> Reader:
        """Reads samples."""
        return Reader(self.catalogue, self.options.cache, self.options.max_handles)

    @property
    def layout(self) -> Layout:
        return self.catalogue.layout

    @property
    def fingerprint(self) -> str:
        fingerprint: str = self.catalogue.meta["fingerprint"]
        return fingerprint

    @property
    def skipped(self) -> Skipped:
        return self.catalogue.skipped

    def count_workers(self, told: Callable[[], FileStats | None]) -> None:
        pass

    def expect(self, upcoming: Iterable[Ids], epoch_samples: int) -> None:
        pass

    def read(self, ids: Ids) -> list[dict[str, Any]]:
        return self.reader.read(ids)

    def read_one(self, id: int) -> dict[str, Any]:
        return self.reader.read_one(id)

    def keys(self, ids: Ids) -> list[str]:
        return self.reader.keys(ids)

    def is_large(self, ids: Ids) -> bool:
        # Large ones gain nothing from company, and one at a time they stay in the processor's cache.
        return bool(self.reader.lengths(ids).sum() > BYTES_AT_ONCE)

    def shard_bytes(self) -> Ids:
        return sizes_of(self.catalogue.archives)

    def local_path(self, name: str) -> str | None:
        return name

    def close(self) -> None:
        # Without reading what would have to be indexed for it first.
        reader = self.__dict__.get("reader")
        if reader is not None:
            reader.close()

    def __getstate__(self) -> dict[str, Any]:
        # What shows the progress belongs to this process. The catalogue is mapped at its first use: an error
        # of unpickling ends a spawned worker before it can say anything.
        state = {**self.__dict__, "progress": silence}
        state.pop("reader", None)
        made = state.pop("catalogue", None)
        return state if made is None else {**state, "_made": made.__reduce__()}


def open_catalogue(
    archives: tuple[Archive, ...], cache: Cache, *, checksums: bool, progress: Progress
) -> Catalogue:
    """Gives the catalogue of some archives, from the cache if it is there; else it is made and kept.

    Raises:
        DatasetError: an archive cannot be read, or a file of the cache is none of ours.
    """
    # The name is of the paths only, so that a catalogue of changed archives takes the place of the old one.
    paths = [os.path.realpath(archive.url) for archive in archives]
    path = cache.catalogue_path(json.dumps([checksums, paths]))
    identity = _identity(archives)
    found = Catalogue.read(archives, path, verify=True)
    if found is not None and found.meta.get("identity") == identity:
        check_catalogue(str(path), archives, found.meta, found.arrays)
        return found
    parts = []
    for done, archive in enumerate(archives):
        progress("indexing archive", done, len(archives))
        parts.append(_part(archive, cache, checksums=checksums))
    progress("indexing archive", len(archives), len(archives))
    meta, columns = joined(parts, checksums=checksums)
    meta["identity"] = identity
    try:
        write_arrays(path, meta, columns)
    except OSError as error:
        _LOGGER.warning("the index stays in memory: %s cannot be written to (%s)", cache.folder, error)
        arrays = {name: np.concatenate([*column.parts()]) for name, column in columns.items()}
        return Catalogue(archives, meta, arrays, None)
    made = Catalogue.read(archives, path, verify=False)
    if made is None:
        raise DatasetError("cache", "was changed while it was in use", str(path))
    return made


def _identity(archives: tuple[Archive, ...]) -> str:
    """Changes when an archive is written, or another one has its place."""
    return fingerprint_of(*((os.path.realpath(one.url), one.size, one.mtime_ns) for one in archives))


def _part(archive: Archive, cache: Cache, *, checksums: bool) -> IndexPart:
    index, path = found_or_made(archive, cache, checksums=checksums)
    # Only one that lies in no file is held.
    load = (lambda: index) if path is None else partial(_again, archive, path)
    return IndexPart.of(index, load, checksums=checksums)


def _again(archive: Archive, path: Path) -> Index:
    """Reads an index that was there, and found right, a moment ago."""
    index = read_index(path, archive, verify=False)
    if index is None:
        raise DatasetError("cache", "was changed while it was in use", str(path))
    return index
