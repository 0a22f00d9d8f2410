"""The index of one archive: found, or made by a walk through it and kept."""

from __future__ import annotations

import os
import zlib
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from samplerkit.errors import DatasetError
from samplerkit.storage.arrays import Array, narrow
from samplerkit.storage.tar.format.flaws import MOST_PLACES, Flaw, Skipped
from samplerkit.storage.tar.format.samples import Samples, group
from samplerkit.storage.tar.format.scan import scan
from samplerkit.storage.tar.index.archive import INDEX_SUFFIX, Archive, is_gzip, open_for_reading
from samplerkit.storage.tar.index.cache import Cache, unpack
from samplerkit.storage.tar.index.index import Index, read_index

_PIECE = 1 << 20


def find_index(
    archive: Archive, cache: Cache, *, checksums: bool, must_be_certain: bool = False
) -> Index | None:
    """Finds an index of the archive as it is now: beside it, else in the cache; None if there is none.

    What lies beside a remote archive is not looked for.
    """
    beside = [] if archive.is_remote else [Path(archive.url + INDEX_SUFFIX)]
    for path in (*beside, cache.index_path(archive.url)):
        index = read_index(path, (archive,))
        if index is not None and index.serves(checksums):
            return None if must_be_certain and not index.is_certain else index
    return None


def found_or_made(archive: Archive, cache: Cache, *, checksums: bool) -> Index:
    """Finds the index of an archive that was made of it, or makes it and keeps it in the cache.

    Raises:
        DatasetError: the archive cannot be read.
    """
    found = find_index(archive, cache, checksums=checksums, must_be_certain=True)
    if found is not None:
        return found
    path = cache.index_path(archive.url)
    with cache.lock(path):
        # Another process may have made it meanwhile.
        found = find_index(archive, cache, checksums=checksums, must_be_certain=True)
        if found is not None:
            return found
        made = make_index(archive, cache, checksums=checksums)
        # Mapped, so that the indexes of many archives are not held in memory.
        again = read_index(path, (archive,), verify=False) if kept(made, path) else None
        return made if again is None else replace(again, is_certain=True)


def kept(index: Index, path: Path) -> bool:
    """Keeps an index in a file of the cache; returns whether that can be written."""
    try:
        index.write(path)
    except OSError:
        return False
    return True


def make_index(archive: Archive, cache: Cache, *, checksums: bool) -> Index:
    """Makes the index of an archive by walking through it; for checksums all data are read as well.

    Raises:
        DatasetError: the archive cannot be read, or changes meanwhile. Flaws are no errors: they are in
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
    np.cumsum(list(map(len, samples.keys)), out=key_end[1:])
    first = np.array([*samples.first, len(samples.offsets)], dtype=np.int64)
    sizes = np.array(samples.sizes, dtype=np.int64)
    arrays: dict[str, Array] = {
        "samples": np.array([len(samples.keys)], dtype=np.int64),
        "first": first.astype(narrow(len(samples.offsets))),
        "signature": np.array(samples.signatures, dtype=narrow(len(samples.fields))),
        "key_end": key_end.astype(narrow(int(key_end[-1]))),
        "keys": np.frombuffer(b"".join(samples.keys), dtype=np.uint8),
        "offset": np.array(samples.offsets, dtype=np.int64),
        "size": sizes.astype(narrow(int(sizes.max(initial=0)))),
    }
    if crc is not None:
        arrays["crc"] = crc
    counts: Counter[str] = Counter()
    places = []
    for flaw in samples.flaws:
        counts[flaw.reason] += 1
        if counts[flaw.reason] <= MOST_PLACES:
            places.append(flaw)
    skipped = Skipped.of(places, counts)
    return Index((archive,), (unpacked_size,), tuple(samples.fields), skipped, samples.ignored, arrays)


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
