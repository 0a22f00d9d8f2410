"""Indexes of files, made once and kept in the user's cache or next to the file."""

import errno
import hashlib
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from samplerkit.errors import DatasetError
from samplerkit.storage.arrays import UnreadableFileError, on_disk, read_arrays, write_arrays
from samplerkit.storage.atomic import user_cache_folder
from samplerkit.storage.files.packages import guarded
from samplerkit.storage.files.stored import INDEX_SUFFIX, Stored
from samplerkit.storage.urls import add_suffix


@dataclass(frozen=True)
class IndexKind:
    """Reads, makes and writes the indexes of one kind of files.

    Indexes are not trusted: the samples that are read by an index have checks of their own.

    Args:
        name: the name of the kind.
        holds: the class of an index's content: a dataclass of arrays and JSON values, saved by the names of
            its fields. Its length is the number of samples, and `fits(size)` says whether it can belong to a
            file of that size.
        make: makes the content from the path of a local file.
    """

    name: str
    holds: type[Any]
    make: Callable[[str], Any]

    def of(self, stored: Stored) -> Any:
        """Returns the index of a file; makes it and keeps it in the cache if there is none.

        Raises:
            DatasetError: the file cannot be read, or the index next to it does not belong to it.
        """
        sidecar = self._read_sidecar(stored)
        if sidecar is not None:
            return sidecar
        version, cache_path = stored.version, self._cache_path(stored)
        if version:
            with suppress(OSError, UnreadableFileError):
                return self._read(cache_path, stored, version)
        with stored.local_path() as path:
            indexed = guarded(stored.name, "read", lambda: self.make(path))
        if version:
            with suppress(OSError):  # without a cache, each process indexes the file itself
                self.write(cache_path, stored, indexed, version)
        return indexed

    def write(self, path: Path, stored: Stored, indexed: Any, version: str = "") -> None:
        """Writes an index.

        Args:
            path: the path of the index.
            stored: the indexed file.
            indexed: the content of the index.
            version: the version of the file, which is compared only for indexes in the cache.

        Raises:
            OSError: the index cannot be written.
        """
        arrays = {name: a for name, a in vars(indexed).items() if isinstance(a, np.ndarray)}
        values = {name: value for name, value in vars(indexed).items() if name not in arrays}
        meta = {"kind": self.name, "size": stored.size, "version": version, "values": values}
        write_arrays(path, meta, arrays)

    def _cache_path(self, stored: Stored) -> Path:
        name = os.fsencode(stored.identity)
        digest = hashlib.blake2b(name, digest_size=10, person=self.name.encode()).hexdigest()
        return user_cache_folder() / self.name / f"{digest}{INDEX_SUFFIX}"

    def _read_sidecar(self, stored: Stored) -> Any:
        name = f"{stored.name}{INDEX_SUFFIX}"
        hint = "delete it, and write it again with dataset.save_indexes()"
        try:
            if stored.storage is None:
                return self._read(Path(name), stored)
            data = stored.storage.read_shared(add_suffix(stored.path, INDEX_SUFFIX))
            if data is None:
                return None
            with on_disk(data) as path:
                return self._read(path, stored)
        except (OSError, UnreadableFileError) as error:
            if isinstance(error, OSError) and error.errno in {errno.ENOENT, errno.ENAMETOOLONG}:
                return None
            raise DatasetError(name, f"cannot be read ({error})", hint=hint) from error

    def _read(self, path: Path, stored: Stored, version: str | None = None) -> Any:
        """Reads an index.

        Raises:
            OSError: the index cannot be read.
            UnreadableFileError: the index is damaged, or is of another file.
        """
        meta, arrays = read_arrays(path)
        is_own = (meta.get("kind"), meta.get("size")) == (self.name, stored.size)
        with suppress(LookupError, TypeError, AttributeError, ValueError):
            indexed = self.holds(**arrays, **meta["values"])
            if is_own and version in {None, meta.get("version")} and indexed.fits(stored.size):
                return indexed
        raise UnreadableFileError(f"it belongs to another version of the file, which has {stored.size} bytes")
