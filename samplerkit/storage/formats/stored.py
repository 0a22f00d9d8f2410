"""A file, here or elsewhere, as it was when a dataset looked at it first: later it is that, or an error."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar, final

from samplerkit.errors import DatasetError, SamplerkitError
from samplerkit.storage.files.paths import opened
from samplerkit.storage.remote.attempt import UNKNOWN_SIZE
from samplerkit.storage.remote.storage import RemoteStorage, Span
from samplerkit.storage.urls import is_remote, shown

Result = TypeVar("Result")

ByteSpan = tuple[int, int]
"""A part of a file: offset and length."""


@final
@dataclass(frozen=True)
class Stored:
    """A file and what tells it from a later one of the same name.

    Nothing is held open: each reading opens the file, and holds it against what is known.

    Args:
        path: of the file, or its URL.
        size: in bytes.
        changed_ns: when it was written, in nanoseconds; 0 elsewhere, where versions are compared.
    """

    path: str
    size: int
    changed_ns: int

    @classmethod
    def of(cls, path: str, storage: RemoteStorage | None) -> Stored:
        """Looks at a file.

        Raises:
            DatasetError: it is not there, cannot be read, or does not tell its size.
        """
        if not is_remote(path):
            return _guarded(path, lambda: _looked_at(path))
        size = UNKNOWN_SIZE if storage is None else storage.version(path).size
        if size == UNKNOWN_SIZE:
            raise DatasetError(shown(path), "does not tell its size", mend="fetch it first")
        return cls(path, size, 0)

    @property
    def name(self) -> str:
        """What errors call it."""
        return shown(self.path) if is_remote(self.path) else self.path

    def read(self, spans: Sequence[ByteSpan], storage: RemoteStorage | None) -> list[bytes]:
        """Reads parts of the file.

        Args:
            spans: offset and length of each.
            storage: reads what lies elsewhere.

        Raises:
            DatasetError: it is another file by now, is gone, or has no such part.
        """
        for offset, length in spans:
            if offset < 0 or length < 0 or offset + length > self.size:
                problem = f"has {self.size} bytes, and says that a part of it lies at {offset}"
                raise DatasetError(self.name, problem, f"{length} bytes", mend=ANEW)
        if is_remote(self.path):
            if storage is None:
                raise DatasetError(self.name, "lies elsewhere, and nothing fetches it")
            return storage.read([Span(self.path, *span) for span in spans])
        return _guarded(self.path, lambda: self._read_here(spans))

    def require_same(self) -> None:
        """Sees whether a local file is the one that was looked at, for who reads it by a package of its own.

        Raises:
            DatasetError: it is another file by now, or is gone.
        """
        self._require(_guarded(self.path, lambda: _looked_at(self.path)))

    def _read_here(self, spans: Sequence[ByteSpan]) -> list[bytes]:
        with opened(self.path) as file:
            descriptor, pread = file.fileno(), os.pread
            self._require(_seen(self.path, os.fstat(descriptor)))
            found = [pread(descriptor, length, offset) for offset, length in spans]
        if [*map(len, found)] != [length for _, length in spans]:
            raise DatasetError(self.path, "was cut while it was read", mend=ANEW)
        return found

    def _require(self, now: Stored) -> None:
        if now != self:
            problem = f"is not the file that it was: it had {self.size} bytes, and was changed since"
            raise DatasetError(self.path, problem, f"{now.size} bytes", mend=AGAIN)


ANEW = "fetch or make the file anew"
AGAIN = "make the dataset anew if that was meant, and leave its files alone while it is in use"


def guarded(place: str, what: str, call: Callable[[], Result], mend: str = ANEW) -> Result:
    """Calls a package that parses; whatever it raises becomes an error that names the place.

    Args:
        place: the file, and where in it.
        what: is done, as in "cannot be read".
        call: the package.
        mend: what helps.

    Raises:
        DatasetError: it has failed.
    """
    try:
        return call()
    except (SamplerkitError, MemoryError):
        raise
    except Exception as error:
        told = " ".join(str(error).split())[:200]
        problem = f"cannot be {what} ({type(error).__name__}: {told})"
        raise DatasetError(place, problem, mend=mend) from error


def _looked_at(path: str) -> Stored:
    status = os.stat(path)  # noqa: PTH116  # Path's own is slow
    if not stat.S_ISREG(status.st_mode):
        raise DatasetError(path, "is no plain file", mend="give the files themselves")
    return _seen(path, status)


def _seen(path: str, status: os.stat_result) -> Stored:
    return Stored(path, status.st_size, status.st_mtime_ns)


def _guarded(path: str, call: Callable[[], Result]) -> Result:
    try:
        return call()
    except OSError as error:
        is_gone = isinstance(error, FileNotFoundError)
        mend = "put it there again, or leave it out of the dataset" if is_gone else ""
        raise DatasetError(path, f"cannot be read ({error.strerror})", mend=mend) from error
