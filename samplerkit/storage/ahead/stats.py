"""What a dataset of files has done so far, in figures; and reporting that it reads them again and again."""

from __future__ import annotations

import logging
from dataclasses import dataclass, fields
from typing import final

from samplerkit.storage.ahead.cache_entries import CacheLimits
from samplerkit.storage.threads import this_worker


@dataclass(frozen=True)
class FileStats:
    """What a dataset of files has done so far, in this process and in the workers of its loaders.

    Args:
        files_read: how often a file was read.
        files_counted: how often a file was opened only to count its samples.
        bytes_read: the memory that all files that were read took, as the reader gave them.
        hits: how often a file was wanted and lay in memory.
        waits: how often a file was wanted and had to be waited for.
        wait_seconds: for how long, in all.
        peak_files: the most files in memory at a time, those being read included.
        peak_bytes: the most bytes in memory at a time; those of a file count once it is read.
        requests: what was asked of remote storage, attempts that failed included.
        retries: how many of these were made again.
        downloads: how many files this process fetched; what others of the machine had fetched is not counted.
        bytes_downloaded: the bytes that came.
    """

    files_read: int = 0
    files_counted: int = 0
    bytes_read: int = 0
    hits: int = 0
    waits: int = 0
    wait_seconds: float = 0.0
    peak_files: int = 0
    peak_bytes: int = 0
    requests: int = 0
    retries: int = 0
    downloads: int = 0
    bytes_downloaded: int = 0

    def __add__(self, other: FileStats) -> FileStats:
        """Adds up the figures of two processes; of the peaks it takes the higher one."""
        peaks = {"peak_files": max(self.peak_files, other.peak_files)}
        peaks["peak_bytes"] = max(self.peak_bytes, other.peak_bytes)
        names = (field.name for field in fields(self) if field.name not in peaks)
        return FileStats(**{name: getattr(self, name) + getattr(other, name) for name in names}, **peaks)


_log = logging.getLogger("samplerkit")


@final
class Rereading:
    """Which files are read again.

    Attributes:
        times: how often a file was read that had been read before.
    """

    def __init__(self) -> None:
        self.times = 0
        self._read: set[int] = set()

    def note(self, file: int) -> None:
        """Notes that a file was read."""
        self.times += file in self._read
        self._read.add(file)

    def forget(self) -> None:
        """Starts from zero."""
        self.times = 0
        self._read.clear()


def tell_of_rereading(read_again: int, limits: CacheLimits) -> None:
    """Reports in the log that memory holds too few files for the order.

    Of the workers of a loader only the first one logs it.

    Args:
        read_again: how often a file was read that had been read before, in this epoch and process.
        limits: what memory may hold.
    """
    if this_worker()[0] == 0:
        and_bytes = "" if limits.max_bytes is None else f", max_bytes={limits.max_bytes}"
        _log.warning(
            "files are read again and again, so far %d times: the order goes back and forth between more of "
            "them than may be in memory (%s=%d%s); allow more, or take a smaller partial_size",
            read_again,
            limits.called,
            limits.max_files,
            and_bytes,
        )
