"""The limits of a cache of files, and the warning that it is too small."""

import logging
from dataclasses import dataclass
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


_log = logging.getLogger("samplerkit")


def warn_of_rereading(rereads: int, limits: CacheLimits) -> None:
    """Logs a warning that the cache is too small for the order; of the workers, only the first one logs it.

    Args:
        rereads: the number of reads of files that had been read before, in this epoch and process.
        limits: limits of the cache.
    """
    if this_worker()[0] == 0:
        and_bytes = "" if limits.max_bytes is None else f", max_bytes={limits.max_bytes}"
        text = (
            "files are read again and again, so far %d times: the order goes back and forth between more of "
            "them than may be in memory (%s=%d%s); allow more, or shuffle fewer samples together"
        )
        _log.warning(text, rereads, limits.argument, limits.max_files, and_bytes)
