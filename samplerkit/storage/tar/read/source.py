"""What a view reads from, and how: archives on disk under one index, or shards one by one."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np

from samplerkit.order.layout import Layout
from samplerkit.order.typing import Ids
from samplerkit.storage.ahead.shelf import CacheLimits
from samplerkit.storage.ahead.stats import FileStats
from samplerkit.storage.progress import Progress
from samplerkit.storage.tar.format.members import Skipped
from samplerkit.storage.tar.index.archive import Archive, Cache

_LOGGER = logging.getLogger(__name__)

OnError = Literal["raise", "skip"]

Fetch = Literal["auto", "shards", "ranges"]
"""How remote samples are read: from whole shards, one by one, or as the order suggests."""


@dataclass(frozen=True)
class TarOptions:
    """How shards are read: what the arguments of a `TarDataset` of these names say."""

    on_error: OnError
    max_handles: int | None
    checksums: bool
    cache: Cache
    fetch: Fetch
    max_shards: int
    read_ahead: int

    @property
    def skips(self) -> bool:
        """Whether flaws are counted and skipped, and are no errors."""
        return self.on_error == "skip"

    @property
    def limits(self) -> CacheLimits:
        """What is at hand; a shard that is not needed soon is let go, and stays in the cache on disk."""
        threads = max(1, min(self.read_ahead, 4))
        return CacheLimits(
            self.max_shards, None, self.read_ahead, threads, keeps_unneeded=False, called="max_shards"
        )


class ArchiveSource(Protocol):
    """Samples in archives, at any id."""

    names: tuple[str, ...]
    options: TarOptions
    progress: Progress
    logged: set[str]
    """The shards of which it was logged that something of them is missing."""

    @property
    def layout(self) -> Layout:
        """How many samples lie in which archive."""

    @property
    def fingerprint(self) -> str:
        """Changes with the samples."""

    @property
    def skipped(self) -> Skipped:
        """What was skipped: nothing, unless flaws are skipped."""

    @property
    def is_indexed(self) -> bool:
        """Whether all archives are on disk under one index: nothing is fetched, nothing is missing."""

    @property
    def is_remote(self) -> bool:
        """Whether some archives are remote."""

    @property
    def is_layout_known(self) -> bool:
        """Whether the layout can be told without asking for remote shards."""

    @property
    def stats(self) -> FileStats | None:
        """What was fetched and waited for, where that is counted."""

    def count_workers(self, told: Callable[[], FileStats | None]) -> None:
        """Is told who knows the figures of the workers of a loader."""

    def expect(self, upcoming: Iterable[Ids], epoch_samples: int) -> None:
        """Is told what is read next, batch by batch, and how many samples an epoch has."""

    def read(self, ids: Ids) -> list[dict[str, Any]]:
        """Reads samples; where flaws are skipped, an `AbsentError` stands in place of one that is missing."""

    def read_one(self, id: int) -> dict[str, Any]:
        """Reads one sample: what `read` gives for it."""

    def keys(self, ids: Ids) -> list[str]:
        """Gives the keys of samples; "" for one that is missing."""

    def is_large(self, ids: Ids) -> bool:
        """Whether samples are so large that they are better read one at a time."""

    def shard_bytes(self) -> Ids:
        """Gives the size of each archive."""

    def local_path(self, name: str) -> str | None:
        """Where an archive lies on a disk of this machine; None if it does not."""

    def close(self) -> None:
        """Lets go of what is open."""


def warn_of_skipped(skipped: Skipped, name: str) -> None:
    """Logs what was skipped."""
    if len(skipped):
        counts = ", ".join(f"{count} {reason}" for reason, count in skipped.counts.items())
        _LOGGER.warning("skipped in %s and the other archives: %s", name, counts)


def sizes_of(archives: Iterable[Archive]) -> Ids:
    """Gives the size of each archive."""
    return np.array([archive.size for archive in archives], dtype=np.int64)
