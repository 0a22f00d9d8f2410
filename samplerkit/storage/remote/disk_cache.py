"""Whole files on a disk of this machine, shared by all processes that use the same folder."""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

from samplerkit.closing import Closing
from samplerkit.errors import DatasetError
from samplerkit.storage.atomic import is_the_file, unlock, user_cache_folder
from samplerkit.storage.opening import unwritable
from samplerkit.storage.remote.access import UNKNOWN_SIZE
from samplerkit.storage.remote.cache_entries import (
    FOLDER_LOCK,
    Checksum,
    Entry,
    Record,
    evict,
    evicted,
    held,
    in_order,
    is_intact,
    kept_in,
    locked,
)
from samplerkit.storage.remote.options import RemoteOptions
from samplerkit.storage.threads import TICK, Stop

_LOG = logging.getLogger(__name__)
_FIRST_PAUSE = 0.002
_WARN_SECONDS = 60.0
_HINT = "raise max_cache_bytes, or say cache=FOLDER on a larger disk"

_STEP = 64 << 20
"""Bytes for which room is made at a time where a size is not told; less in a small cache."""


@final
@dataclass(frozen=True)
class DiskCache:
    """Whole files on a disk of this machine, shared by all processes that use the same folder.

    A file is written by one process, under another name, while it holds the lock of its entry; when that
    process ends, however it does, so does the lock, and another one begins again. Who uses a file shares its
    lock. What was written has a checksum, which each process that opens it can rely on: see `is_intact`.

    What a file needs is counted under a short lock of the folder. What goes first is what a process that died
    has left, then versions of a file of which there is a newer one, then what was used least recently. Files
    in use never go, and those of others are never touched.

    Args:
        folder: of the cache; made when the first file comes.
        most: the bytes that it may hold; None for half of what is free, itself counted as free.
        patience: seconds to wait for files in use, when only they are left.
        stop: ends the waiting.
    """

    folder: Path
    most: int | None
    patience: float
    stop: Stop

    @classmethod
    def of(cls, options: RemoteOptions, stop: Stop) -> DiskCache:
        """Gives the cache that options tell of."""
        folder = user_cache_folder() / "remote" if options.cache is None else Path(options.cache)
        return cls(folder.absolute(), options.max_cache_bytes, options.timeout, stop)

    def get(self, entry: Entry, write: Callable[[PartFile], None]) -> tuple[LocalFile, bool]:
        """Gives a file, written if it is not there, or is not what was written.

        Args:
            entry: which.
            write: writes it.

        Returns:
            The file, pinned; and whether this call has written it.

        Raises:
            DatasetError: it does not fit, or the folder cannot be used; or as the writing raises.
            Stopped: it is not wanted any more.
        """
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise unwritable(self.folder, error) from error
        damaged: tuple[int, int] | None = None
        begun = warned = time.monotonic()
        pause = _FIRST_PAUSE
        while True:
            if damaged is None or damaged != _state(entry.file):  # another process may have made it again
                local, damaged = self._pinned(entry)
                if local is not None:
                    return local, False
                if damaged is not None:
                    _LOG.warning("%s: its copy in the cache is damaged, and is made again", entry.place)
            descriptor = locked(entry.lock, is_exclusive=True)
            if descriptor is not None:
                is_made = self._made(entry, descriptor, write)
                if self._is_shared_now(entry, descriptor):
                    return self._local(entry, descriptor), is_made
            now = time.monotonic()
            if damaged is not None and now - begun > self.patience:
                problem = "has a damaged copy in the cache, which somebody uses"
                hint = "end the processes that use it, and start again"
                raise DatasetError(entry.place, problem, str(entry.file), hint=hint)
            if now - warned > _WARN_SECONDS:
                warned = now
                _LOG.warning("%s: waits for another process for %.0f s", entry.place, now - begun)
            self.stop.sleep(pause)
            pause = min(TICK, 2 * pause)

    def find(self, entry: Entry) -> LocalFile | None:
        """Gives a file of the cache, pinned; None if it is missing, damaged, or being written or removed."""
        return self._pinned(entry)[0]

    def bound(self, kept: Iterable[Entry]) -> int:
        """Gives the bytes that the folder may hold, with these entries in it."""
        if self.most is not None:
            return self.most
        return (_free_on(self.folder) + sum(each.size for each in kept)) // 2

    def reserve(self, entry: Entry, descriptor: int, size: int) -> None:
        """Makes room for a file, and takes it on the disk, so that writing it finds none missing.

        Args:
            entry: of the file; its lock is held by the caller.
            descriptor: of its part, which has that size then, so that others count it.
            size: that it will have.

        Raises:
            DatasetError: it does not fit.
        """
        end = time.monotonic() + self.patience
        while True:
            with held(self.folder / FOLDER_LOCK, self.stop):
                kept = list(kept_in(self.folder))
                bound = self.bound(kept)
                others = in_order(each for each in kept if each != entry)
                used = evicted(others, size - bound)
                if used + size <= bound:
                    self._allocate(entry.place, descriptor, size, others)
                    return
            if size > bound or time.monotonic() > end:
                where = "max_cache_bytes" if self.most is not None else "half of what is free on its disk"
                taken = f"it may hold {bound} ({where})"
                if size <= bound:
                    taken = f"{used} of {bound} ({where}) are in use"
                problem = f"does not fit into the cache: {size} bytes, and {taken}"
                raise DatasetError(entry.place, problem, str(self.folder), hint=_HINT)
            self.stop.sleep(TICK)

    def _allocate(self, place: str, descriptor: int, size: int, others: Sequence[Entry]) -> None:
        """Takes the blocks of a file; while the disk, or the user's quota, is too full, others go."""
        going = iter(others)
        while True:
            try:
                if size:  # which lengthens it
                    os.posix_fallocate(descriptor, 0, size)
            except OSError as error:
                if error.errno not in {errno.ENOSPC, errno.EDQUOT}:
                    raise unwritable(self.folder, error) from error
                # Nobody says what is free in a quota.
                free = 0 if error.errno == errno.EDQUOT else _free_on(self.folder)
                reason = error.strerror
            else:
                return
            if not any(evict(each) for each in going):
                missing = max(1, size - free - 512 * os.fstat(descriptor).st_blocks)
                problem = (
                    f"does not fit on the disk of the cache ({reason}): {missing} of {size} bytes are missing"
                )
                hint = "free some space, lower max_cache_bytes, or say cache=FOLDER on a larger disk"
                raise DatasetError(place, problem, str(self.folder), hint=hint)

    def _pinned(self, entry: Entry) -> tuple[LocalFile | None, tuple[int, int] | None]:
        """Gives a file that is there and that nobody is at work on; or the state of one that is damaged."""
        if not entry.is_there:
            return None, None
        descriptor = locked(entry.lock, is_exclusive=False)
        if descriptor is None:
            return None, None
        damaged = _state(entry.file) if entry.is_there else None
        if damaged is not None and is_intact(entry.file, descriptor):
            return self._local(entry, descriptor), None
        unlock(descriptor)
        return None, damaged

    def _made(self, entry: Entry, descriptor: int, write: Callable[[PartFile], None]) -> bool:
        """Writes a file whose lock is held, unless it has come; lets go of the lock if that fails."""
        try:
            if entry.is_there and is_intact(entry.file, descriptor):
                return False
            entry.file.unlink(missing_ok=True)
            # Also to be read: where a filesystem takes no blocks, as NFS, the C library writes what is there.
            with open(entry.part, "w+b", 0, opener=_without_links) as file:  # Path.open takes none
                part = PartFile(entry, self, file.fileno())
                Record(name=entry.place).write(descriptor)  # on a full disk there is room for it only now
                write(part)
                part.finish(descriptor)
        except BaseException as error:
            entry.delete()
            unlock(descriptor)
            if isinstance(error, OSError):
                raise unwritable(self.folder, error) from error
            raise
        return True

    def _is_shared_now(self, entry: Entry, descriptor: int) -> bool:
        """Shares a lock that was held alone; lets go if another one came between and deleted the file."""
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
            is_pinned = is_the_file(descriptor, entry.lock) and entry.is_there
        except BlockingIOError:
            is_pinned = False
        if not is_pinned:
            unlock(descriptor)
        return is_pinned

    def _local(self, entry: Entry, descriptor: int) -> LocalFile:
        os.utime(descriptor)
        return LocalFile(entry.file, entry.file.stat().st_size, descriptor)


