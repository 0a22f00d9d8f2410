"""Whole files on a disk of this machine, shared by all processes that use the same folder."""

from __future__ import annotations

import fcntl
import logging
import os
import stat
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import final

from samplerkit.storage.locks import is_the_file
from samplerkit.storage.remote.address import shown
from samplerkit.storage.remote.entry import Entry, entry_of
from samplerkit.storage.remote.flock import locked, unwritable
from samplerkit.storage.remote.local_file import LocalFile
from samplerkit.storage.remote.options import RemoteOptions
from samplerkit.storage.remote.part_file import PartFile
from samplerkit.storage.remote.room import Room
from samplerkit.storage.remote.stopping import TICK, Stop
from samplerkit.storage.remote.version import UNKNOWN_SIZE, Version
from samplerkit.storage.user_cache import user_cache_folder

_LOG = logging.getLogger(__name__)
_FIRST_PAUSE = 0.002
_WARN_SECONDS = 60.0


@final
@dataclass(frozen=True)
class Wanted:
    """A file that is to be in the cache.

    Args:
        url: of it.
        version: that it must have.
        digest: that it was or will be held against, or None.
        download: writes it.
    """

    url: str
    version: Version
    digest: str | None
    download: Callable[[PartFile], None]


@final
@dataclass(frozen=True)
class DiskCache:
    """Whole files on a disk of this machine, shared by all processes that use the same folder.

    A file is downloaded by one process, under another name, while it holds the lock of its entry; when that
    process ends, however it does, so does the lock, and another one begins anew. Who uses a file shares its
    lock.

    Args:
        folder: made when the first file comes.
        most: the bytes that it may hold; None for half of what is free.
        patience: seconds to wait for files in use when there is no room.
        stop: ends all waiting.
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

    def get(self, wanted: Wanted) -> tuple[LocalFile, bool]:
        """Gives a file, downloaded if it is not there.

        Returns:
            The file, pinned; and whether this call downloaded it.

        Raises:
            DatasetError: it does not fit, or the folder cannot be used; or as the download raises.
            Stopped: it is not wanted any more.
        """
        self._make_folder()
        entry = entry_of(self.folder, wanted.url, wanted.version, wanted.digest)
        begun = warned = time.monotonic()
        pause = _FIRST_PAUSE
        while True:
            if self._is_there(entry, wanted.version.size):
                descriptor = locked(entry.lock, is_exclusive=False)
                is_made = False
            else:
                descriptor = locked(entry.lock, is_exclusive=True)
                is_made = descriptor is not None and self._made(entry, descriptor, wanted)
            if descriptor is not None:
                pinned = self._pinned(entry, descriptor, wanted)
                if pinned is not None:
                    return pinned, is_made
            elif time.monotonic() - warned > _WARN_SECONDS:
                warned = time.monotonic()
                seconds = warned - begun
                _LOG.warning("%s: waits for another process for %.0f s", shown(wanted.url), seconds)
            self.stop.sleep(pause)
            pause = min(TICK, 2 * pause)

    def find(self, wanted: Wanted) -> LocalFile | None:
        """Gives a file that is there, pinned; None if it is not, or somebody is at work on it."""
        entry = entry_of(self.folder, wanted.url, wanted.version, wanted.digest)
        if not self._is_there(entry, wanted.version.size):
            return None
        descriptor = locked(entry.lock, is_exclusive=False)
        return None if descriptor is None else self._pinned(entry, descriptor, wanted)

    def _make_folder(self) -> None:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise unwritable(self.folder, error) from error

    def _is_there(self, entry: Entry, size: int) -> bool:
        try:
            about = entry.file.lstat()
        except (FileNotFoundError, NotADirectoryError):
            return False
        return stat.S_ISREG(about.st_mode) and size in {UNKNOWN_SIZE, about.st_size}

    def _made(self, entry: Entry, descriptor: int, wanted: Wanted) -> bool:
        """Downloads a file whose lock is held, unless it has come; lets go of the lock if that fails."""
        if self._is_there(entry, wanted.version.size):
            return False
        try:
            entry.mark(descriptor, wanted.url)
            room = Room(shown(wanted.url), self.folder, self.most, self.patience, self.stop)
            part = PartFile(entry, wanted.version.size, room)
            try:
                wanted.download(part)
                part.finish()
            except BaseException:
                part.abandon()
                raise
        except BaseException:
            entry.lock.unlink(missing_ok=True)
            os.close(descriptor)
            raise
        return True

    def _pinned(self, entry: Entry, descriptor: int, wanted: Wanted) -> LocalFile | None:
        """Shares the lock from now on; None if another one came between the two and deleted the file."""
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
            is_pinned = is_the_file(descriptor, entry.lock) and self._is_there(entry, wanted.version.size)
        except BlockingIOError:
            is_pinned = False
        if not is_pinned:
            os.close(descriptor)
            return None
        if not os.fstat(descriptor).st_size:  # somebody deleted the lock file
            entry.mark(descriptor, wanted.url)
        with suppress(PermissionError):  # another user's file: it counts by its own time of use
            os.utime(entry.file)
        return LocalFile(entry.file, entry.file.stat().st_size, descriptor)
