"""A local or remote file as it was when a dataset first examined it; a changed file is an error."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from samplerkit.errors import DatasetError
from samplerkit.storage.open_files import (
    REWRITE,
    Handle,
    Handles,
    file_error,
    open_for_reading,
    plain_file,
    read_part,
)
from samplerkit.storage.remote.access import RemoteAccess, Span
from samplerkit.storage.threads import all_in_threads
from samplerkit.storage.urls import identity, is_remote, shown

INDEX_SUFFIX: Final = ".skidx"
"""The suffix of an index next to a file, appended to the file's name."""

ByteSpan = tuple[int, int]
"""A part of a file: offset and length, in bytes."""


@dataclass(frozen=True)
class Stored:
    """A file with its size and modification time, which distinguish it from a later file of the same name.

    The file is not held open: each read opens it and compares its size and time with the known ones.

    Args:
        path: the path of the file, or its URL.
        size: the size in bytes.
        changed_ns: the modification time in nanoseconds; 0 for remote files, whose versions are compared.
        storage: reads the file if it is remote; else None.
    """

    path: str
    size: int
    changed_ns: int = 0
    storage: RemoteAccess | None = field(default=None, compare=False, repr=False)

    @classmethod
    def of(cls, path: str, storage: RemoteAccess | None = None) -> Stored:
        """Looks up the size and modification time of a file, with `storage` if it is remote.

        Raises:
            AbsentError: the file is missing, may not be read, or is not a regular file.
            DatasetError: the file cannot be read, or is remote and there is no storage.
        """
        if not is_remote(path):
            status = plain_file(path)
            return cls(path, status.st_size, status.st_mtime_ns)
        if storage is None:
            raise DatasetError(shown(path), "has no known size", hint="fetch it first")
        return cls(path, storage.version(path).size, 0, storage)

    @property
    def name(self) -> str:
        """The name in error messages."""
        return self.path if self.storage is None else shown(self.path)

    @property
    def identity(self) -> str:
        """A string that identifies the file on this machine, for keys: its real path, or its URL."""
        return os.path.realpath(self.path) if self.storage is None else identity(self.path)

    @property
    def version(self) -> str:
        """The modification time of a local file, the version tag of a remote one; "" if unknown."""
        return str(self.changed_ns) if self.storage is None else self.storage.version(self.path).tag

    def read(self, spans: Sequence[ByteSpan]) -> list[bytes]:
        """Reads parts of the file.

        Args:
            spans: the offset and length of each part.

        Raises:
            DatasetError: the file was changed or removed, or has no such part.
        """
        self.require_parts(spans)
        if self.storage is None:
            return self.read_from(self.open(), spans)
        return self.storage.read([Span(self.path, *span) for span in spans])

    @contextmanager
    def local_path(self) -> Iterator[str]:
        """Yields a local path of the whole file; a remote file is fetched into the cache.

        Raises:
            DatasetError: the file was changed or removed, or cannot be fetched.
        """
        if self.storage is None:
            self.require_same()
            yield self.path
        else:
            with self.storage.fetch(self.path) as local:
                yield local.path

    def require_parts(self, spans: Iterable[ByteSpan]) -> None:
        """Checks that parts are within the file.

        Raises:
            DatasetError: a part is not.
        """
        size = self.size
        for offset, length in spans:
            if not 0 <= offset <= offset + length <= size:
                problem = f"ends at byte {size}, but refers to a part at byte {offset}"
                raise DatasetError(self.name, problem, f"{length} bytes", hint=REWRITE)

    def require_same(self) -> None:
        """Checks that a local file is unchanged, before another package reads it; remote ones never change.

        Raises:
            DatasetError: the file was changed or removed.
        """
        if not is_remote(self.path):
            self._require(plain_file(self.path))

    def open(self) -> Handle:
        """Opens the file, or the local copy of a remote file, which is fetched if there is none.

        Raises:
            DatasetError: the file was changed or removed.
        """
        if self.storage is None:
            handle = open_for_reading(self.path, self.path)
        else:  # the copy may be evicted once it is open
            with self.storage.fetch(self.path) as local:
                handle = open_for_reading(local.path, self.name)
        self.require_open(handle)
        return handle

    def require_open(self, handle: Handle) -> None:
        """Checks that the open file is unchanged.

        Raises:
            DatasetError: the file was changed.
        """
        self._require(os.fstat(handle.descriptor))

    def read_from(self, handle: Handle, spans: Sequence[ByteSpan]) -> list[bytes]:
        """Reads parts of the open file.

        Raises:
            DatasetError: the file was changed or cannot be read.
        """
        try:
            data = [read_part(handle.descriptor, *span) for span in spans]
        except OSError as error:
            raise file_error(self.name, "cannot be read", error) from error
        # Checked after reading, so that all bytes are known to be of the unchanged file.
        self.require_open(handle)
        if [*map(len, data)] != [length for _, length in spans]:
            raise DatasetError(self.name, "was cut while it was read", hint=REWRITE)
        return data

    def _require(self, status: os.stat_result) -> None:
        # The local copy of a remote file is never changed.
        is_same_time = self.storage is not None or status.st_mtime_ns == self.changed_ns
        if status.st_size != self.size or not is_same_time:
            problem = f"{_PROBLEM}: it had {self.size} bytes"
            raise DatasetError(self.name, problem, f"{status.st_size} bytes", hint=CHANGED)

    def changed(self) -> DatasetError:
        """Returns the error for a file that was changed since it was first examined."""
        return DatasetError(self.name, _PROBLEM, hint=CHANGED)


