"""How much the cache may hold, what has to go for what comes, and the file that comes."""

from __future__ import annotations

import errno
import os
import time
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

from samplerkit.errors import DatasetError
from samplerkit.storage.atomic import sync_folder
from samplerkit.storage.locks import unlock
from samplerkit.storage.remote.attempt import UNKNOWN_SIZE
from samplerkit.storage.remote.cache_entries import (
    FOLDER_LOCK,
    Entry,
    Kept,
    Record,
    held,
    kept_in,
    locked,
    unwritable,
)
from samplerkit.storage.threads import TICK, Stop


@final
@dataclass(frozen=True)
class DiskSpace:
    """The room of a folder, shared by all processes that use it: they count its files, under a short lock.

    What goes first is what a process that died has left, then versions of a file of which there is a newer
    one, then what was used least recently. Files in use never go, and those of others are never touched.

    Args:
        place: what errors name: for whose file there is to be room, without what is private.
        folder: of the cache.
        most: the bytes that it may hold; None for half of what is free, itself counted as free.
        patience: seconds to wait for files in use, when only they are left.
        stop: ends the waiting.
    """

    place: str
    folder: Path
    most: int | None
    patience: float
    stop: Stop

    @property
    def bound(self) -> int:
        """The bytes that the folder may hold now."""
        return self._bound(kept_in(self.folder))

    def reserve(self, entry: Entry, descriptor: int, size: int) -> None:
        """Makes room for a file, and gives its part that size, so that others count it.

        Args:
            entry: of the file; its lock is held by the caller.
            descriptor: of its part.
            size: that it will have.

        Raises:
            DatasetError: it does not fit.
        """
        end = time.monotonic() + self.patience
        while True:
            with held(self.folder / FOLDER_LOCK, self.stop):
                kept = list(kept_in(self.folder))
                bound = self._bound(kept)
                others = [each for each in kept if each.entry != entry]
                used = self._evicted(others, size - bound)
                if used + size <= bound:
                    os.ftruncate(descriptor, size)
                    return
            if size > bound or time.monotonic() > end:
                raise self._does_not_fit(size, bound, used)
            self.stop.sleep(TICK)

    def name(self, entry: Entry) -> None:
        """Gives the part of an entry, which is whole, its name.

        That is done under the lock of the folder: who lists a folder in which a file gets another name may
        meet it under neither, and would not count it.
        """
        with held(self.folder / FOLDER_LOCK, self.stop):
            entry.part.rename(entry.file)

    def free(self, entry: Entry, size: int, *, is_quota: bool) -> int:
        """Evicts until so much is free on the disk, or in the user's quota; gives how many bytes are missing.

        Args:
            entry: that is being written, and stays.
            size: that is to be free.
            is_quota: the user's quota is used up, and nobody tells what is free in it.
        """
        with held(self.folder / FOLDER_LOCK, self.stop):
            missing = size if is_quota else size - _free_on(self.folder)
            for each in _in_order(each for each in kept_in(self.folder) if each.entry != entry):
                if missing <= 0:
                    break
                if _evict(each.entry):
                    missing -= each.on_disk
            return max(0, missing)

    def _bound(self, kept: Iterable[Kept]) -> int:
        if self.most is not None:
            return self.most
        return (_free_on(self.folder) + sum(each.on_disk for each in kept)) // 2

    def _evicted(self, others: list[Kept], excess: int) -> int:
        """Evicts until no more than `-excess` bytes are left, if that can be; gives how many are."""
        used = sum(each.size for each in others)
        for each in _in_order(others):
            # What a dead process left goes in any case.
            is_wanted_away = used + excess > 0
            if (each.is_part or is_wanted_away) and _evict(each.entry, may_be_whole=is_wanted_away):
                used -= each.size
        return used

    def _does_not_fit(self, size: int, bound: int, used: int) -> DatasetError:
        where = "max_cache_bytes" if self.most is not None else "half of what is free on its disk"
        if size > bound:
            problem = f"does not fit into the cache: {size} bytes, and it may hold {bound} ({where})"
        else:
            problem = f"does not fit into the cache: {size} bytes, and {used} of {bound} ({where}) are in use"
        hint = "raise max_cache_bytes, or say cache=FOLDER on a larger disk"
        return DatasetError(self.place, problem, str(self.folder), hint=hint)


