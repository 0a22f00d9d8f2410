"""The index that lies beside a remote archive."""

from __future__ import annotations

import warnings
from pathlib import Path
from tempfile import NamedTemporaryFile

from samplerkit.errors import DatasetError
from samplerkit.storage.remote.storage import RemoteStorage
from samplerkit.storage.tar.archive import Archive
from samplerkit.storage.tar.arrays import UnreadableFileError, read_arrays
from samplerkit.storage.tar.cache import INDEX_SUFFIX
from samplerkit.storage.tar.index.one import Index, check_numbers, index_of
from samplerkit.storage.tar.sound import check_index_meta
from samplerkit.storage.urls import beside

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
            check_index_meta(file.name, meta)
            if meta["size"] != archive.size:
                return None
            check_numbers(file.name, archive, meta, arrays)
        except (UnreadableFileError, DatasetError):
            return None
        return index_of(archive, meta, arrays, is_certain=False)
