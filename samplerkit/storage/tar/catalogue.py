"""The joint index of all archives of a dataset: one mapped file, shared by all processes that read it."""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np

from samplerkit.errors import DatasetError
from samplerkit.order.layout import Layout
from samplerkit.order.once import once
from samplerkit.storage.progress import Progress
from samplerkit.storage.tar.archive import Archive
from samplerkit.storage.tar.arrays import (
    Array,
    UnreadableFileError,
    read_arrays,
    unsound,
    write_arrays,
)
from samplerkit.storage.tar.cache import Cache
from samplerkit.storage.tar.format.members import Flaw, Skipped
from samplerkit.storage.tar.index.one import Index
from samplerkit.storage.tar.joining import joined, part_of
from samplerkit.storage.tar.names import short_names
from samplerkit.storage.tar.sound import check_catalogue_meta, check_samples

_LOGGER = logging.getLogger(__name__)


@final
@dataclass(frozen=True)
class Catalogue:
    """Where the samples of several archives lie.

    Args:
        archives: as they were when they were indexed.
        meta: the values that are no arrays: `fields`, `unpacked`, `flaws`, `counts`, `ignored`,
            `identity` and `fingerprint`.
        arrays: those of an `Index`, those of all archives joined, and `samples`: how many samples each
            archive has.
        path: the file that is mapped; None where the arrays are in memory only.
    """

    archives: tuple[Archive, ...]
    meta: Mapping[str, Any]
    arrays: Mapping[str, Array]
    path: Path | None

    @once
    def layout(self) -> Layout:
        """How many samples lie in which archive."""
        names = short_names(tuple(archive.url for archive in self.archives))
        return Layout(self.arrays["samples"], names)

    @once
    def fields(self) -> tuple[tuple[str, ...], ...]:
        """The distinct tuples of fields that samples have."""
        return tuple(tuple(names) for names in self.meta["fields"])

    @once
    def skipped(self) -> Skipped:
        """What was skipped."""
        flaws = (Flaw(self.archives[number].url, *flaw) for number, *flaw in self.meta["flaws"])
        return Skipped.of(flaws, self.meta["counts"])

    @classmethod
    def of(cls, index: Index) -> Catalogue:
        """Makes the catalogue of one archive, in memory only."""
        meta = {
            "fields": index.fields,
            "unpacked": [index.unpacked_size],
            "flaws": [(0, flaw.offset, flaw.reason, flaw.detail) for flaw in index.flaws],
            "counts": index.counts,
        }
        samples = np.array([index.num_samples], dtype=np.int64)
        return cls((index.archive,), meta, {**index.arrays, "samples": samples}, None)

    def __reduce__(self) -> tuple[Any, ...]:
        if self.path is None:
            return Catalogue, (self.archives, self.meta, dict(self.arrays), None)
        return _reopened, (self.archives, self.path, self.meta["fingerprint"])


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
    found = _read(archives, path, verify=True)
    if found is not None and found.meta.get("identity") == identity:
        check_catalogue_meta(str(path), found.meta, len(archives))
        _check_numbers(found)
        return found
    parts = []
    for done, archive in enumerate(archives):
        progress("indexing archive", done, len(archives))
        parts.append(part_of(archive, cache, checksums=checksums))
    progress("indexing archive", len(archives), len(archives))
    meta, columns = joined(parts, checksums=checksums)
    meta["identity"] = identity
    try:
        write_arrays(path, meta, columns)
    except OSError as error:
        _LOGGER.warning("the index stays in memory: %s cannot be written to (%s)", cache.folder, error)
        arrays = {name: np.concatenate([*column.parts()]) for name, column in columns.items()}
        return Catalogue(archives, meta, arrays, None)
    made = _read(archives, path, verify=False)
    if made is None:
        raise DatasetError("cache", "was changed while it was in use", str(path))
    return made


def _identity(archives: tuple[Archive, ...]) -> str:
    """Changes when an archive is written, or another one has its place."""
    described = [(os.path.realpath(one.url), one.size, one.mtime_ns) for one in archives]
    return hashlib.blake2b(json.dumps(described).encode(), digest_size=16, person=b"samplerkit").hexdigest()


def _read(archives: tuple[Archive, ...], path: Path, *, verify: bool) -> Catalogue | None:
    try:
        meta, arrays = read_arrays(path, verify=verify)
    except (OSError, UnreadableFileError):
        return None
    return Catalogue(archives, meta, arrays, path)


def _check_numbers(found: Catalogue) -> None:
    """Looks at all numbers: none leads out of the arrays or out of its archive."""
    sizes = [
        archive.size if unpacked is None else unpacked
        for archive, unpacked in zip(found.archives, found.meta["unpacked"], strict=True)
    ]
    samples = found.arrays.get("samples", np.zeros(0, dtype=np.int64))
    if samples.size != len(sizes):
        raise unsound(str(found.path), f"samples has another length than {len(sizes)}", samples.size)
    check_samples(str(found.path), found.meta, found.arrays, samples, sizes)


def _reopened(archives: tuple[Archive, ...], path: Path, fingerprint: str) -> Catalogue:
    """Maps a catalogue in another process."""
    found = _read(archives, path, verify=False)
    if found is None or found.meta.get("fingerprint") != fingerprint:
        mend = "leave the cache alone while it is in use, and make the dataset anew"
        raise DatasetError("cache", "has lost an index that is in use", str(path), mend=mend)
    return found
