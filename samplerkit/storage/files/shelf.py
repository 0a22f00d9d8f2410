"""What is at hand, within the limits: nothing but bookkeeping, without threads."""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar, final

from samplerkit.errors import DatasetError


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
    """

    max_files: int
    max_bytes: int | None
    read_ahead: int
    threads: int
    keeps_unneeded: bool = True


@final
class Shelf(Generic[Content]):
    """The files in memory, and the places that are kept for those being read.

    Args:
        limits: what there may be.

    Attributes:
        contents: the files by number, the least recently used first.
        loading: the files for which a place is kept.
        num_bytes: the memory that the contents take.
    """

    def __init__(self, limits: CacheLimits) -> None:
        self._limits = limits
        self.contents: dict[int, Content] = {}
        self.loading: set[int] = set()
        self.num_bytes = 0
        self._largest = 0

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
                mend="allow more bytes, or split the file",
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

    def furthest(self, next_use: Callable[[int], float], kept: Container[int]) -> int | None:
        """Gives the file whose next use is furthest away; of several, the least recently used.

        Args:
            next_use: of a file.
            kept: files that are not given.
        """
        return max((file for file in self.contents if file not in kept), key=next_use, default=None)
