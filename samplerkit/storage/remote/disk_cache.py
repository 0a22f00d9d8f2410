"""`DiskCache`: whole files on a disk of this machine, shared by all processes that use the same folder."""

from __future__ import annotations

import errno
import logging
import os
import shutil
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final, final

from samplerkit.closing import Closing
from samplerkit.errors import DatasetError
from samplerkit.storage.atomic import try_lock, unlock, user_cache_folder
from samplerkit.storage.remote.cache_entries import (
    FOLDER_LOCK,
    Checksum,
    Entry,
    Record,
    cache_errors,
    entries_in,
    evict,
    evict_excess,
    eviction_order,
    exclusive_lock,
    is_intact,
)
from samplerkit.storage.remote.options import RemoteOptions
from samplerkit.storage.remote.version import UNKNOWN_SIZE
from samplerkit.storage.threads import TICK, Stop

_LOG = logging.getLogger(__name__)
_FIRST_PAUSE = 0.002
_WARN_SECONDS = 60.0
_HINT = "raise max_cache_bytes, or use cache=FOLDER on a larger disk"

_STEP = 64 << 20
"""Bytes that are reserved at a time if the size of a file is unknown; less in a small cache."""


@final
class DiskCache:
    """A cache of whole files on a disk of this machine, shared by all processes that use the same folder.

    A file is written by one process under a temporary name, while it holds the exclusive lock of the entry.
    If that process dies, the lock is released, and another process starts again. Processes that use a file
    hold a shared lock. Each file has a checksum, which is verified when it is opened: see `is_intact`.

    Space is reserved under a short lock of the folder. The order of eviction is: parts left by dead
    processes, versions of a file that has a newer version, and then the least recently used files. Files in
    use are never evicted, and other files in the folder are never touched.

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
        is_new = was_damaged = False
        started = warned = time.monotonic()
        pause = _FIRST_PAUSE
        with cache_errors(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            while True:
                local, is_damaged = self._pin(entry, is_verified=is_new)
                if local is not None:
                    return local, is_new
                if is_damaged and not was_damaged:
                    _LOG.warning("%s: its copy in the cache is damaged, and is made again", entry.place)
                was_damaged = is_damaged
                descriptor = try_lock(entry.lock, is_exclusive=True)
                if descriptor is not None:
                    is_new = self._write(entry, descriptor, write)
                    continue
                now = time.monotonic()
                if is_damaged and now - started > self._options.timeout:
                    problem = "has a damaged copy in the cache, which a process uses"
                    hint = "end the processes that use it, and start again"
                    raise DatasetError(entry.place, problem, str(entry.file), hint=hint)
                if now - warned > _WARN_SECONDS:
                    warned = now
                    _LOG.warning("%s: waits for another process for %.0f s", entry.place, now - started)
                self.stop.sleep(pause)
                pause = min(TICK, 2 * pause)

    def find(self, entry: Entry) -> LocalFile | None:
        """Returns a file that exists, pinned; None if it is missing, damaged, or being written or deleted."""
        with cache_errors(self.folder):
            return self._pin(entry)[0]

    def bound(self, entries: Iterable[Entry]) -> int:
        """Returns the size limit of the folder, given the entries in it."""
        if (limit := self._options.max_cache_bytes) is not None:
            return limit
        return (shutil.disk_usage(self.folder).free + sum(each.size for each in entries)) // 2

    def reserve(self, entry: Entry, descriptor: int, size: int) -> None:
        """Makes room for a file and allocates it on disk, so that writing cannot run out of space.

        Args:
            entry: the entry of the file; the caller must hold its lock.
            descriptor: the descriptor of its part, which gets this size, so that other processes count it.
            size: the size that the file will have.

        Raises:
            DatasetError: the file does not fit.
        """
        end = time.monotonic() + self._options.timeout
        while True:
            with exclusive_lock(self.folder / FOLDER_LOCK, self.stop):
                entries = list(entries_in(self.folder))
                bound = self.bound(entries)
                others = eviction_order(each for each in entries if each != entry)
                used = evict_excess(others, size - bound)
                if used + size <= bound:
                    self._allocate(entry.place, descriptor, size, others)
                    return
            if size > bound or time.monotonic() > end:
                is_given = self._options.max_cache_bytes is not None
                source = "max_cache_bytes" if is_given else "half of the free space on its disk"
                usage = f"it may hold {bound} ({source})"
                if size <= bound:
                    usage = f"{used} of {bound} ({source}) are in use"
                problem = f"does not fit into the cache: {size} bytes, and {usage}"
                raise DatasetError(entry.place, problem, str(self.folder), hint=_HINT)
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
                if any(evict(each) for each in candidates):
                    continue
                # The free space of a quota is unknown.
                free = 0 if error.errno == errno.EDQUOT else shutil.disk_usage(self.folder).free
                missing = max(1, size - free - 512 * os.fstat(descriptor).st_blocks)
                reason = f"does not fit on the disk of the cache ({error.strerror})"
                problem = f"{reason}: {missing} of {size} bytes are missing"
                hint = "free some space, lower max_cache_bytes, or use cache=FOLDER on a larger disk"
                raise DatasetError(place, problem, str(self.folder), hint=hint) from error
            else:
                return

    def _pin(self, entry: Entry, *, is_verified: bool = False) -> tuple[LocalFile | None, bool]:
        """Pins a file that exists and is not being written; returns None if it cannot, and if it is damaged.

        Args:
            entry: the entry of the file.
            is_verified: whether this process has just written the file.
        """
        descriptor = try_lock(entry.lock, is_exclusive=False) if entry.exists else None
        if descriptor is None:
            return None, False
        exists = entry.exists
        if exists and (is_verified or is_intact(entry.file, descriptor)):
            os.utime(descriptor)
            return LocalFile(entry.file, entry.file.stat().st_size, descriptor), False
        unlock(descriptor)
        return None, exists

    def _write(self, entry: Entry, descriptor: int, write: Callable[[PartFile], None]) -> bool:
        """Writes a file, unless another process has, under the exclusive lock, which is then released.

        The lock is not made shared, as Linux releases it for that too: `get` pins the file like any other.
        """
        try:
            if entry.exists and is_intact(entry.file, descriptor):
                return False
            entry.file.unlink(missing_ok=True)
            # Also readable: on filesystems without fallocate, such as NFS, the C library reads the file.
            with open(entry.part, "w+b", 0, opener=_without_links) as file:  # Path.open takes none
                part = PartFile(entry, self, file.fileno())
                Record(name=entry.place).write(descriptor)  # after room was made, as the disk may be full
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


@final
class PartFile:
    """A file of the cache that is being written, under a temporary name; the caller holds the entry's lock.

    Args:
        entry: the entry of the file.
        cache: the cache.
        descriptor: the descriptor of the file, which the caller closes.
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
        """Appends data.

        Raises:
            DatasetError: the disk is full, even after files that are not in use were evicted.
        """
        # A client would take an OSError for a fault of its connection.
        with cache_errors(self._cache.folder):
            if self.written + len(data) > self._reserved:
                step = min(_STEP, (self._cache.bound(entries_in(self._cache.folder)) - self.written) // 8)
                self._reserve(self.written + max(len(data), step))
            self._checksum.add(data)
            rest = memoryview(data)
            while rest:
                count = os.pwrite(self._descriptor, rest, self.written)
                self.written += count
                rest = rest[count:]

    def restart(self) -> None:
        """Discards all data written so far."""
        self.written, self._checksum = 0, Checksum()

    def finish(self, lock: int) -> None:
        """Renames the file to its final name, without fsync: after a power failure `is_intact` checks it.

        Args:
            lock: the descriptor of the lock file, to which the checksum is written before.

        Raises:
            OSError: the file cannot be renamed.
        """
        os.ftruncate(self._descriptor, self.written)
        Record(self._checksum.value, name=self._entry.place).write(lock)
        # A process that lists the folder during a rename may see neither name, and not count the file.
        with exclusive_lock(self._cache.folder / FOLDER_LOCK, self._cache.stop):
            self._entry.part.rename(self._entry.file)

    def _reserve(self, size: int) -> None:
        self._cache.reserve(self._entry, self._descriptor, size)
        self._reserved = size


def _without_links(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW, 0o666)
