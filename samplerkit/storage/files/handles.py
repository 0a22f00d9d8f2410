"""Files that a process holds open, and how one is opened."""

from __future__ import annotations

import os
import resource
import stat
import threading
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any, final

from samplerkit.storage.missing_file import AbsentError, unopened, unwritable

MOST = 256
"""Open files of a dataset in a process, unless said otherwise and if the system allows as many."""


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


def read_part(descriptor: int, offset: int, length: int) -> bytes:
    """Reads a part of an open file; less of it where the file ends before."""
    data = os.pread(descriptor, length, offset)
    if len(data) == length:
        return data
    pieces, have = [data], len(data)  # Linux reads at most 2 GiB by one call
    while have < length and pieces[-1]:
        pieces.append(os.pread(descriptor, length - have, offset + have))
        have += len(pieces[-1])
    return b"".join(pieces)


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


def plain_file(path: str, name: str | None = None) -> os.stat_result:
    """Looks at a file.

    Args:
        path: where it is.
        name: what errors call it; None for the path.

    Raises:
        AbsentError: it is not there, may not be read, or is no plain file.
        DatasetError: it cannot be looked at.
    """
    try:
        status = os.stat(path)  # noqa: PTH116  # Path's own is slow
    except OSError as error:
        raise unopened(name or path, "cannot be read", error) from error
    if not stat.S_ISREG(status.st_mode):
        raise AbsentError(name or path, "is no plain file", hint="give the files themselves")
    return status
