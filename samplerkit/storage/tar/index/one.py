"""The index of one archive: where every sample lies, in numpy arrays."""

from __future__ import annotations

import os
import zlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from samplerkit.errors import DatasetError
from samplerkit.storage.tar.archive import Archive, is_gzip, open_for_reading, unpack
from samplerkit.storage.tar.arrays import (
    Array,
    Column,
    UnreadableFileError,
    narrow,
    read_arrays,
    write_arrays,
)
from samplerkit.storage.tar.cache import INDEX_SUFFIX, Cache
from samplerkit.storage.tar.format.members import MOST_PLACES, Flaw
from samplerkit.storage.tar.format.samples import Samples, group
from samplerkit.storage.tar.format.scan import scan
from samplerkit.storage.tar.sound import check_index_meta, check_samples

_PIECE = 1 << 20


@dataclass(frozen=True)
class Index:
    """Where the samples of one archive lie.

    Args:
        archive: the archive as it was when it was indexed.
        unpacked_size: bytes of the plain tar file, for a compressed archive; else None.
        fields: the distinct tuples of fields that samples have.
        flaws: what is wrong with the archive, each reason at most `MOST_PLACES` times.
        counts: how many flaws there are of each reason.
        ignored: how many files belong to no sample: those without an extension, and `__name__` ones.
        is_certain: whether it was made from this very state of the archive. What lies beside a remote archive
            tells only its size, so each header is compared before what it says is believed.
        arrays: `first` (shape (samples + 1,)): the number of each sample's first member; `signature`
            (samples,): the number of its fields; `key_end` (samples + 1,) and `keys`: its key, in bytes;
            `offset` and `size` (members,): where each member's data lie; `crc` (members,), on request:
            their CRC-32.
    """

    archive: Archive
    unpacked_size: int | None
    fields: tuple[tuple[str, ...], ...]
    flaws: tuple[Flaw, ...]
    counts: Mapping[str, int]
    ignored: int
    arrays: Mapping[str, Array]
    is_certain: bool = True

    @property
    def num_samples(self) -> int:
        """The number of samples."""
        return self.arrays["signature"].size

    @property
    def num_members(self) -> int:
        """The number of files that belong to samples."""
        return self.arrays["offset"].size

    @property
    def is_lost(self) -> bool:
        """Whether it stands for an archive that is not there, or may not be read."""
        return any(flaw.reason == "unreadable" for flaw in self.flaws)

    def key(self, sample: int) -> bytes:
        """Gives the key of a sample."""
        begin, end = self.arrays["key_end"][sample : sample + 2].tolist()
        return self.arrays["keys"][begin:end].tobytes()

    def write(self, path: Path) -> None:
        """Writes the index to a file.

        Raises:
            OSError: it cannot be written.
        """
        meta = {
            "size": self.archive.size,
            "mtime_ns": self.archive.version,
            "is_certain": self.is_certain,
            "unpacked_size": self.unpacked_size,
            "fields": self.fields,
            "flaws": [(flaw.offset, flaw.reason, flaw.detail) for flaw in self.flaws],
            "counts": dict(self.counts),
            "ignored": self.ignored,
        }
        write_arrays(path, meta, {name: Column.of(array) for name, array in self.arrays.items()})


def find_index(archive: Archive, cache: Cache, *, checksums: bool) -> tuple[Index, Path] | None:
    """Finds an index of the archive as it is now: beside it, else in the cache; None if there is none.

    What lies beside a remote archive is not looked for.
    """
    beside = [] if archive.is_remote else [Path(archive.url + INDEX_SUFFIX)]
    for path in (*beside, cache.index_path(archive.url)):
        index = read_index(path, archive)
        if index is not None and (not checksums or "crc" in index.arrays):
            return index, path
    return None


def read_index(path: Path, archive: Archive, *, verify: bool = True) -> Index | None:
    """Reads an index; None if it is not there, is damaged, or of another state of the archive.

    Args:
        path: of the index.
        archive: as it is now.
        verify: whether its digest and all its numbers are looked at; else it was found right a moment ago.

    Raises:
        DatasetError: it is whole, and yet no index of such an archive.
    """
    try:
        meta, arrays = read_arrays(path, verify=verify)
    except (OSError, UnreadableFileError):
        return None
    if verify:
        check_index_meta(str(path), meta)
    if (meta["size"], meta["mtime_ns"]) != (archive.size, archive.version):
        return None
    if verify:
        check_numbers(str(path), archive, meta, arrays)
    # Without a tag, two states of one size cannot be told apart.
    return index_of(archive, meta, arrays, is_certain=meta.get("is_certain", True) and archive.tag != "")


