"""One archive as it was when the dataset was made, and the files that a process holds open."""

from __future__ import annotations

import os
import resource
import stat
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from samplerkit.errors import DatasetError
from samplerkit.storage.missing_file import AbsentError, unopened
from samplerkit.storage.remote.attempt import Version
from samplerkit.storage.remote.cache_entries import unwritable
from samplerkit.storage.urls import shown

INDEX_SUFFIX = ".skidx"
"""An index beside a shard has its name and this."""


GZIP = b"\x1f\x8b"
OTHERS = {b"BZh": "bzip2", b"\xfd7zXZ": "xz", b"\x28\xb5\x2f\xfd": "zstandard"}
"""Compressions that are distinguished from damage by their first bytes."""


@dataclass(frozen=True)
class Archive:
    """An archive as it was when the dataset was made.

    Args:
        url: the name that the user gave; of a remote archive, without its query and credentials.
        size: bytes.
        mtime_ns: when it was last written, in nanoseconds; of a remote archive, when its copy was.
        copy: where the copy of a remote archive lies; None for a local one, and while there is no copy.
        tag: of a remote archive, what changes with its content; else None.
    """

    url: str
    size: int
    mtime_ns: int
    copy: str | None = None
    tag: str | None = None

    @classmethod
    def of(cls, url: str, copy: str | None = None, tag: str | None = None) -> Archive:
        """Looks at a file.

        Raises:
            AbsentError: it is not there, may not be read, or is no plain file.
            DatasetError: it cannot be looked at.
        """
        try:
            status = Path(copy or url).stat()
        except OSError as error:
            raise unopened(url, "cannot be read", error) from error
        if not stat.S_ISREG(status.st_mode):
            raise AbsentError(url, "is no plain file", hint="give the files themselves")
        return cls(url, status.st_size, status.st_mtime_ns, copy, tag)

    @classmethod
    def remote(cls, url: str, version: Version) -> Archive:
        """Takes a remote file as it is, by the version that the server reports."""
        return cls(shown(url), version.size, 0, None, version.tag)

    @property
    def is_remote(self) -> bool:
        """Whether it is remote."""
        return self.tag is not None

    @property
    def version(self) -> int | str:
        """What changes when it is written: of a local archive the time, of a remote one its tag."""
        return self.mtime_ns if self.tag is None else self.tag

    def open(self) -> int:
        """Opens the archive, if it is still the one that it was.

        Returns:
            A file descriptor.

        Raises:
            DatasetError: it is gone, or was written since.
        """
        descriptor = open_for_reading(self.copy or self.url, self.url)
        status = os.fstat(descriptor)
        if not self.is_same(status):
            os.close(descriptor)
            raise self.changed()
        return descriptor

    def is_same(self, status: os.stat_result) -> bool:
        """Whether an open file is still the one that it was; a copy of a remote one is never written to."""
        return status.st_size == self.size and (self.is_remote or status.st_mtime_ns == self.mtime_ns)

    def changed(self) -> DatasetError:
        """Returns the error for an archive that was written since its index was made."""
        return DatasetError(self.url, "was changed while it was in use", hint="make the dataset again")


def open_for_reading(path: str, shown: str) -> int:
    """Opens a file.

    Raises:
        AbsentError: it is not there, or may not be read; `shown` is its name there.
        DatasetError: it cannot be opened, or is a copy, and the cache was emptied.
    """
    try:
        # Without waiting: a pipe of its name may have no writer.
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        if path != shown and isinstance(error, FileNotFoundError):
            # The copy is gone and not the archive: nobody is to leave its samples out.
            raise unwritable(Path(path).parent, error) from error
        raise unopened(shown, "cannot be opened", error) from error


def is_gzip(descriptor: int, archive: Archive) -> bool:
    """Whether an archive is compressed by gzip.

    Raises:
        DatasetError: it is compressed in another way.
    """
    start = os.pread(descriptor, 8, 0)
    for magic, name in OTHERS.items():
        if start.startswith(magic):
            hint = "unpack it, or pack it with gzip"
            raise DatasetError(archive.url, f"is compressed by {name}, which is not supported", hint=hint)
    return start.startswith(GZIP)


MOST = 256
"""Open archives of a process, unless said otherwise and if the system allows as many."""


@final
class Handle:
    """An open file, closed when it is no longer held: a thread may still read what was dropped.

    Args:
        descriptor: the file descriptor.
        is_copy: whether it is of a copy in the cache, which may be evicted meanwhile.
    """

    __slots__ = ("_is_copy", "descriptor")

    def __init__(self, descriptor: int, *, is_copy: bool = False) -> None:
        self.descriptor = descriptor
        self._is_copy = is_copy

    @property
    def is_evicted(self) -> bool:
        """Whether it holds room on the disk of a copy that is not in the cache any more."""
        return self._is_copy and os.fstat(self.descriptor).st_nlink == 0

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        # The interpreter's end may clear this module before it lets go of the last files.
        close(self.descriptor)


@final
class Handles:
    """Opens files by number, and keeps at most so many open.

    It can be used by several threads, and is copied to other processes empty. A forked process may use the
    descriptors that it inherits, for reading at a given place does not move them.

    Args:
        open_file: opens the file of a number.
        most: how many stay open; None for 256, or a quarter of what the system allows if that is less.
    """

    def __init__(self, open_file: Callable[[int], Handle], most: int | None = None) -> None:
        self._open_file = open_file
        self._most = most
        self._limit = most
        self._held: OrderedDict[int, Handle] = OrderedDict()
        self._lock = threading.Lock()
        self._process = os.getpid()

    def get(self, number: int) -> Handle:
        """Returns the open file of a number; hold the handle while reading.

        Raises:
            DatasetError: the file cannot be opened, or was changed.
        """
        if self._process != os.getpid():
            # Another thread of the parent may have held the lock at the fork.
            self._lock, self._process = threading.Lock(), os.getpid()
        with self._lock:
            handle = self._held.get(number)
            if handle is not None:
                self._held.move_to_end(number)
                return handle
            limit = self._limit or self._allowed()
            while len(self._held) >= limit:
                self._held.popitem(last=False)
            for other in [other for other, held in self._held.items() if held.is_evicted]:
                del self._held[other]
            handle = self._held[number] = self._open_file(number)
            return handle

    def close(self) -> None:
        """Drops all handles."""
        self._held = OrderedDict()

    def __len__(self) -> int:
        return len(self._held)

    def __reduce__(self) -> tuple[Any, ...]:
        return Handles, (self._open_file, self._most)

    def _allowed(self) -> int:
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._limit = MOST if soft == resource.RLIM_INFINITY else max(1, min(MOST, soft // 4))
        return self._limit