@final
class LocalFile(Closing):
    """A file in the cache that is in use: it is not evicted until this is closed, or is garbage.

    Args:
        path: where it lies; read it only, for it is shared.
        size: in bytes.
        descriptor: of its lock file, which is locked for sharing; this closes it.
    """

    def __init__(self, path: Path, size: int, descriptor: int) -> None:
        self.path = str(path)
        self.size = size
        self._descriptor: int | None = descriptor
        self._pid = os.getpid()

    def close(self) -> None:
        """Lets go of the file. It may be evicted from now on."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is None:
            return
        if self._pid == os.getpid():
            unlock(descriptor)
        else:  # the lock of the process that was forked
            os.close(descriptor)

    def __del__(self) -> None:
        if getattr(self, "_descriptor", None) is not None:
            self.close()


@final
class PartFile:
    """A file of the cache while it arrives, under another name; the caller holds the entry's lock.

    Args:
        entry: which.
        cache: that it comes into.
        descriptor: of the file, which the caller closes.
    """

    def __init__(self, entry: Entry, cache: DiskCache, descriptor: int) -> None:
        self._entry: Final = entry
        self._cache: Final = cache
        self._descriptor: Final = descriptor
        self.written = self._reserved = 0
        self._checksum = Checksum()
        if entry.size != UNKNOWN_SIZE:
            self._reserve(entry.size)

    def write(self, data: bytes | memoryview) -> None:
        """Adds what has arrived.

        Raises:
            DatasetError: the disk is full, also after files that are not in use were evicted.
        """
        if self.written + len(data) > self._reserved:
            step = min(_STEP, (self._cache.bound(kept_in(self._entry.folder)) - self.written) // 8)
            self._reserve(self.written + max(len(data), step))
        self._checksum.add(data)
        rest = memoryview(data)
        while rest:
            try:
                count = os.pwrite(self._descriptor, rest, self.written)
            except OSError as error:
                raise unwritable(self._entry.folder, error) from error
            self.written += count
            rest = rest[count:]

    def restart(self) -> None:
        """Forgets what has arrived."""
        self.written, self._checksum = 0, Checksum()

    def finish(self, lock: int) -> None:
        """Gives it its name. It may not be on the disk yet: after a loss of power `is_intact` looks at it.

        Args:
            lock: the descriptor of the lock file, which has the checksum before the file has its name.

        Raises:
            OSError: it cannot be written there.
        """
        os.ftruncate(self._descriptor, self.written)
        Record(self._checksum.value, name=self._entry.place).write(lock)
        # Who lists a folder in which a file gets another name may meet it under neither, and not count it.
        with held(self._cache.folder / FOLDER_LOCK, self._cache.stop):
            self._entry.part.rename(self._entry.file)

    def _reserve(self, size: int) -> None:
        self._cache.reserve(self._entry, self._descriptor, size)
        self._reserved = size


def _without_links(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW, 0o666)


def _state(path: Path) -> tuple[int, int] | None:
    """Gives what changes when a file is written to, or is another one; None if there is none."""
    try:
        about = path.lstat()
    except OSError:
        return None
    return about.st_ino, about.st_ctime_ns


def _free_on(folder: Path) -> int:
    about = os.statvfs(folder)
    return about.f_bavail * about.f_frsize
