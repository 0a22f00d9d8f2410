"""The index of a TFRecord file: beside it, else in the user's cache, else made by going through the file."""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from pathlib import Path
from typing import Final

import numpy as np

from samplerkit.errors import DatasetError
from samplerkit.storage.arrays import (
    Column,
    UnreadableFileError,
    narrow,
    on_disk,
    read_arrays,
    write_arrays,
)
from samplerkit.storage.formats.stored import Stored
from samplerkit.storage.formats.tfrecord_file import AROUND, Records, looked_through
from samplerkit.storage.remote.storage import RemoteStorage
from samplerkit.storage.urls import beside, identity, is_remote
from samplerkit.storage.user_cache import user_cache_folder

INDEX_SUFFIX: Final = ".skidx"
"""An index beside a file has its name and this."""

_MOST_BYTES: Final = 1 << 30
_KIND: Final = "tfrecord"

IndexedRecords = tuple[Records, bool]
"""The records of a file, and whether it is compressed."""


def records_of(stored: Stored, storage: RemoteStorage | None) -> IndexedRecords:
    """Finds the index of a file, or makes it and keeps it in the cache.

    It is not trusted: whoever reads records holds them against their own checksums, from end to end.

    Raises:
        DatasetError: the file cannot be read, or what lies beside it is no index of it.
    """
    found = _beside(stored, storage)
    if found is not None:
        return found
    version = _version(stored, storage)
    name = identity(stored.path) if is_remote(stored.path) else os.path.realpath(stored.path)
    digest = hashlib.blake2b(os.fsencode(name), digest_size=10, person=b"tfrecord").hexdigest()
    kept = user_cache_folder() / _KIND / f"{digest}{INDEX_SUFFIX}"
    if version:
        with suppress(OSError, UnreadableFileError, DatasetError):
            known = _understood(kept, stored, version)
            if known is not None:
                return known
    made = looked_through(stored, storage)
    if version:
        with suppress(OSError):  # where the cache cannot be written to, each process looks through the file
            write_index(kept, stored, made, version)
    return made


def write_index(path: Path, stored: Stored, indexed: IndexedRecords, version: str) -> None:
    """Writes an index.

    Args:
        path: of the index.
        stored: the file.
        indexed: what was found in it.
        version: what tells this state of the file from others; only in the cache it is compared.

    Raises:
        OSError: it cannot be written.
    """
    records, is_packed = indexed
    lengths = records.lengths.astype(narrow(int(records.lengths.max(initial=0))))
    meta = {"kind": _KIND, "size": stored.size, "version": version, "is_packed": is_packed}
    columns = {"length": Column.of(lengths), "crc": Column.of(records.crcs.astype("<u4"))}
    write_arrays(path, meta, columns)


def _version(stored: Stored, storage: RemoteStorage | None) -> str:
    if not is_remote(stored.path):
        return str(stored.changed_ns)
    return "" if storage is None else storage.version(stored.path).tag


def _beside(stored: Stored, storage: RemoteStorage | None) -> IndexedRecords | None:
    name = f"{stored.name}{INDEX_SUFFIX}"
    mend = "take it away, and make it anew with dataset.save_indexes()"
    try:
        if is_remote(stored.path):
            data = (
                None
                if storage is None
                else storage.read_small(beside(stored.path, INDEX_SUFFIX), _MOST_BYTES)
            )
            if data is None:
                return None
            with on_disk(data) as path:
                found = _understood(path, stored)
        else:
            found = _understood(Path(name), stored)
    except FileNotFoundError:
        return None
    except (OSError, UnreadableFileError) as error:
        raise DatasetError(name, f"cannot be read ({error})", mend=mend) from error
    if found is None:
        raise DatasetError(name, f"is of another state of the file, which has {stored.size} bytes", mend=mend)
    return found


def _understood(path: Path, stored: Stored, version: str | None = None) -> IndexedRecords | None:
    """Reads an index; None if it is of another file.

    Raises:
        OSError: it cannot be read.
        UnreadableFileError: it is damaged.
        DatasetError: it is something else.
    """
    meta, arrays = read_arrays(path)
    if (meta.get("kind"), meta.get("size")) != (_KIND, stored.size) or not {"length", "crc"} <= arrays.keys():
        return None
    if version not in {None, meta.get("version")}:
        return None
    records = Records(arrays["length"].astype(np.int64), arrays["crc"].astype(np.uint32))
    is_packed = bool(meta.get("is_packed"))
    whole = int((records.lengths + AROUND).sum())
    fits = is_packed or whole == stored.size
    is_sound = fits and records.lengths.size == records.crcs.size > 0 and records.lengths.min() >= 0
    return (records, is_packed) if is_sound else None
