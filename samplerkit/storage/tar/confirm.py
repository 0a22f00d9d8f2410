"""Whether an archive has its files where an index says: each header is compared."""

from __future__ import annotations

import os

import numpy as np

from samplerkit.errors import DatasetError
from samplerkit.storage.tar.format.headers import (
    BLOCK,
    REGULAR,
    HeaderError,
    checksums_of,
    names_of,
    parse,
    sizes_of,
    sums_of,
)
from samplerkit.storage.tar.format.samples import split_name
from samplerkit.storage.tar.index.one import Index

AT_ONCE = 4096
"""Headers that are read and compared in one go."""

_LONGEST_NAME = 99
_LARGEST_SIZE = 8**11


def is_header_of(block: bytes, key: bytes, field: str, size: int) -> bool:
    """Whether a block is the header of a sample's file.

    A name that does not fit into a header stands in another one before it; then the size has to do, and the
    checksum of the header.

    Args:
        block: the 512 bytes before the data.
        key: of the sample.
        field: the extension, in lower case.
        size: bytes of the data.
    """
    try:
        header = parse(block)
    except HeaderError:
        return False
    if header.kind not in REGULAR or (header.size != size and size < _LARGEST_SIZE):
        return False
    wanted = field.encode("utf-8", "surrogateescape")
    name = key + b"." + wanted
    if len(name) > _LONGEST_NAME or not name.isascii():
        return True
    parts = split_name(header.name)
    return parts is not None and (parts[0], parts[1].lower()) == (key, wanted)


def agrees(descriptor: int, index: Index) -> bool:
    """Whether all headers of an archive on disk are what its index says.

    Args:
        descriptor: of the plain tar file.
        index: of an archive of the same size.
    """
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


def stale(url: str) -> DatasetError:
    """Gives the error for an index beside an archive that is of another state of it."""
    return DatasetError(
        url,
        "has an index beside it that is of another state of it",
        mend="make it anew with `samplerkit index` and put it there, or take it away",
    )
