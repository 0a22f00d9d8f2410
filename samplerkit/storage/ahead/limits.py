"""The limits of a cache of files, its counters, and the warning that it is too small."""

from __future__ import annotations

import logging
from dataclasses import dataclass, fields
from typing import Protocol, TypeVar

from samplerkit.storage.threads import this_worker


class Cacheable(Protocol):
    """An object that a cache can hold."""

    @property
    def path(self) -> str:
        """Its name in errors."""

    @property
    def num_bytes(self) -> int:
        """The bytes that count for the limit."""


Content = TypeVar("Content", bound=Cacheable)


@dataclass(frozen=True)
class CacheLimits:
    """Limits of a cache of files.

    Args:
        max_files: the most files in memory, including those being read.
        max_bytes: the most bytes in memory; None for no limit.
        read_ahead: the number of files to prefetch.
        threads: the number of prefetching threads.
        keeps_unneeded: whether a file whose next use is unknown stays as long as there is room.
        argument: the name of the user's argument for `max_files`.
    """

    max_files: int
    max_bytes: int | None
    read_ahead: int
    threads: int
    keeps_unneeded: bool = True
    argument: str = "max_files"


@dataclass(frozen=True)
class FileStats:
    """Counters of a dataset of files, in a process.

    Args:
        files_read: the number of file reads.
        files_counted: the number of files opened only to count their samples.
        bytes_read: the total size in memory of the files read, as returned by the reader.
        hits: how often a needed file was in memory.
        waits: how often a needed file had to be waited for.
        wait_seconds: the total time of these waits.
        peak_files: the most files in memory at a time, including those being read.
        peak_bytes: the most bytes in memory at a time; a file counts once it is read.
        requests: the number of requests to remote storage, including failed attempts.
        retries: how many of these were retries.
        downloads: the number of files that this process fetched, without those that others had fetched.
        bytes_downloaded: the number of bytes received.
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
        """Adds the counters of two processes; of peaks the higher one is taken."""
        peaks = {"peak_files": max(self.peak_files, other.peak_files)}
        peaks["peak_bytes"] = max(self.peak_bytes, other.peak_bytes)
        names = (field.name for field in fields(self) if field.name not in peaks)
        return FileStats(**{name: getattr(self, name) + getattr(other, name) for name in names}, **peaks)


_log = logging.getLogger("samplerkit")


def warn_of_rereading(rereads: int, limits: CacheLimits) -> None:
    """Logs a warning that the cache is too small for the order; of the workers, only the first one logs it.

    Args:
        rereads: the number of reads of files that had been read before, in this epoch and process.
        limits: limits of the cache.
    """
    if this_worker()[0] == 0:
        and_bytes = "" if limits.max_bytes is None else f", max_bytes={limits.max_bytes}"
        _log.warning(
            "files are read again and again, so far %d times: the order goes back and forth between more of "
            "them than may be in memory (%s=%d%s); allow more, or take a smaller partial_size",
            rereads,
            limits.argument,
            limits.max_files,
            and_bytes,
        )
