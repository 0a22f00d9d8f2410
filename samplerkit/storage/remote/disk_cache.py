"""`DiskCache`: whole files on a disk of this machine, shared by all processes that use the same folder."""

from __future__ import annotations

import errno
import os
import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from io import FileIO
from pathlib import Path
from typing import Final, final

from samplerkit.closing import Closing
from samplerkit.errors import DatasetError
from samplerkit.storage.atomic import try_lock, unlock, user_cache_folder
from samplerkit.storage.remote.access import UNKNOWN_SIZE
from samplerkit.storage.remote.cache_entries import (
    FOLDER_LOCK,
    PAUSE,
    Entry,
    cache_errors,
    checksum_of,
    entries_in,
    exclusive_lock,
    state_of,
    write_lock,
)
from samplerkit.storage.remote.options import RemoteOptions
from samplerkit.storage.threads import TICK, Stop

_STEP = 64 << 20
"""The most bytes that are reserved in advance if the size of a file is unknown."""

_TURN_LOCK = "samplerkit-turn.lock"


class _NoRoomError(Exception):
    """A file that grows does not fit now: it is dropped, and written again when it may wait for room."""


class DiskCache:
    """A cache of whole files on a disk of this machine, shared by all processes that use the same folder.

    A file is written by one process under a temporary name, while it holds the exclusive lock of the entry.
    If that process dies, the lock is released, and another process starts again. Processes that use a file
    hold a shared lock. Each file has a checksum, which is verified when it is opened: see `Entry.is_intact`.

    Space is reserved under a short lock of the folder. Parts left by dead processes are evicted first, then
    the least recently used files. Files in use are never evicted, and other files in the folder are never
    touched.

    Args:
        options: the folder, created for the first file; the most bytes of the cache, by default half of the
            free space, where cached files count as free; and the timeout: seconds to wait for files in use,
            if nothing else can be evicted.
        stop: ends the waiting.

    Attributes:
        folder: the folder.
        stop: ends the waiting.
    """

    def __init__(self, options: RemoteOptions, stop: Stop) -> None:
        folder = user_cache_folder() / "remote" if options.cache is None else Path(options.cache)
        self.folder: Final = folder.absolute()
        self.stop: Final = stop
        self._options: Final = options

    def get(self, entry: Entry, write: Callable[[PartFile], None]) -> tuple[LocalFile, bool]:
        """Returns a file; writes it first if it does not exist or is damaged.

        Args:
            entry: the entry of the file.
            write: writes the file.

        Returns:
            The file, which is not evicted until it is closed; and whether this call has written it.

        Raises:
            DatasetError: the file does not fit, or the folder cannot be used; or as raised by `write`.
            Stopped: `stop` was set.
        """
        is_new, waits = False, entry.size != UNKNOWN_SIZE
        with cache_errors(self.folder), ExitStack() as turn:
            self.folder.mkdir(parents=True, exist_ok=True)
            while (local := self._pin(entry)) is None:
                descriptor = try_lock(entry.lock, is_exclusive=True)
                if descriptor is None:
                    self.stop.sleep(PAUSE)
                    continue
                try:
                    is_new = self._write(entry, descriptor, write, waits=waits)
                except _NoRoomError:
                    # Files that grow would wait for the room of one another for ever, so one at a time waits.
                    turn.enter_context(exclusive_lock(self.folder / _TURN_LOCK, self.stop))
                    waits = True
        return local, is_new

    def find(self, entry: Entry) -> LocalFile | None:
        """Returns a file that exists, pinned; None if it is missing, damaged, or being written or deleted."""
        with cache_errors(self.folder):
            return self._pin(entry)

    def reserve(self, entry: Entry, descriptor: int, size: int, extra: int, *, waits: bool) -> int:
        """Makes room for a file and allocates it on disk, so that writing cannot run out of space.

        Args:
            entry: the entry of the file; the caller must hold its lock.
            descriptor: the descriptor of its part, which gets this size, so that other processes count it.
            size: the size that the file will have.
            extra: further bytes to reserve, as far as they are free.
            waits: whether to wait for files that are in use.

        Returns:
            The reserved bytes.

        Raises:
            DatasetError: the file does not fit.
            _NoRoomError: it does not fit now, and `waits` is false.
        """
        end = time.monotonic() + self._options.timeout
        while True:
            with exclusive_lock(self.folder / FOLDER_LOCK, self.stop):
                entries = list(entries_in(self.folder))
                limit = self._options.max_cache_bytes
                if limit is None:
                    free = shutil.disk_usage(self.folder).free
                    limit = (free + sum(each.size for each in entries)) // 2
                others = [each for each in entries if each != entry]
                others.sort(key=lambda each: (not each.is_part, each.used))
                used = sum(each.size for each in others)
                for each in others:
                    if (each.is_part or used + size > limit) and each.evict():
                        used -= each.size
                if used + size <= limit:
                    room = min(size + extra, limit - used)
                    self._allocate(entry.place, descriptor, room, others)
                    return room
            if size <= limit and not waits:
                raise _NoRoomError
            if size > limit or time.monotonic() > end:
                problem = f"does not fit into the cache: {size} bytes, and {used} of {limit} are in use"
                hint = "raise max_cache_bytes, by default half of the free space, or use cache=FOLDER"
                raise DatasetError(entry.place, problem, str(self.folder), hint=hint)
            self.stop.sleep(TICK)

    def _allocate(self, place: str, descriptor: int, size: int, others: Sequence[Entry]) -> None:
        """Allocates the blocks of a file; evicts others as long as the disk or the user's quota is full."""
        candidates = iter(others)
        while size:
            try:
                os.posix_fallocate(descriptor, 0, size)  # also extends the file
            except OSError as error:
                if error.errno not in {errno.ENOSPC, errno.EDQUOT}:
                    raise
                if any(each.evict() for each in candidates):
                    continue
                problem = f"does not fit on the disk of the cache ({error.strerror}): {size} bytes"
                hint = "free some space, lower max_cache_bytes, or use cache=FOLDER on a larger disk"
                raise DatasetError(place, problem, str(self.folder), hint=hint) from error
            else:
                return

    def _pin(self, entry: Entry) -> LocalFile | None:
        """Pins a file that exists and is not being written; discards a damaged one."""
        descriptor = try_lock(entry.lock, is_exclusive=False) if entry.exists else None
        if descriptor is None:
            return None
        # Another process may discard a damaged file at any time.
        with ExitStack() as stack, suppress(FileNotFoundError):
            stack.callback(unlock, descriptor)
            if entry.exists and entry.is_intact(descriptor):
                os.utime(descriptor)
                local = LocalFile(entry.file, entry.file.stat().st_size, descriptor)
                stack.pop_all()
                return local
            entry.discard(descriptor, self.stop)
        return None

    def _write(
        self, entry: Entry, descriptor: int, write: Callable[[PartFile], None], *, waits: bool
    ) -> bool:
        """Writes a file, unless another process has, under the exclusive lock, which is then released.

        The lock is not made shared, as Linux releases it for that too: `get` pins the file like any other.
        """
        try:
            if entry.exists and entry.is_intact(descriptor):
                return False
            entry.file.unlink(missing_ok=True)
            entry.part.unlink(missing_ok=True)
            # Also readable: on filesystems without fallocate, such as NFS, the C library reads the file.
            with entry.part.open("x+b", buffering=0) as file:
                part = PartFile(entry, self, file, waits=waits)
                os.pwrite(descriptor, b" ", 0)  # the disk may be full later, and the checksum needs a block
                write(part)
                part.finish(descriptor)
                return True
        except BaseException:
            entry.delete()
            raise
        finally:
            unlock(descriptor)


