"""A file of the cache while it arrives."""

from __future__ import annotations

import errno
import os
import zlib
from typing import Final, final

from samplerkit.errors import DatasetError
from samplerkit.storage.atomic import sync_folder
from samplerkit.storage.remote.entry import Entry
from samplerkit.storage.remote.flock import unwritable
from samplerkit.storage.remote.room import DiskSpace
from samplerkit.storage.remote.version import UNKNOWN_SIZE

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
            mend = "free some space, lower max_cache_bytes, or say cache=FOLDER on a larger disk"
            raise DatasetError(self._room.place, problem, str(self._entry.folder), mend=mend)

    def _close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)
