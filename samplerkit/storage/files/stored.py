"""A file, local or remote, as it was when a dataset looked at it first: later it is that, or an error."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, final

from samplerkit.errors import DatasetError
from samplerkit.storage.opening import (
    REWRITE,
    Handle,
    Handles,
    open_for_reading,
    plain_file,
    read_part,
    unopened,
)
from samplerkit.storage.remote.access import UNKNOWN_SIZE, RemoteAccess, Span
from samplerkit.storage.threads import all_in_threads
from samplerkit.storage.urls import is_remote, shown

ByteSpan = tuple[int, int]
"""A part of a file: offset and length."""


@final
@dataclass(frozen=True)
class Stored:
    """A file and what distinguishes it from a later one of the same name.

    Nothing is held open: each reading opens the file, and compares it with what is known.

    Args:
        path: of the file, or its URL.
        size: in bytes.
        changed_ns: when it was written, in nanoseconds; 0 of remote ones, whose versions are compared.
        storage: reads it, if it is remote; else None.
    """

    path: str
    size: int
    changed_ns: int = 0
    storage: RemoteAccess | None = field(default=None, compare=False, repr=False)

    @classmethod
    def of(cls, path: str, storage: RemoteAccess | None = None) -> Stored:
        """Looks at a file, which the storage reads if it is remote.

        Raises:
            DatasetError: it is not there, cannot be read, or its size is not known.
        """
        if not is_remote(path):
            status = plain_file(path)
            return cls(path, status.st_size, status.st_mtime_ns)
        size = UNKNOWN_SIZE if storage is None else storage.version(path).size
        if size == UNKNOWN_SIZE:
            raise DatasetError(shown(path), "does not tell its size", hint="fetch it first")
        return cls(path, size, 0, storage)

    @property
    def name(self) -> str:
        """What errors call it."""
        return self.path if self.storage is None else shown(self.path)

    @property
    def version(self) -> str:
        """What changes with the content: the time of a local file, the tag of a remote one; "" if unknown."""
        return str(self.changed_ns) if self.storage is None else self.storage.version(self.path).tag

    def read(self, spans: Sequence[ByteSpan]) -> list[bytes]:
        """Reads parts of the file.

        Args:
            spans: offset and length of each.

        Raises:
            DatasetError: it is another file by now, is gone, or has no such part.
        """
        self.require_parts(spans)
        if self.storage is None:
            return self.read_from(self.open(), spans)
        return self.storage.read([Span(self.path, *span) for span in spans])

    @contextmanager
    def here(self) -> Iterator[str]:
        """Gives the path of the whole file on this machine; a remote one is fetched into the cache for it.

        Raises:
            DatasetError: it is another file by now, is gone, or cannot be fetched.
        """
        if self.storage is None:
            self.require_same()
            yield self.path
        else:
            with self.storage.fetch(self.path) as local:
                yield local.path

    def require_parts(self, spans: Iterable[ByteSpan]) -> None:
        """Requires that the file has such parts.

        Raises:
            DatasetError: it has not.
        """
        size = self.size
        for offset, length in spans:
            if not 0 <= offset <= offset + length <= size:
                problem = f"has {size} bytes, and says that a part of it is at {offset}"
                raise DatasetError(self.name, problem, f"{length} bytes", hint=REWRITE)

    def require_same(self) -> None:
        """Requires that a local file is the one that was looked at, before another package reads it.

        Raises:
            DatasetError: it is another file by now, or is gone.
        """
        self._require(plain_file(self.path))

    def open(self) -> Handle:
        """Opens the file; of a remote one the copy, which is fetched if there is none.

        Raises:
            DatasetError: it is another file by now, or is gone.
        """
        if self.storage is None:
            handle = Handle(open_for_reading(self.path, self.path))
        else:  # once it is open, the copy may be evicted
            with self.storage.fetch(self.path) as local:
                handle = Handle(open_for_reading(local.path, self.name), is_copy=True)
        self.require_open(handle)
        return handle

    def require_open(self, handle: Handle) -> None:
        """Requires that what is open is the file that was looked at.

        Raises:
            DatasetError: it was written to.
        """
        self._require(os.fstat(handle.descriptor))

    def read_from(self, handle: Handle, spans: Sequence[ByteSpan]) -> list[bytes]:
        """Reads parts that a file has, which is open.

        Raises:
            DatasetError: it was written to meanwhile, or cannot be read.
        """
        descriptor, pread = handle.descriptor, os.pread
        lengths = [length for _, length in spans]
        try:
            found = [pread(descriptor, length, offset) for offset, length in spans]
            if [*map(len, found)] != lengths:
                found = [read_part(descriptor, offset, length) for offset, length in spans]
        except OSError as error:
            raise unopened(self.name, "cannot be read", error) from error
        # Behind the reading: what was read is of the file as it was.
        self.require_open(handle)
        if [*map(len, found)] != lengths:
            raise DatasetError(self.name, "was cut while it was read", hint=REWRITE)
        return found

    def _require(self, now: os.stat_result) -> None:
        # A copy of a remote one is never written to.
        is_of_then = self.storage is not None or now.st_mtime_ns == self.changed_ns
        if now.st_size != self.size or not is_of_then:
            problem = f"is not the file that it was: it had {self.size} bytes, and was changed since"
            raise DatasetError(self.name, problem, f"{now.st_size} bytes", hint=CHANGED)


def looked_at(paths: Sequence[str], storage: RemoteAccess | None) -> tuple[Stored, ...]:
    """Looks at files, at several of them at the same time where one is remote.

    Args:
        paths: of the files, and URLs.
        storage: reads those that are remote.

    Raises:
        DatasetError: one is not there, or its size is not known.
    """
    if not any(map(is_remote, paths)):
        return tuple(map(Stored.of, paths))

    def look(number: int) -> Stored:
        return Stored.of(paths[number], storage)

    return tuple(all_in_threads(look, len(paths), ASKED_AT_A_TIME, "samplerkit-version"))


ASKED_AT_A_TIME = 16
"""Versions that are asked for at the same time."""

CHANGED = "make the dataset again if that was meant, and do not change its files while it is in use"


WantedBytes = tuple[int, int, Any]
"""The number of a file, the byte where the part begins, and the buffer that it is to fill."""


@final
class ByteFiles:
    """Reads parts of files, by `pread`, or by requests where a file is remote; nothing is mapped.

    A file that was written to since it was looked at is an error, whatever of it is read. This may be used by
    several threads, and travels to other processes without what is open.

    Args:
        files: as they were when they were looked at.
        storage: is asked for parts of remote files; None fetches these whole, into the cache of this machine.
    """

    def __init__(self, files: Sequence[Stored], storage: RemoteAccess | None) -> None:
        self._storage: Final = storage
        self.files: Final = files
        self._handles: Final = Handles(partial(_opened, files))

    def read(self, number: int, spans: Sequence[ByteSpan]) -> list[bytes]:
        """Reads parts of a file that is here; of a remote one the copy.

        Raises:
            DatasetError: the file was written to.
        """
        return self.files[number].read_from(self._handles.get(number), spans)

    def fill(self, parts: Iterable[WantedBytes]) -> None:
        """Reads parts straight into buffers; those of a file should stand together.

        Raises:
            DatasetError: a file was written to.
        """
        far: list[WantedBytes] = []
        by_ranges, files = self._storage is not None, self.files
        current, descriptor = -1, -1
        handle: Handle | None = None
        preadv = os.preadv
        for number, begin, buffer in parts:
            if number != current:
                if handle is not None:
                    files[current].require_open(handle)
                is_far = by_ranges and files[number].storage is not None
                handle, current = None if is_far else self._handles.get(number), number
                descriptor = -1 if handle is None else handle.descriptor
            if handle is None:
                far.append((number, begin, buffer))
                continue
            try:
                got = preadv(descriptor, (buffer,), begin)
            except OSError as error:
                raise unopened(files[number].name, f"cannot be read at byte {begin}", error) from error
            if got != buffer.nbytes:  # Linux reads at most 2 GiB by one call
                (data,) = files[number].read_from(handle, [(begin, buffer.nbytes)])
                memoryview(buffer).cast("B")[:] = data
        # Behind the reading: what was read is of the file as it was.
        if handle is not None:
            files[current].require_open(handle)
        if far and self._storage is not None:
            spans = [Span(files[number].path, begin, buffer.nbytes) for number, begin, buffer in far]
            for (_, _, buffer), data in zip(far, self._storage.read(spans), strict=True):
                memoryview(buffer).cast("B")[:] = data

    def close(self) -> None:
        """Lets go of what is open; it is opened again when it is needed."""
        self._handles.close()


def _opened(files: Sequence[Stored], number: int) -> Handle:
    """Opens a file; no method, for what is open would hold its dataset."""
    return files[number].open()
