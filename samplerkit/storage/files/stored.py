"""A file, local or remote, as it was when a dataset looked at it first: later it is that, or an error."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar, final

from samplerkit.errors import DatasetError
from samplerkit.storage.files.handles import Handle, open_for_reading
from samplerkit.storage.missing_file import REWRITE, unopened
from samplerkit.storage.remote.attempt import UNKNOWN_SIZE
from samplerkit.storage.remote.storage import RemoteStorage, Span
from samplerkit.storage.urls import is_remote, shown

Result = TypeVar("Result")

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
    """

    path: str
    size: int
    changed_ns: int

    @classmethod
    def of(cls, path: str, storage: RemoteStorage | None) -> Stored:
        """Looks at a file.

        Raises:
            DatasetError: it is not there, cannot be read, or its size is not known.
        """
        if not is_remote(path):
            return _guarded(path, lambda: _looked_at(path))
        size = UNKNOWN_SIZE if storage is None else storage.version(path).size
        if size == UNKNOWN_SIZE:
            raise DatasetError(shown(path), "does not tell its size", hint="fetch it first")
        return cls(path, size, 0)

    @property
    def name(self) -> str:
        """What errors call it."""
        return shown(self.path) if is_remote(self.path) else self.path

    def version(self, storage: RemoteStorage | None) -> str:
        """What changes with the content: the time of a local file, the tag of a remote one; "" if unknown."""
        if not is_remote(self.path):
            return str(self.changed_ns)
        return "" if storage is None else storage.version(self.path).tag

    def read(self, spans: Sequence[ByteSpan], storage: RemoteStorage | None) -> list[bytes]:
        """Reads parts of the file.

        Args:
            spans: offset and length of each.
            storage: reads remote files.

        Raises:
            DatasetError: it is another file by now, is gone, or has no such part.
        """
        self.require_parts(spans)
        if is_remote(self.path):
            if storage is None:
                raise DatasetError(self.name, "is remote, and nothing fetches it")
            return storage.read([Span(self.path, *span) for span in spans])
        return self.read_from(self.open(), spans)

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
        self._require(_guarded(self.path, lambda: _looked_at(self.path)))

    def open(self) -> Handle:
        """Opens a local file.

        Raises:
            DatasetError: it is another file by now, or is gone.
        """
        handle = Handle(open_for_reading(self.path, self.path))
        self._require(_seen(self.path, os.fstat(handle.descriptor)))
        return handle

    def read_from(self, handle: Handle, spans: Sequence[ByteSpan]) -> list[bytes]:
        """Reads parts that a local file has, which is open.

        Raises:
            DatasetError: it was written to meanwhile, or cannot be read.
        """
        descriptor, pread = handle.descriptor, os.pread
        try:
            found = [pread(descriptor, length, offset) for offset, length in spans]
        except OSError as error:
            raise unopened(self.path, "cannot be read", error) from error
        # Behind the reading: what was read is of the file as it was.
        self._require(_seen(self.path, os.fstat(descriptor)))
        if [*map(len, found)] != [length for _, length in spans]:
            raise DatasetError(self.path, "was cut while it was read", hint=REWRITE)
        return found

    def _require(self, now: Stored) -> None:
        if now != self:
            problem = f"is not the file that it was: it had {self.size} bytes, and was changed since"
            raise DatasetError(self.path, problem, f"{now.size} bytes", hint=CHANGED)


CHANGED = "make the dataset again if that was meant, and do not change its files while it is in use"


def _looked_at(path: str) -> Stored:
    status = os.stat(path)  # noqa: PTH116  # Path's own is slow
    if not stat.S_ISREG(status.st_mode):
        raise DatasetError(path, "is no plain file", hint="give the files themselves")
    return _seen(path, status)


def _seen(path: str, status: os.stat_result) -> Stored:
    return Stored(path, status.st_size, status.st_mtime_ns)


def _guarded(path: str, call: Callable[[], Result]) -> Result:
    try:
        return call()
    except OSError as error:
        raise unopened(path, "cannot be read", error) from error