def stored_files(paths: Sequence[str], storage: RemoteAccess | None) -> tuple[Stored, ...]:
    """Looks up the sizes and modification times of files, in parallel if one is remote.

    Args:
        paths: the paths and URLs of the files.
        storage: reads the remote ones.

    Raises:
        DatasetError: a file does not exist, or its size is not known.
    """
    if not any(map(is_remote, paths)):
        return tuple(map(Stored.of, paths))
    lookup = partial(Stored.of, storage=storage)
    return tuple(all_in_threads(lookup, paths, VERSION_THREADS, "samplerkit-version"))


VERSION_THREADS = 16
"""The number of versions that are requested in parallel."""

_PROBLEM = "was changed while it was in use"
CHANGED = "make the dataset, or its catalogue, again if that was meant, and leave files alone that are in use"


BytesRequest = tuple[int, int, Any]
"""The number of a file, the offset of a part in bytes, and the buffer to read it into."""


class ByteFiles:
    """Reads parts of files by `pread`, or by requests if a file is remote; files are not mapped.

    Reading any part of a file that was changed since it was first examined is an error. Several threads may
    use this object. It can be sent to other processes, without its open files.

    Args:
        files: the files as they were when they were first examined.
        storage: reads parts of remote files; None fetches these as a whole into the cache of this machine.
    """

    def __init__(self, files: Sequence[Stored], storage: RemoteAccess | None) -> None:
        self._storage: Final = storage
        self.files: Final = files
        self._handles: Final = Handles(partial(_open, files))

    def read(self, number: int, spans: Sequence[ByteSpan]) -> list[bytes]:
        """Reads parts of a local file, or of the local copy of a remote one.

        Raises:
            DatasetError: the file was changed.
        """
        return self.files[number].read_from(self._handles.get(number), spans)

    def fill(self, parts: Iterable[BytesRequest]) -> None:
        """Reads parts directly into buffers; the parts of a file should follow each other.

        Raises:
            DatasetError: a file was changed.
        """
        requested: list[BytesRequest] = []
        files, storage, current, descriptor = self.files, self._storage, -1, -1
        handle: Handle | None = None
        for number, begin, buffer in parts:
            if storage is not None and files[number].storage is not None:
                requested.append((number, begin, buffer))
                continue
            if handle is None or number != current:
                if handle is not None:
                    files[current].require_open(handle)
                current, handle = number, self._handles.get(number)
                descriptor = handle.descriptor
            try:
                count = os.preadv(descriptor, (buffer,), begin)
            except OSError as error:
                raise file_error(files[number].name, f"cannot be read at byte {begin}", error) from error
            if count != buffer.nbytes:  # Linux reads at most 2 GiB per call
                (data,) = files[number].read_from(handle, [(begin, buffer.nbytes)])
                memoryview(buffer).cast("B")[:] = data
        # Checked after reading, so that all bytes are known to be of the unchanged file.
        if handle is not None:
            files[current].require_open(handle)
        if storage is not None and requested:
            spans = [Span(files[number].path, begin, buffer.nbytes) for number, begin, buffer in requested]
            for (_, _, buffer), data in zip(requested, storage.read(spans), strict=True):
                memoryview(buffer).cast("B")[:] = data

    def close(self) -> None:
        """Closes the open files; they are opened again when needed."""
        self._handles.close()


def _open(files: Sequence[Stored], number: int) -> Handle:
    """Opens a file. Not a method: the open handles would then hold a reference to the dataset."""
    return files[number].open()