@final
class LocalFile(Closing):
    """A file in the cache that is not evicted until this object is closed or garbage collected.

    Args:
        path: its path; only for reading, since the file is shared.
        size: its size in bytes.
        descriptor: the descriptor of its lock file, with a shared lock; this object closes it.
    """

    def __init__(self, path: Path, size: int, descriptor: int) -> None:
        self.path = str(path)
        self.size = size
        self._descriptor: int | None = descriptor
        self._pid = os.getpid()

    def close(self) -> None:
        """Releases the file, which may be evicted from now on."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is None:
            return
        if self._pid == os.getpid():
            unlock(descriptor)
        else:  # in a forked child: the lock belongs to the parent
            os.close(descriptor)

    def __del__(self) -> None:
        self.close()


class PartFile:
    """A file of the cache that is being written, under a temporary name; the caller holds the entry's lock.

    Args:
        entry: the entry of the file.
        cache: the cache.
        file: the file, which the caller closes.
        waits: whether to wait for room.
    """

    def __init__(self, entry: Entry, cache: DiskCache, file: FileIO, *, waits: bool) -> None:
        self._entry: Final = entry
        self._cache: Final = cache
        self._file: Final = file
        self._waits: Final = waits
        self.written = self._reserved = 0
        if entry.size != UNKNOWN_SIZE:
            self._reserve(entry.size)

    def write(self, data: bytes | memoryview) -> None:
        """Appends data.

        Raises:
            DatasetError: the disk is full, even after files that are not in use were evicted.
        """
        # A client would take an OSError for a fault of its connection.
        with cache_errors(self._cache.folder):
            if self.written + len(data) > self._reserved:
                self._reserve(self.written + len(data), min(_STEP, self.written // 8))
            rest = memoryview(data)
            while rest:
                count = self._file.write(rest)
                self.written += count
                rest = rest[count:]

    def restart(self) -> None:
        """Discards all data written so far."""
        self.written = self._file.seek(0)

    def finish(self, lock: int) -> None:
        """Renames the file to its final name, without fsync: `Entry.is_intact` notices a power failure.

        Args:
            lock: the descriptor of the lock file, to which the checksum is written.

        Raises:
            OSError: the file cannot be renamed.
        """
        self._file.truncate(self.written)
        checksum = checksum_of(self._file)
        # A process that lists the folder during a rename may see neither name, and not count the file.
        with exclusive_lock(self._cache.folder / FOLDER_LOCK, self._cache.stop):
            self._entry.part.rename(self._entry.file)
        write_lock(lock, checksum, state_of(self._file))

    def _reserve(self, size: int, extra: int = 0) -> None:
        descriptor = self._file.fileno()
        self._reserved = self._cache.reserve(self._entry, descriptor, size, extra, waits=self._waits)
