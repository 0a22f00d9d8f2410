"""Whole files on a disk of this machine, shared by all processes that use the same folder."""

from __future__ import annotations

import fcntl
import logging
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from samplerkit.closing import Closing
from samplerkit.errors import DatasetError, NotSupportedError
from samplerkit.storage.atomic import is_the_file, unlock, user_cache_folder
from samplerkit.storage.missing_file import unwritable
from samplerkit.storage.remote.cache_entries import Entry, Record, is_intact, locked
from samplerkit.storage.remote.cache_eviction import DiskSpace, PartFile
from samplerkit.storage.remote.options import RemoteOptions
from samplerkit.storage.threads import TICK, Stop

_LOG = logging.getLogger(__name__)
_FIRST_PAUSE = 0.002
_WARN_SECONDS = 60.0


@final
@dataclass(frozen=True)
class DiskCache(DiskSpace):
    """Whole files on a disk of this machine, shared by all processes that use the same folder.

    A file is written by one process, under another name, while it holds the lock of its entry; when that
    process ends, however it does, so does the lock, and another one begins again. Who uses a file shares its
    lock. What was written has a CRC-32, which each process that opens it can rely on: see `is_intact`.
    """

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
        is_damaged = False
        begun = warned = time.monotonic()
        pause = _FIRST_PAUSE
        while True:
            if not is_damaged:
                local, is_damaged = self._pinned(entry)
                if local is not None:
                    return local, False
                if is_damaged:
                    _LOG.warning("%s: its copy in the cache is damaged, and is made again", entry.place)
            descriptor = locked(entry.lock, is_exclusive=True)
            if descriptor is not None:
                is_made = self._made(entry, descriptor, write)
                if self._is_shared_now(entry, descriptor):
                    return self._local(entry, descriptor), is_made
            now = time.monotonic()
            if is_damaged and now - begun > self.patience:
                problem = "has a damaged copy in the cache, which somebody uses"
                hint = "end the processes that use it, and start again"
                raise DatasetError(entry.place, problem, str(entry.file), hint=hint)
            if now - warned > _WARN_SECONDS:
                warned = now
                _LOG.warning("%s: waits for another process for %.0f s", entry.place, now - begun)
            self.stop.sleep(pause)
            pause = min(TICK, 2 * pause)

    def find(self, entry: Entry) -> LocalFile | None:
        """Gives a file that is there, pinned; None if it is not, is damaged, or somebody is at work on it."""
        return self._pinned(entry)[0]

    def _pinned(self, entry: Entry) -> tuple[LocalFile | None, bool]:
        """Gives a file that is there and that nobody is at work on; and whether it is damaged instead."""
        if not entry.is_there:
            return None, False
        descriptor = locked(entry.lock, is_exclusive=False)
        if descriptor is None:
            return None, False
        is_there = entry.is_there
        if is_there and is_intact(entry.file, descriptor):
            return self._local(entry, descriptor), False
        unlock(descriptor)
        return None, is_there

    def _made(self, entry: Entry, descriptor: int, write: Callable[[PartFile], None]) -> bool:
        """Writes a file whose lock is held, unless it has come; lets go of the lock if that fails."""
        try:
            if entry.is_there and is_intact(entry.file, descriptor):
                return False
            entry.file.unlink(missing_ok=True)
            Record(name=entry.place).write(descriptor)
            part = PartFile(entry, self)
            try:
                write(part)
                part.finish(descriptor)
            except BaseException:
                part.abandon()
                raise
        except BaseException as error:
            entry.file.unlink(missing_ok=True)
            entry.lock.unlink(missing_ok=True)
            unlock(descriptor)
            if isinstance(error, FileNotFoundError):
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

    def __reduce__(self) -> Any:
        raise NotSupportedError(
            "LocalFile", "belongs to one process", hint="fetch the URL in the other one: it is in the cache"
        )

    def __repr__(self) -> str:
        return f"LocalFile({self.path!r}, {self.size} bytes)"