def check_numbers(place: str, archive: Archive, meta: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
    """Looks at all numbers of an index: none leads out of its arrays or out of the archive.

    Raises:
        DatasetError: one does; `place` is the file's name.
    """
    end = archive.size if meta["unpacked_size"] is None else meta["unpacked_size"]
    samples = arrays["signature"].size if "signature" in arrays else 0
    check_samples(place, meta, arrays, np.array([samples]), [end])


def index_of(
    archive: Archive, meta: Mapping[str, Any], arrays: Mapping[str, Array], *, is_certain: bool
) -> Index:
    """Makes an index of what a file of one says."""
    return Index(
        archive,
        meta["unpacked_size"],
        tuple(tuple(names) for names in meta["fields"]),
        tuple(Flaw(archive.url, *flaw) for flaw in meta["flaws"]),
        meta["counts"],
        meta["ignored"],
        arrays,
        is_certain,
    )


def found_or_made(archive: Archive, cache: Cache, *, checksums: bool) -> tuple[Index, Path | None]:
    """Finds the index of an archive, or makes it and keeps it in the cache.

    Returns:
        The index, and the file in which it is kept; None where the cache cannot be written to.

    Raises:
        DatasetError: the archive cannot be read.
    """
    found = find_index(archive, cache, checksums=checksums)
    if found is not None:
        return found
    path = cache.index_path(archive.url)
    with cache.lock(path):
        # Another process may have made it meanwhile.
        found = find_index(archive, cache, checksums=checksums)
        if found is not None:
            return found
        made = make_index(archive, cache, checksums=checksums)
        return made, path if kept(made, path) else None


def kept(index: Index, path: Path) -> bool:
    """Keeps an index in a file of the cache; tells whether that can be written."""
    try:
        index.write(path)
    except OSError:
        return False
    return True


def make_index(archive: Archive, cache: Cache, *, checksums: bool) -> Index:
    """Makes the index of an archive by walking through it.

    Args:
        archive: to be walked through.
        cache: where a compressed archive is unpacked.
        checksums: whether all data are read as well, for a CRC-32 of each member.

    Raises:
        DatasetError: the archive cannot be read, or changes meanwhile. Flaws are no errors: they stand in
            the index.
    """
    descriptor = archive.open()
    try:
        if not is_gzip(descriptor, archive):
            return _made(archive, descriptor, archive.size, None, checksums=checksums)
        copy = unpack(archive, cache)
        if isinstance(copy, Flaw):
            return empty_index(archive, copy)
        with copy:
            plain = open_for_reading(copy.path, archive.url)
        try:
            return _made(archive, plain, copy.size, copy.size, checksums=checksums)
        finally:
            os.close(plain)
    finally:
        os.close(descriptor)


def empty_index(archive: Archive, flaw: Flaw) -> Index:
    """Makes the index of an archive of which nothing can be read."""
    return _of_samples(archive, None, Samples(flaws=[flaw]), None)


def _made(
    archive: Archive, descriptor: int, size: int, unpacked_size: int | None, *, checksums: bool
) -> Index:
    samples = group(scan(descriptor, archive.url, size), archive.url)
    crc = _checksums(archive, descriptor, samples) if checksums else None
    status = os.fstat(descriptor)
    if not (status.st_size == size if unpacked_size else archive.is_same(status)):
        raise archive.changed()
    return _of_samples(archive, unpacked_size, samples, crc)


def _of_samples(archive: Archive, unpacked_size: int | None, samples: Samples, crc: Array | None) -> Index:
    key_end = np.zeros(len(samples.keys) + 1, dtype=np.int64)
    np.cumsum([len(key) for key in samples.keys], out=key_end[1:])
    first = np.array([*samples.first, len(samples.offsets)], dtype=np.int64)
    sizes = np.array(samples.sizes, dtype=np.int64)
    arrays: dict[str, Array] = {
        "first": first.astype(narrow(len(samples.offsets))),
        "signature": np.array(samples.signatures, dtype=narrow(len(samples.fields))),
        "key_end": key_end.astype(narrow(int(key_end[-1]))),
        "keys": np.frombuffer(b"".join(samples.keys), dtype=np.uint8),
        "offset": np.array(samples.offsets, dtype=np.int64),
        "size": sizes.astype(narrow(int(sizes.max(initial=0)))),
    }
    if crc is not None:
        arrays["crc"] = crc
    counts: Counter[str] = Counter(flaw.reason for flaw in samples.flaws)
    seen: Counter[str] = Counter()
    kept = []
    for flaw in samples.flaws:
        seen[flaw.reason] += 1
        if seen[flaw.reason] <= MOST_PLACES:
            kept.append(flaw)
    return Index(
        archive, unpacked_size, tuple(samples.fields), tuple(kept), dict(counts), samples.ignored, arrays
    )


def _checksums(archive: Archive, descriptor: int, samples: Samples) -> np.ndarray[Any, np.dtype[np.uint32]]:
    found = np.zeros(len(samples.offsets), dtype=np.uint32)
    for number, (offset, size) in enumerate(zip(samples.offsets, samples.sizes, strict=True)):
        crc, position, end = 0, offset, offset + size
        while position < end:
            data = os.pread(descriptor, min(_PIECE, end - position), position)
            if not data:
                raise DatasetError(archive.url, f"became shorter than {end} bytes while it was read")
            crc = zlib.crc32(data, crc)
            position += len(data)
        found[number] = crc
    return found
