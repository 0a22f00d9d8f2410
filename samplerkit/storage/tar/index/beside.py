"""The index that lies beside a remote archive, and whether the archive has its files where it says."""

from __future__ import annotations

import os
import warnings
from contextlib import suppress

import numpy as np

from samplerkit.errors import DatasetError
from samplerkit.storage.arrays import UnreadableFileError, on_disk, read_arrays
from samplerkit.storage.remote.storage import RemoteStorage
from samplerkit.storage.small_files import MOST_BYTES
from samplerkit.storage.tar.format.headers import (
    BLOCK,
    checksums_of,
    names_of,
    sizes_of,
    sums_of,
)
from samplerkit.storage.tar.format.samples import is_header_of
from samplerkit.storage.tar.index.archive import INDEX_SUFFIX, Archive
from samplerkit.storage.tar.index.one import Index
from samplerkit.storage.tar.index.sound import check_index_meta, check_numbers
from samplerkit.storage.urls import beside

AT_ONCE = 4096
"""Headers that are read and compared in one go."""


def index_beside(url: str, archive: Archive, storage: RemoteStorage, *, checksums: bool) -> Index | None:
    """Asks for the index beside a remote archive, by one request.

    Nothing tells of which state of the archive it is but the size. So it is not certain: the headers in the
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
            f"{name} is damaged, or of another state of the archive, and is not used: make it anew with "
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
