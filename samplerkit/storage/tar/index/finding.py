"""The index of one archive: found, or made by a walk through it and kept."""

from __future__ import annotations

import os
import warnings
import zlib
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from samplerkit.errors import DatasetError
from samplerkit.storage.arrays import Array, UnreadableFileError, narrow, on_disk, read_arrays
from samplerkit.storage.remote.storage import RemoteStorage
from samplerkit.storage.small_files import MOST_BYTES
from samplerkit.storage.tar.format.flaws import MOST_PLACES, Flaw
from samplerkit.storage.tar.format.headers import (
    BLOCK,
    checksums_of,
    names_of,
    sizes_of,
    sums_of,
)
from samplerkit.storage.tar.format.samples import Samples, group, is_header_of
from samplerkit.storage.tar.format.scan import scan
from samplerkit.storage.tar.index.archive import (
    INDEX_SUFFIX,
    Archive,
    Cache,
    is_gzip,
    open_for_reading,
    unpack,
)
from samplerkit.storage.tar.index.checks import check_index_meta, check_numbers
from samplerkit.storage.tar.index.index import Index
from samplerkit.storage.urls import beside

AT_ONCE = 4096
"""Headers that are read and compared in one go."""


def index_beside(url: str, archive: Archive, storage: RemoteStorage, *, checksums: bool) -> Index | None:
    """Asks for the index beside a remote archive, by one request.

    Only the size shows of which state of the archive it is. So it is not certain: the headers in the
    archive are compared before what it says is believed. One of another size, or a damaged one, is left
    aside with a warning.

    Raises:
        DatasetError: the server does not answer.
    """
    data = storage.read_small(beside(url, INDEX_SUFFIX), MOST_BYTES)
    if data is None:
        return None
    index = _understood(data, archive)
    if index is None:
        name = f"{archive.url}{INDEX_SUFFIX}"
        warnings.warn(
            f"{name} is damaged, or of another state of the archive, and is not used: make it again with "
            "`samplerkit index`",
            stacklevel=2,
        )
        return None
    return index if index.serves(checksums) else None


def _understood(data: bytes, archive: Archive) -> Index | None:
    with on_disk(data) as path, suppress(UnreadableFileError, DatasetError):
        meta, arrays = read_arrays(path)
        check_index_meta(str(path), meta)
        if meta["size"] == archive.size:
            check_numbers(str(path), archive, meta, arrays)
            return Index.of_file(archive, meta, arrays, is_certain=False)
    return None


def agrees(descriptor: int, index: Index) -> bool:
    """Whether all headers of an archive on disk are what its index says."""
    offsets, sizes = index.arrays["offset"], index.arrays["size"]
    names = [
        (index.key(sample), field)
        for sample, signature in enumerate(index.arrays["signature"].tolist())
        for field in index.fields[signature]
    ]
    if len(names) != offsets.size:
        return False
    for start in range(0, offsets.size, AT_ONCE):
        part = slice(start, start + AT_ONCE)
        places = offsets[part].tolist()
        blocks = np.zeros((len(places), BLOCK), dtype=np.uint8)
        for row, place in zip(blocks, places, strict=True):
            if os.preadv(descriptor, [row.data], place - BLOCK) != BLOCK:
                return False
        plain = [key + b"." + field.encode("utf-8", "surrogateescape") for key, field in names[part]]
        is_right = (sums_of(blocks) == checksums_of(blocks)) & (sizes_of(blocks) == sizes[part])
        is_right &= np.array([one == other for one, other in zip(names_of(blocks), plain, strict=True)])
        # What is written in another way than most write it is looked at one by one.
        for number in np.flatnonzero(~is_right).tolist():
            key, field = names[start + number]
            if not is_header_of(blocks[number].tobytes(), key, field, int(sizes[start + number])):
                return False
    return True


_PIECE = 1 << 20


def find_index(archive: Archive, cache: Cache, *, checksums: bool) -> tuple[Index, Path] | None:
    """Finds an index of the archive as it is now: beside it, else in the cache; None if there is none.

    What lies beside a remote archive is not looked for.
    """
    beside = [] if archive.is_remote else [Path(archive.url + INDEX_SUFFIX)]
    for path in (*beside, cache.index_path(archive.url)):
        index = read_index(path, archive)
        if index is not None and index.serves(checksums):
            return index, path
    return None


def read_index(path: Path, archive: Archive, *, verify: bool = True) -> Index | None:
    """Reads an index; None if it is not there, is damaged, or of another state of the archive.

    Without `verify` neither its digest nor its numbers are looked at: it was found right a moment ago.

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
    return Index.of_file(archive, meta, arrays, is_certain=meta["is_certain"] and archive.tag != "")


def found_or_made(archive: Archive, cache: Cache, *, checksums: bool) -> tuple[Index, Path | None]:
    """Finds the index of an archive that was made of it, or makes it and keeps it in the cache.

    Returns:
        The index, and the file in which it is kept; None where the cache cannot be written to.

    Raises:
        DatasetError: the archive cannot be read.
    """
    found = find_index(archive, cache, checksums=checksums)
    if found is not None and found[0].is_certain:
        return found
    path = cache.index_path(archive.url)
    with cache.lock(path):
        # Another process may have made it meanwhile.
        found = find_index(archive, cache, checksums=checksums)
        if found is not None and found[0].is_certain:
            return found
        made = make_index(archive, cache, checksums=checksums)
        return made, path if kept(made, path) else None


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
    np.cumsum(list(map(len, samples.keys)), out=key_end[1:])
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
    counts: Counter[str] = Counter()
    places = []
    for flaw in samples.flaws:
        counts[flaw.reason] += 1
        if counts[flaw.reason] <= MOST_PLACES:
            places.append(flaw)
    return Index(
        archive, unpacked_size, tuple(samples.fields), tuple(places), dict(counts), samples.ignored, arrays
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
