"""How much the cache may hold, what has to go for what comes, and the file that comes."""

from __future__ import annotations

import errno
import os
import time
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

from samplerkit.errors import DatasetError
from samplerkit.storage.atomic import sync_folder, unlock
from samplerkit.storage.missing_file import unwritable
from samplerkit.storage.remote.attempt import UNKNOWN_SIZE
from samplerkit.storage.remote.cache_entries import (
    FOLDER_LOCK,
    Entry,
    Kept,
    Record,
    held,
    kept_in,
    locked,
)
from samplerkit.storage.threads import TICK, Stop

_HINT = "raise max_cache_bytes, or say cache=FOLDER on a larger disk"


@dataclass(frozen=True)
class DiskSpace:
    """The room of a folder, shared by all processes that use it: they count its files, under a short lock.

    What goes first is what a process that died has left, then versions of a file of which there is a newer
    one, then what was used least recently. Files in use never go, and those of others are never touched.

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

    def bound(self, kept: Iterable[Kept]) -> int:
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
                others = _in_order(each for each in kept if each.entry != entry)
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

    def _allocate(self, place: str, descriptor: int, size: int, others: Sequence[Kept]) -> None:
        """Takes the blocks of a file; while the disk, or the user's quota, is too full, others go."""
        going = iter(others)
        while True:
            try:
                _take_blocks(descriptor, size)
            except OSError as error:
                if error.errno not in {errno.ENOSPC, errno.EDQUOT}:
                    raise unwritable(self.folder, error) from error
                # Nobody says what is free in a quota.
                free = 0 if error.errno == errno.EDQUOT else _free_on(self.folder)
                reason = error.strerror
            else:
                return
            if not any(_evict(each.entry) for each in going):
                missing = max(1, size - free - 512 * os.fstat(descriptor).st_blocks)
                problem = (
                    f"does not fit on the disk of the cache ({reason}): {missing} of {size} bytes are missing"
                )
                hint = "free some space, lower max_cache_bytes, or say cache=FOLDER on a larger disk"
                raise DatasetError(place, problem, str(self.folder), hint=hint)


def evicted(others: Sequence[Kept], excess: int) -> int:
    """Evicts until no more than `-excess` bytes are left, if that can be.

    Args:
        others: entries, those that go first before the others.
        excess: the bytes that are to come, less those that there may be.

    Returns:
        The bytes that are left.
    """
    used = sum(each.size for each in others)
    for each in others:
        # What a dead process left goes in any case.
        is_wanted_away = used + excess > 0
        if (each.is_part or is_wanted_away) and _evict(each.entry, may_be_whole=is_wanted_away):
            used -= each.size
    return used


def _in_order(kept: Iterable[Kept]) -> list[Kept]:
    """Sorts by what goes first."""
    by_use = sorted(kept, key=lambda each: each.used)
    newest = {each.entry.address: each.entry.key for each in by_use if not each.is_part}
    return sorted(
        by_use,
        key=lambda each: (not each.is_part, newest.get(each.entry.address) == each.entry.key),
    )


def _evict(entry: Entry, *, may_be_whole: bool = True) -> bool:
    """Deletes an entry that nobody uses; returns whether it is gone.

    Args:
        entry: which.
        may_be_whole: whether it goes also if it has become a whole file meanwhile.
    """
    descriptor = locked(entry.lock, is_exclusive=True, may_make=False)
    if descriptor is None:
        return False
    try:
        if not may_be_whole and entry.file.exists():
            return False
        # An empty one is of a process that died before it wrote the marker, or the machine lost power then.
        is_ours = os.fstat(descriptor).st_size == 0 or Record.read(descriptor) is not None
        if is_ours:
            for path in (entry.file, entry.part, entry.lock):
                path.unlink(missing_ok=True)
        return is_ours
    finally:
        unlock(descriptor)


def _free_on(folder: Path) -> int:
    about = os.statvfs(folder)
    return about.f_bavail * about.f_frsize


def _take_blocks(descriptor: int, size: int) -> None:
    """Lengthens a file, with blocks on the disk for all of it."""
    if hasattr(os, "posix_fallocate"):
        if size:
            os.posix_fallocate(descriptor, 0, size)
        return
    for at in range(os.fstat(descriptor).st_size, size, _PIECE):  # macOS
        os.pwrite(descriptor, bytes(min(_PIECE, size - at)), at)


_PIECE = 1 << 20

_STEP = 64 << 20
"""Bytes for which room is made at a time where a size is not told; less in a small cache."""


@final
class PartFile:
    """A file of the cache while it arrives, under another name; the caller holds the entry's lock.

    Args:
        entry: which.
        room: of the cache.
    """

    def __init__(self, entry: Entry, room: DiskSpace) -> None:
        self._entry: Final = entry
        self._room: Final = room
        self._reserved = 0
        self.written = self._crc = 0
        flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            self._descriptor = os.open(entry.part, flags, 0o666)
        except OSError as error:
            raise unwritable(entry.folder, error) from error
        try:
            if entry.size != UNKNOWN_SIZE:
                self._reserve(entry.size)
        except BaseException:
            self.abandon()
            raise

    def write(self, data: bytes) -> None:
        """Adds what has arrived.

        Raises:
            DatasetError: the disk is full, also after files that are not in use were evicted.
        """
        if self.written + len(data) > self._reserved:
            step = min(_STEP, (self._room.bound(kept_in(self._entry.folder)) - self.written) // 8)
            self._reserve(self.written + max(len(data), step))
        self._crc = zlib.crc32(data, self._crc)
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
        self.written = self._crc = 0

    def finish(self, lock: int) -> None:
        """Waits until it is on the disk, then gives it its name, and waits until that is there, too.

        Args:
            lock: the descriptor of the entry's lock file, which says the CRC-32 before the file has its name.

        Raises:
            DatasetError: it cannot be written there.
        """
        try:
            os.ftruncate(self._descriptor, self.written)
            os.fsync(self._descriptor)
        except OSError as error:
            raise unwritable(self._entry.folder, error) from error
        Record(self._crc, name=self._entry.place).write(lock)
        self._close()
        # Who lists a folder in which a file gets another name may meet it under neither, and not count it.
        with held(self._room.folder / FOLDER_LOCK, self._room.stop):
            self._entry.part.rename(self._entry.file)
        sync_folder(self._entry.folder)

    def abandon(self) -> None:
        """Deletes it."""
        self._close()
        self._entry.part.unlink(missing_ok=True)

    def _reserve(self, size: int) -> None:
        self._room.reserve(self._entry, self._descriptor, size)
        self._reserved = size

    def _close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)
