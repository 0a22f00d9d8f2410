"""The entries of a cache, its limits, and the choice of files to evict and to prefetch, without threads."""

from __future__ import annotations

import heapq
import logging
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass, fields
from typing import Any, Generic, Protocol, TypeVar, final

from samplerkit.errors import DatasetError
from samplerkit.storage.ahead.uses import NEVER, Uses
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


@final
class CacheEntries(Generic[Content]):
    """The files in memory, places for those being read, and the choice of files to evict or prefetch.

    If upcoming uses are known, the file whose next use is furthest in the future is evicted (Belady 1966),
    and the files that are used next are prefetched. Otherwise the least recently used file is evicted, and
    following files are prefetched as long as files are read sequentially. It is not thread-safe by itself.

    Args:
        limits: limits of the cache.
        num_files: the number of files.

    Attributes:
        contents: the files by number, the least recently used first.
        loading: the files for which a place is reserved.
        num_bytes: the memory of the contents in bytes.
        uses: the upcoming uses; None if unknown.
        in_use: for each file, how many threads use it now; such files are not evicted.
    """

    def __init__(self, limits: CacheLimits, num_files: int) -> None:
        self._limits = limits
        self._num_files = num_files
        self.contents: dict[int, Content] = {}
        self.loading: set[int] = set()
        self.num_bytes = 0
        self._largest = 0
        self.uses: Uses | None = None
        self.in_use: dict[int, int] = {}
        self._last: int | None = None
        self._is_sequential = False

    def __contains__(self, file: int) -> bool:
        return file in self.contents or file in self.loading

    @property
    def num_files(self) -> int:
        """The number of files, including those being read."""
        return len(self.contents) + len(self.loading)

    @property
    def is_full(self) -> bool:
        """Whether there is no place for one more file."""
        if self.num_files >= self._limits.max_files:
            return True
        if self._limits.max_bytes is None or not self.num_files:
            return False
        # The size of a file is unknown until it is read; before, the largest size so far is assumed.
        return self.num_bytes + (len(self.loading) + 1) * self._largest > self._limits.max_bytes

    @property
    def is_too_large(self) -> bool:
        """Whether there are more bytes than allowed."""
        return self._limits.max_bytes is not None and self.num_bytes > self._limits.max_bytes

    def put(self, file: int, content: Content) -> None:
        """Adds a file that was read.

        Raises:
            DatasetError: the file alone exceeds the limit.
        """
        limit, size = self._limits.max_bytes, content.num_bytes
        if limit is not None and size > limit:
            raise DatasetError(
                content.path,
                f"takes {size} bytes in memory, more than max_bytes={limit}",
                hint="allow more bytes, or split the file",
            )
        self._largest = max(self._largest, size)
        self.contents[file] = content
        self.num_bytes += size

    def touch(self, file: int) -> None:
        """Makes a file the most recently used one, if it is in memory."""
        if file in self.contents:
            self.contents[file] = self.contents.pop(file)

    def drop(self, file: int) -> None:
        """Removes a file."""
        self.num_bytes -= self.contents.pop(file).num_bytes

    def clear(self) -> None:
        """Removes all files."""
        self.contents.clear()
        self.num_bytes = 0

    def note_access(self, file: int) -> bool:
        """Notes that a file is needed now; returns whether the prefetched files were a wrong guess."""
        moves = 0 if self._last is None else file - self._last
        self._last = file
        if moves:
            self._is_sequential = moves == 1
        return bool(moves) and self.uses is None and not self._is_sequential

    def hold(self, file: int) -> None:
        """Marks a file as used by one more thread."""
        self.in_use[file] = self.in_use.get(file, 0) + 1

    def release(self, file: int) -> None:
        """Marks a file as used by one thread less."""
        remaining = self.in_use.pop(file, 0) - 1
        if remaining > 0:
            self.in_use[file] = remaining

    def next_use(self, file: int) -> float:
        """Returns the number of the next batch that uses a file, `NEVER` if none is known.

        Without known uses, the file that was used last is assumed to be used next.
        """
        if self.uses is None:
            return 0 if file == self._last else NEVER
        return self.uses.next_use(file)

    def unneeded(self) -> list[int]:
        """Returns the files without a known next use that no thread uses."""
        return [file for file in self.contents if self.next_use(file) == NEVER and file not in self.in_use]

    def victim(self) -> int | None:
        """Returns the file to evict: the one used furthest in the future, then the least recently used."""
        files = (file for file in self.contents if file not in self.in_use)
        return max(files, key=self.next_use, default=None)

    def victim_for(self, file: int) -> int | None:
        """Returns the file that would be evicted for another one when that is used, if it can go already."""
        uses = self.uses
        if uses is None:
            victim = self.victim()
            return None if victim == self._last else victim
        batch = uses.next_use(file)
        files = [*self.contents, *self.loading]
        victim = max(files, key=lambda file: (uses.next_use(file, batch), uses.next_use(file) > batch))
        can_go = victim in self.contents and victim not in self.in_use
        return victim if can_go and uses.next_use(victim) > batch else None

    def next_to_read(self, number: int, failed: Container[int]) -> list[int]:
        """Returns the files to prefetch, ordered by their next use.

        Args:
            number: the most files.
            failed: files that could not be prefetched, and are not tried again before they are used.
        """

        def missing(files: Iterable[tuple[int, int]]) -> Iterator[Any]:
            return (entry for entry in files if entry[1] not in self and entry[1] not in failed)

        if self.uses is not None:
            upcoming = self.uses.upcoming_files(self.contents.keys())
            return [file for _, file in heapq.nsmallest(number, missing(upcoming))] if upcoming else []
        if self._last is None or not self._is_sequential:
            return []
        end = min(self._num_files, self._last + 1 + self._limits.read_ahead)
        following = ((file, file) for file in range(self._last + 1, end))
        return [file for _, file in missing(following)][:number]


@dataclass(frozen=True)
class FileStats:
    """Counters of a dataset of files, in this process and in the workers of its loaders.

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
