"""What is at hand, within the limits, and what of it goes: nothing but bookkeeping."""

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
    """What a cache can keep."""

    @property
    def path(self) -> str:
        """Its name, for errors."""

    @property
    def num_bytes(self) -> int:
        """The bytes that count for the limit."""


Content = TypeVar("Content", bound=Cacheable)


@dataclass(frozen=True)
class CacheLimits:
    """What a cache of files may hold and do.

    Args:
        max_files: files in memory, those being read included.
        max_bytes: bytes in memory; None for no limit.
        read_ahead: files that are read before they are wanted.
        threads: readers ahead.
        keeps_unneeded: whether a file stays, where there is room, when its next use is not known.
        called: the argument by which a user says `max_files`.
    """

    max_files: int
    max_bytes: int | None
    read_ahead: int
    threads: int
    keeps_unneeded: bool = True
    called: str = "max_files"


@final
class CacheEntries(Generic[Content]):
    """The files in memory, the places that are kept for those being read, and which file goes or comes next.

    Where it is known what is read next, the file goes whose next use lies furthest in the future (Belady
    1966), and those come that are used next. Elsewhere the file goes that was used least recently, and the
    next ones come while files are read one after another. It knows of no threads.

    Args:
        limits: what may be in memory.
        num_files: the number of files.

    Attributes:
        contents: the files by number, the least recently used first.
        loading: the files for which a place is kept.
        num_bytes: the memory that the contents take.
        uses: what is read next; None where that is not known.
        held: how many threads read from each file now: none of these goes.
    """

    def __init__(self, limits: CacheLimits, num_files: int) -> None:
        self._limits = limits
        self._num_files = num_files
        self.contents: dict[int, Content] = {}
        self.loading: set[int] = set()
        self.num_bytes = 0
        self._largest = 0
        self.uses: Uses | None = None
        self.held: dict[int, int] = {}
        self._last: int | None = None
        self._is_sequential = False

    def __contains__(self, file: int) -> bool:
        return file in self.contents or file in self.loading

    @property
    def num_files(self) -> int:
        """The number of files, those being read included."""
        return len(self.contents) + len(self.loading)

    @property
    def is_full(self) -> bool:
        """Whether there is no place for one more file."""
        if self.num_files >= self._limits.max_files:
            return True
        if self._limits.max_bytes is None or not self.num_files:
            return False
        # The size of a file is known when it is read; before, the largest so far stands for it.
        return self.num_bytes + (len(self.loading) + 1) * self._largest > self._limits.max_bytes

    @property
    def is_too_large(self) -> bool:
        """Whether there are more bytes than there may be."""
        return self._limits.max_bytes is not None and self.num_bytes > self._limits.max_bytes

    def put(self, file: int, content: Content) -> None:
        """Takes a file that was read.

        Raises:
            DatasetError: it alone is larger than all may be.
        """
        most, size = self._limits.max_bytes, content.num_bytes
        if most is not None and size > most:
            raise DatasetError(
                content.path,
                f"takes {size} bytes in memory, more than max_bytes={most}",
                hint="allow more bytes, or split the file",
            )
        self._largest = max(self._largest, size)
        self.contents[file] = content
        self.num_bytes += size

    def touch(self, file: int) -> None:
        """Makes a file the most recently used one, if it is there."""
        if file in self.contents:
            self.contents[file] = self.contents.pop(file)

    def drop(self, file: int) -> None:
        """Lets a file go."""
        self.num_bytes -= self.contents.pop(file).num_bytes

    def clear(self) -> None:
        """Lets all files go."""
        self.contents.clear()
        self.num_bytes = 0

    def turn_to(self, file: int) -> bool:
        """Notes that a file is wanted now; returns whether what came ahead was a wrong guess."""
        moves = 0 if self._last is None else file - self._last
        self._last = file
        if moves:
            self._is_sequential = moves == 1
        return bool(moves) and self.uses is None and not self._is_sequential

    def hold(self, file: int) -> None:
        """Notes that a thread reads from a file from now on."""
        self.held[file] = self.held.get(file, 0) + 1

    def let_go(self, file: int) -> None:
        """Notes that a thread reads from a file no more."""
        left = self.held.pop(file, 0) - 1
        if left > 0:
            self.held[file] = left

    def next_use(self, file: int) -> float:
        """Returns the number of the next batch that uses a file, `NEVER` if none is known.

        Where nobody told, the file that was used last is taken to be used next.
        """
        if self.uses is None:
            return 0 if file == self._last else NEVER
        return self.uses.next_use(file)

    def unneeded(self) -> list[int]:
        """Returns the files that are not used again, as far as is known."""
        return [file for file in self.contents if self.next_use(file) == NEVER and file not in self.held]

    def victim(self) -> int | None:
        """Returns the file whose next use is furthest away; of several, the least recently used."""
        files = (file for file in self.contents if file not in self.held)
        return max(files, key=self.next_use, default=None)

    def victim_for(self, file: int) -> int | None:
        """Returns the file that would have to go for another one when that is used, if it can go already."""
        uses = self.uses
        if uses is None:
            found = self.victim()
            return None if found == self._last else found
        batch = uses.next_use(file)
        files = [*self.contents, *self.loading]
        found = max(files, key=lambda file: (uses.next_use(file, batch), uses.next_use(file) > batch))
        can_go = found in self.contents and found not in self.held
        return found if can_go and uses.next_use(found) > batch else None

    def wanted_next(self, number: int, failed: Container[int]) -> list[int]:
        """Returns the files that are wanted next and are not here, the first first.

        Args:
            number: how many of them.
            failed: files that are not tried again before they are wanted.
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
