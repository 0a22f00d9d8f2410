"""Counting and telling, while it happens, that files are read again and again."""

from __future__ import annotations

import logging
from typing import final

from samplerkit.storage.files.shelf import CacheLimits
from samplerkit.storage.workers import this_worker

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
        """Is told that a file was read."""
        self.times += file in self._read
        self._read.add(file)

    def forget(self) -> None:
        """Begins anew."""
        self.times = 0
        self._read.clear()


def tell_of_rereading(read_again: int, limits: CacheLimits) -> None:
    """Tells in the log that memory holds too few files for the order.

    Of the workers of a loader only the first one tells it.

    Args:
        read_again: how often a file was read that had been read before, in this epoch and process.
        limits: what memory may hold.
    """
    if this_worker()[0] == 0:
        and_bytes = "" if limits.max_bytes is None else f", max_bytes={limits.max_bytes}"
        _log.warning(
            "files are read again and again, so far %d times: the order goes back and forth between more of "
            "them than may be in memory (max_files=%d%s); allow more, or take a smaller partial_size",
            read_again,
            limits.max_files,
            and_bytes,
        )
