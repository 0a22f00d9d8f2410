"""What a view reads from, and how: archives on disk under one index; `shard_source` has shards one by one."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any, Protocol, cast, final

import numpy as np

from samplerkit.order.caching import cached_property
from samplerkit.order.layout import Layout
from samplerkit.order.typing import Ids
from samplerkit.storage.ahead.cache_entries import FileStats
from samplerkit.storage.progress import Progress, silence
from samplerkit.storage.tar.format.flaws import Skipped
from samplerkit.storage.tar.index.archive import Archive
from samplerkit.storage.tar.index.index import Index
from samplerkit.storage.tar.index.joining import joint_index
from samplerkit.storage.tar.read.reader import Reader, TarOptions

_LOGGER = logging.getLogger(__name__)

BYTES_AT_ONCE = 4 << 20
"""Bytes up to which several samples on disk are read together."""


class ArchiveSource(Protocol):
    """Samples in archives, at any id."""

    names: tuple[str, ...]
    options: TarOptions
    progress: Progress
    logged: set[str]
    """The shards of which it was logged that something of them is missing."""

    is_indexed: bool = False
    """Whether all archives are on disk under one index: nothing is fetched, nothing is missing."""

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
    def is_remote(self) -> bool:
        """Whether some archives are remote."""
        return False

    @property
    def is_layout_known(self) -> bool:
        """Whether the layout is known without requests for remote shards."""
        return True

    @property
    def stats(self) -> FileStats | None:
        """What was fetched and waited for, where that is counted."""
        return None

    def count_workers(self, told: Callable[[], FileStats | None]) -> None:
        """Receives what reports the figures of the workers of a loader."""
        return

    def expect(self, upcoming: Iterable[Ids], epoch_samples: int) -> None:
        """Receives what is read next, batch by batch, and how many samples an epoch has."""
        return

    def read(self, ids: Ids) -> list[dict[str, Any]]:
        """Reads samples; where flaws are skipped, an `AbsentError` is in place of one that is missing."""

    def read_one(self, id: int) -> dict[str, Any]:
        """Reads one sample: what `read` gives for it."""

    def keys(self, ids: Ids) -> list[str]:
        """Returns the keys of samples; "" for one that is missing."""

    def is_large(self, ids: Ids) -> bool:
        """Whether samples are so large that they are better read one at a time."""
        return False

    def shard_bytes(self) -> Ids:
        """Returns the size of each archive."""

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
    """Returns the size of each archive."""
    return np.array([archive.size for archive in archives], dtype=np.int64)


@final
class IndexedSource(ArchiveSource):
    """Archives on disk, indexed at first use."""

    is_indexed = True

    def __init__(self, names: tuple[str, ...], options: TarOptions, progress: Progress) -> None:
        self.names = names
        self.options = options
        self.progress = progress
        self.logged = set()
        self._made: tuple[Any, ...] | None = None

    @cached_property
    def index(self) -> Index:
        """Where all samples lie; made at first use.

        Raises:
            DatasetError: an archive cannot be read, or has a flaw and flaws are errors; or another process
                made it, and it is not in the cache any more.
        """
        if self._made is not None:
            make, arguments = self._made
            return cast(Index, make(*arguments))
        archives, options = tuple(map(Archive.of, self.names)), self.options
        found = joint_index(archives, options.cache, checksums=options.checksums, progress=self.progress)
        if not options.skips and len(found.skipped):
            raise found.skipped.places[0].error()
        warn_of_skipped(found.skipped, self.names[0])
        return found

    @cached_property
    def reader(self) -> Reader:
        """Reads samples."""
        return Reader(self.index, self.options.cache, self.options.max_handles)

    @property
    def layout(self) -> Layout:
        return self.index.layout

    @property
    def fingerprint(self) -> str:
        return self.index.fingerprint

    @property
    def skipped(self) -> Skipped:
        return self.index.skipped

    def read(self, ids: Ids) -> list[dict[str, Any]]:
        return self.reader.read(ids)

    def read_one(self, id: int) -> dict[str, Any]:
        return self.reader.read_one(id)

    def keys(self, ids: Ids) -> list[str]:
        return self.index.keys(ids)

    def is_large(self, ids: Ids) -> bool:
        # Large ones gain nothing from company, and one at a time they stay in the processor's cache.
        begins, ends = self.index.extents(ids)
        return bool((ends - begins).sum() > BYTES_AT_ONCE)

    def shard_bytes(self) -> Ids:
        return sizes_of(self.index.archives)

    def local_path(self, name: str) -> str | None:
        return name

    def close(self) -> None:
        # Without reading what would have to be indexed for it first.
        reader = self.__dict__.get("reader")
        if reader is not None:
            reader.close()

    def __getstate__(self) -> dict[str, Any]:
        # What shows the progress belongs to this process. The index is mapped at its first use: an error
        # of unpickling ends a spawned worker before it can say anything.
        state = {**self.__dict__, "progress": silence}
        state.pop("reader", None)
        made = state.pop("index", None)
        return state if made is None else {**state, "_made": made.__reduce__()}