def _in_order(kept: Iterable[Kept]) -> list[Kept]:
    """Sorts by what goes first."""
    by_use = sorted(kept, key=lambda each: each.used)
    newest = {each.entry.address: each.entry.key for each in by_use if not each.is_part}
    return sorted(
        by_use,
        key=lambda each: (not each.is_part, newest.get(each.entry.address) == each.entry.key),
    )


def _evict(entry: Entry, *, may_be_whole: bool = True) -> bool:
    """Deletes an entry that nobody uses; tells whether it is gone.

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
            entry.file.unlink(missing_ok=True)
            entry.part.unlink(missing_ok=True)
            entry.lock.unlink(missing_ok=True)
        return is_ours
    finally:
        unlock(descriptor)


def _free_on(folder: Path) -> int:
    about = os.statvfs(folder)
    return about.f_bavail * about.f_frsize


_STEP = 64 << 20
"""Bytes for which room is made at a time where a size is not told; less in a small cache."""

_MOST_FILLS = 5
"""How often the disk may be full at one place of a file, though there seemed to be room."""


@final
class PartFile:
    """A file of the cache while it arrives, under another name; the caller holds the entry's lock.

    Args:
        entry: which.
        size: that it will have; -1 if that is not known.
        room: of the cache.
    """

    def __init__(self, entry: Entry, size: int, room: DiskSpace) -> None:
        self._entry: Final = entry
        self._size: Final = size
        self._room: Final = room
        self._reserved = 0
        self._full_at = self._fills = 0
        self.written = self._crc = 0
        flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            self._descriptor = os.open(entry.part, flags, 0o666)
        except OSError as error:
            raise unwritable(entry.folder, error) from error
        try:
            if size != UNKNOWN_SIZE:
                self._reserve(size)
        except BaseException:
            self.abandon()
            raise

    def write(self, data: bytes) -> None:
        """Adds what has arrived.

        Raises:
            DatasetError: the disk is full, also after files that are not in use were evicted.
        """
        if self.written + len(data) > self._reserved:
            step = min(_STEP, (self._room.bound - self.written) // 8)
            self._reserve(self.written + max(len(data), step))
        rest = memoryview(data)
        while rest:
            try:
                count = os.pwrite(self._descriptor, rest, self.written)
            except OSError as error:
                number = error.errno or 0
                if number not in {errno.ENOSPC, errno.EDQUOT}:
                    raise unwritable(self._entry.folder, error) from error
            else:
                self._crc = zlib.crc32(rest[:count], self._crc)
                self.written += count
                rest = rest[count:]
                continue
            self._make_free(len(rest), number)

    def restart(self) -> None:
        """Forgets what has arrived."""
        self.written = self._crc = 0

    def complete(self) -> int:
        """Waits until all that was written is on the disk; gives the CRC-32 of it.

        Raises:
            DatasetError: it cannot be written there.
        """
        try:
            os.ftruncate(self._descriptor, self.written)
            os.fsync(self._descriptor)
        except OSError as error:
            raise unwritable(self._entry.folder, error) from error
        return self._crc

    def finish(self) -> None:
        """Gives it its name, and waits until that is on the disk."""
        self._close()
        self._room.name(self._entry)
        sync_folder(self._entry.folder)

    def abandon(self) -> None:
        """Deletes it."""
        self._close()
        self._entry.part.unlink(missing_ok=True)

    def _reserve(self, size: int) -> None:
        self._room.reserve(self._entry, self._descriptor, size)
        self._reserved = size

    def _make_free(self, at_least: int, number: int) -> None:
        """Evicts until the rest of the file fits on the disk."""
        rest = max(at_least, self._size - self.written)
        missing = self._room.free(self._entry, rest, is_quota=number == errno.EDQUOT)
        # Others write too: what was made free may be gone again, but not time after time.
        self._fills = self._fills + 1 if self._full_at == self.written else 1
        self._full_at = self.written
        if missing or self._fills > _MOST_FILLS:
            known = "a size that is not told" if self._size == UNKNOWN_SIZE else f"{self._size} bytes"
            problem = (
                f"does not fit on the disk of the cache ({os.strerror(number)}): {missing or rest} bytes are "
                f"missing for a file of {known}"
            )
            hint = "free some space, lower max_cache_bytes, or say cache=FOLDER on a larger disk"
            raise DatasetError(self._room.place, problem, str(self._entry.folder), hint=hint)

    def _close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)
