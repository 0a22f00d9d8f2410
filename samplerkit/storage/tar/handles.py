"""Open archives: few at a time, the least recently used closed first."""

from __future__ import annotations

import os
import resource
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, final

MOST = 256
"""Open archives of a process, unless said otherwise and if the system allows as many."""


@final
class Handle:
    """An open file, closed when nobody holds it any more: a thread may still read what was dropped.

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

    def __del__(self) -> None:
        os.close(self.descriptor)


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
        """Gives the open file of a number; hold the handle while reading.

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
