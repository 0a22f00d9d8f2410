"""Archives open as plain tar files: unpacked if need be, and few at a time."""

from __future__ import annotations

import os
import resource
import threading
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import IO, Any, final

from samplerkit.errors import DatasetError
from samplerkit.storage.remote.attempt import UNKNOWN_SIZE, Version
from samplerkit.storage.remote.disk_cache import DiskCache, Wanted
from samplerkit.storage.remote.room import PartFile
from samplerkit.storage.remote.storage import LocalFile
from samplerkit.storage.tar.format.inflate import GzipError, TooLargeError, inflated
from samplerkit.storage.tar.format.members import Flaw
from samplerkit.storage.tar.index.archive import Archive, Cache, absolute, open_for_reading
from samplerkit.storage.threads import Stop

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


def open_plain(archive: Archive, unpacked_size: int | None, cache: Cache) -> Handle:
    """Opens the plain tar file of an archive, if it is still the one that was indexed."""
    if unpacked_size is None:
        return Handle(archive.open())
    copy = unpack(archive, cache)
    if isinstance(copy, Flaw):
        raise copy.error()
    # Once it is open, it may be evicted: else processes that read nothing now would keep the others waiting.
    with copy:
        handle = Handle(open_for_reading(copy.path, archive.url), is_copy=True)
    if copy.size != unpacked_size:
        raise archive.changed()
    return handle


def unpack(archive: Archive, cache: Cache) -> LocalFile | Flaw:
    """Unpacks a gzip archive into the cache of copies, once a machine; gzip's own CRC and length are checked.

    Returns:
        The plain tar file, in use until it is closed; or what is wrong with the archive.

    Raises:
        DatasetError: the copy does not fit, or is larger than it may be, or the cache cannot be written to;
            or the archive cannot be read.
    """
    most = cache.options.max_unpacked_bytes

    def write(part: PartFile) -> None:
        with os.fdopen(archive.open(), "rb") as source:
            for piece in inflated(partial(_read, source, archive.url), most):
                part.write(piece)

    version = Version(UNKNOWN_SIZE, f"{archive.size} {archive.version}")
    identity = f"unpacked {absolute(archive.url)}"
    wanted = Wanted(archive.url, identity, version, None, write)
    try:
        return DiskCache.of(cache.options, Stop()).get(wanted)[0]
    except GzipError as error:
        detail = f"{error}; the whole archive is in doubt"
        return Flaw(archive.url, error.offset, "damaged gzip", detail)
    except TooLargeError as error:
        why = "200 times its size, or 1 GiB" if most is None else "max_unpacked_bytes"
        problem = f"{error} ({why}), as an archive does that is made to fill disks"
        mend = "if you trust it, say remote={'max_unpacked_bytes': ...}, or store it unpacked"
        raise DatasetError(archive.url, problem, mend=mend) from error


def _read(source: IO[bytes], place: str, most: int) -> bytes:
    try:
        return source.read(most)
    except OSError as error:
        raise DatasetError(place, f"cannot be read ({error.strerror})") from error
