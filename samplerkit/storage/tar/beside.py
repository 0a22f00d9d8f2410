"""The index that lies beside a remote archive."""

from __future__ import annotations

import warnings
from pathlib import Path
from tempfile import NamedTemporaryFile

import numpy as np

from samplerkit.storage.remote.location import beside
from samplerkit.storage.remote.storage import RemoteStorage
from samplerkit.storage.tar.archive import Archive
from samplerkit.storage.tar.arrays import UnreadableFileError, read_arrays
from samplerkit.storage.tar.cache import INDEX_SUFFIX
from samplerkit.storage.tar.header import BLOCK
from samplerkit.storage.tar.index import Index, index_of

MOST_BYTES = 1 << 30
"""A larger file beside an archive is no index."""


def index_beside(url: str, archive: Archive, storage: RemoteStorage, *, checksums: bool) -> Index | None:
    """Asks for the index beside a remote archive, by one request.

    Nothing tells of which state of the archive it is but the size. So it is not certain: the headers in the
    archive are compared before what it says is believed. One of another size, or a damaged one, is left
    aside with a warning.

    Args:
        url: of the archive.
        archive: its name, size and tag.
        storage: asks.
        checksums: whether one without checksums is of no use.

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
    return index if not checksums or "crc" in index.arrays else None


def _understood(data: bytes, archive: Archive) -> Index | None:
    # On disk, for then it is mapped: pages that are not needed take no memory.
    with NamedTemporaryFile(prefix="samplerkit-", suffix=INDEX_SUFFIX) as file:
        file.write(data)
        file.flush()
        try:
            meta, arrays = read_arrays(Path(file.name))
            index = index_of(archive, meta, arrays, is_certain=False)
            return index if meta["size"] == archive.size and _is_sound(index) else None
        except (UnreadableFileError, KeyError, TypeError, ValueError):
            return None


def _is_sound(index: Index) -> bool:
    """Whether no number of an index leads out of its arrays or out of the archive."""
    arrays = index.arrays
    first, key_end, signature = (
        arrays[name].astype(np.int64, copy=False) for name in ("first", "key_end", "signature")
    )
    offset, size = (arrays[name].astype(np.int64, copy=False) for name in ("offset", "size"))
    most = index.archive.size if index.unpacked_size is None else index.unpacked_size
    per_sample = np.array([len(names) for names in index.fields], dtype=np.int64)
    return bool(
        first.size == key_end.size == signature.size + 1
        and offset.size == size.size == first[-1]
        and arrays.get("crc", size).size == size.size
        and first[0] == key_end[0] == 0
        and key_end[-1] == arrays["keys"].size
        and (np.diff(key_end) >= 0).all()
        and (signature >= 0).all()
        and (signature < per_sample.size).all()
        and (np.diff(first) == per_sample[signature]).all()
        and (per_sample > 0).all()
        and (offset >= BLOCK).all()
        and (size >= 0).all()
        and (offset + size <= most).all()
        and (np.diff(offset) > 0).all()
    )
