"""Whole files on a disk of this machine, shared by all processes that use the same folder."""

from __future__ import annotations

import fcntl
import logging
import os
import stat
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from samplerkit.closing import Closing
from samplerkit.errors import DatasetError, NotSupportedError
from samplerkit.storage.atomic import is_the_file, unlock, user_cache_folder
from samplerkit.storage.remote.attempt import UNKNOWN_SIZE, Version
from samplerkit.storage.remote.cache_entries import Entry, Record, entry_of, is_intact, locked, unwritable
from samplerkit.storage.remote.cache_eviction import DiskSpace, PartFile
from samplerkit.storage.remote.options import RemoteOptions
from samplerkit.storage.threads import TICK, Stop

_LOG = logging.getLogger(__name__)
_FIRST_PAUSE = 0.002
_WARN_SECONDS = 60.0


@final
@dataclass(frozen=True)
class Wanted:
    """A file that is to be in the cache.

    Args:
        place: what errors and people who look call it, without what is private.
        identity: what distinguishes it from all others, the same.
        version: that it must have.
        digest: that it was or will be checked against, or None.
        write: writes it.
    """

    place: str
    identity: str
    version: Version
    digest: str | None
    write: Callable[[PartFile], None]


@final
@dataclass(frozen=True)
class DiskCache:
    """Whole files on a disk of this machine, shared by all processes that use the same folder.

    A file is written by one process, under another name, while it holds the lock of its entry; when that
    process ends, however it does, so does the lock, and another one begins again. Who uses a file shares its
    lock. What was written has a CRC-32, which each process that opens it can rely on: see `is_intact`.

    Args:
        room: its folder, and how much that may hold.
    """

    room: DiskSpace

    @classmethod
    def of(cls, options: RemoteOptions, stop: Stop) -> DiskCache:
        """Gives the cache that options tell of."""
        folder = user_cache_folder() / "remote" if options.cache is None else Path(options.cache)
        return cls(DiskSpace(folder.absolute(), options.max_cache_bytes, options.timeout, stop))

    def get(self, wanted: Wanted) -> tuple[LocalFile, bool]:
        """Gives a file, written if it is not there, or is not what was written.

        Returns:
            The file, pinned; and whether this call has written it.

        Raises:
            DatasetError: it does not fit, or the folder cannot be used; or as the writing raises.
            Stopped: it is not wanted any more.
        """
        try:
            self.room.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise unwritable(self.room.folder, error) from error
        entry, is_damaged = self._entry(wanted), False
        begun = warned = time.monotonic()
        pause = _FIRST_PAUSE
        while True:
            if not is_damaged:
                local, is_damaged = self._pinned(entry, wanted)
                if local is not None:
                    return local, False
                if is_damaged:
                    _LOG.warning("%s: its copy in the cache is damaged, and is made again", wanted.place)
            descriptor = locked(entry.lock, is_exclusive=True)
            if descriptor is not None:
                is_made = self._made(entry, descriptor, wanted)
                if self._is_shared_now(entry, descriptor, wanted):
                    return self._local(entry, descriptor), is_made
            now = time.monotonic()
            if is_damaged and now - begun > self.room.patience:
                problem = "has a damaged copy in the cache, which somebody uses"
                hint = "end the processes that use it, and start again"
                raise DatasetError(wanted.place, problem, str(entry.file), hint=hint)
            if now - warned > _WARN_SECONDS:
                warned = now
                _LOG.warning("%s: waits for another process for %.0f s", wanted.place, now - begun)
            self.room.stop.sleep(pause)
            pause = min(TICK, 2 * pause)

    def find(self, wanted: Wanted) -> LocalFile | None:
        """Gives a file that is there, pinned; None if it is not, is damaged, or somebody is at work on it."""
        return self._pinned(self._entry(wanted), wanted)[0]

    def _entry(self, wanted: Wanted) -> Entry:
        return entry_of(self.room.folder, wanted.identity, wanted.version, wanted.digest)

    def _is_there(self, entry: Entry, size: int) -> bool:
        try:
            about = entry.file.lstat()
        except (FileNotFoundError, NotADirectoryError):
            return False
        return stat.S_ISREG(about.st_mode) and size in {UNKNOWN_SIZE, about.st_size}

    def _pinned(self, entry: Entry, wanted: Wanted) -> tuple[LocalFile | None, bool]:
        """Gives a file that is there and that nobody is at work on; and whether it is damaged instead."""
        if not self._is_there(entry, wanted.version.size):
            return None, False
        descriptor = locked(entry.lock, is_exclusive=False)
        if descriptor is None:
            return None, False
        is_there = self._is_there(entry, wanted.version.size)
        if is_there and is_intact(entry.file, descriptor):
            return self._local(entry, descriptor), False
        unlock(descriptor)
        return None, is_there

    def _made(self, entry: Entry, descriptor: int, wanted: Wanted) -> bool:
        """Writes a file whose lock is held, unless it has come; lets go of the lock if that fails."""
        try:
            if self._is_there(entry, wanted.version.size) and is_intact(entry.file, descriptor):
                return False
            entry.file.unlink(missing_ok=True)
            Record(name=wanted.place).write(descriptor)
            part = PartFile(wanted.place, entry, wanted.version.size, self.room)
            try:
                wanted.write(part)
                Record(part.complete(), name=wanted.place).write(descriptor)
                part.finish()
            except BaseException:
                part.abandon()
                raise
        except BaseException as error:
            entry.file.unlink(missing_ok=True)
            entry.lock.unlink(missing_ok=True)
            unlock(descriptor)
            if isinstance(error, FileNotFoundError):
                raise unwritable(self.room.folder, error) from error
            raise
        return True

    def _is_shared_now(self, entry: Entry, descriptor: int, wanted: Wanted) -> bool:
        """Shares a lock that was held alone; lets go if another one came between and deleted the file."""
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
            is_pinned = is_the_file(descriptor, entry.lock) and self._is_there(entry, wanted.version.size)
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

    def __reduce__(self) -> Any:
        raise NotSupportedError(
            "LocalFile", "belongs to one process", hint="fetch the URL in the other one: it is in the cache"
        )

    def __repr__(self) -> str:
        return f"LocalFile({self.path!r}, {self.size} bytes)"
