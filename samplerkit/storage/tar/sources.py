"""The shards of a dataset as a pipeline sees them: what lies in them, and in each process what reads them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, final

import numpy as np

from samplerkit.order.caching import cached_property
from samplerkit.order.layout import Layout
from samplerkit.order.typing import Ids
from samplerkit.storage.ahead.cache_entries import FileStats
from samplerkit.storage.names import short_names
from samplerkit.storage.per_process import OpenPerProcess, with_requests
from samplerkit.storage.progress import Progress, all_in_threads, silence
from samplerkit.storage.tar.format.flaws import Skipped
from samplerkit.storage.tar.index.archive import Archive
from samplerkit.storage.tar.index.index import Index
from samplerkit.storage.tar.index.joining import Joint, Summary, joint_index
from samplerkit.storage.tar.read.contents import Contents, told_contents
from samplerkit.storage.tar.read.reader import Reader
from samplerkit.storage.tar.read.shard_reading import ShardReading
from samplerkit.storage.tar.read.shards import ASKED_AT_A_TIME, FETCHED_AT_A_TIME, Shards
from samplerkit.storage.threads import in_threads
from samplerkit.storage.urls import is_remote

_LOGGER = logging.getLogger(__name__)

BYTES_AT_ONCE = 4 << 20
"""Bytes up to which several samples on disk are read together."""


@final
class IndexReading(Reader):
    """Reads archives on disk that lie under one index."""

    def __init__(self, shards: Shards, index: Index, stats: FileStats) -> None:
        super().__init__(index, shards.options.cache, shards.options.max_handles)
        self.skipped = index.skipped
        self.stats = stats

    def expect(self, upcoming: Iterable[Ids], epoch_samples: int) -> None:
        """Needs to know nothing of it: the system reads ahead."""

    def keys(self, ids: Ids) -> list[str]:
        """Returns the keys of samples."""
        return self._index.keys(ids)

    def is_large(self, ids: Ids) -> bool:
        """Large ones gain nothing from company, and one at a time they stay in the processor's cache."""
        begins, ends = self._index.extents(ids)
        return bool((ends - begins).sum() > BYTES_AT_ONCE)


@final
class Source(OpenPerProcess[IndexReading | ShardReading]):
    """Samples in shards, at any id.

    Each process reads by itself; what is fetched lies in a cache on disk that all processes of the machine
    share.

    Args:
        shards: where they are, and how they are read.
        told: how many samples are in each, where the user or a catalogue says it; else they are indexed at
            first use.
        progress: of indexing.

    Attributes:
        names: of the shards.
        options: of reading them.
        progress: as it was given.
        logged: the shards of which it was logged that something of them is missing.
        is_indexed: whether all are on disk under one index: nothing is fetched, nothing is missing.
    """

    def __init__(self, shards: Shards, told: list[int] | None, progress: Progress) -> None:
        super().__init__()
        self.names = shards.names
        self.options = shards.options
        self.progress = progress
        self.logged: set[str] = set()
        self.is_indexed = told is None and shards.storage is None
        self._shards = shards
        self._known: Callable[[], Contents | Index] | None = None
        if told is not None:
            self._known = partial(told_contents, shards.short_names, told)

    @cached_property
    def contents(self) -> Contents | Index:
        """What lies in the shards.

        Raises:
            DatasetError: they are indexed now, and one cannot be read, or has a flaw and flaws are errors; or
                another process indexed them, and the index is not in the cache any more.
        """
        if self._known is not None:
            return self._known()
        find = joint_contents if self.is_indexed else indexed_contents
        return find(self._shards, self.progress)

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {name: number for number, name in enumerate(self.names)}

    @property
    def layout(self) -> Layout:
        """How many samples lie in which shard."""
        return self.contents.layout

    @property
    def fingerprint(self) -> str:
        """Changes with the samples."""
        return self.contents.fingerprint

    @property
    def is_remote(self) -> bool:
        """Whether some shards are remote."""
        known = self._shards.catalogue
        if known is not None:
            return known.is_remote
        return self._shards.storage is not None and any(map(is_remote, self.names))

    @property
    def is_layout_known(self) -> bool:
        """Whether the layout is known without requests for remote shards."""
        return self._known is not None or "contents" in self.__dict__ or not self.is_remote

    @property
    def skipped(self) -> Skipped:
        """What was skipped, as far as it is known: nothing, unless flaws are skipped."""
        reading, contents = self._processes.here().held, self.contents
        is_told = isinstance(contents, Contents) and contents.is_told
        return reading.skipped if is_told and reading is not None else contents.skipped

    @property
    def stats(self) -> FileStats:
        """What was fetched and waited for."""
        process = self._processes.here()
        return process.with_workers(with_requests(process.stats, self._shards.storage))

    @property
    def reading(self) -> IndexReading | ShardReading:
        """What reads them in this process."""
        process = self._processes.here()
        held = process.held
        if held is not None:
            return held
        # Before the lock is taken: indexing may take its time, and close must not wait for it.
        contents = self.contents
        if isinstance(contents, Index):
            return process.opened(self, partial(IndexReading, self._shards, contents))
        return process.opened(self, partial(ShardReading, self._shards, contents))

    def shard_bytes(self) -> Ids:
        """Returns the size of each shard; they are asked for it several at the same time."""
        shards = self._shards
        if shards.catalogue is not None:
            return shards.catalogue.sizes
        found = all_in_threads(shards.archive, len(shards.urls), ASKED_AT_A_TIME, "samplerkit-version")
        return np.array([archive.size for archive in found], dtype=np.int64)

    def local_path(self, name: str) -> str | None:
        """Returns where a shard lies on a disk of this machine; None if it does not."""
        return self._shards.local_path(self._numbers[name])

    def close(self) -> None:
        """Lets go of what is open."""
        self._processes.here().close()
        # Last: a thread that reads samples ahead would open it again.
        if self._shards.storage is not None:
            self._shards.storage.close()

    def __getstate__(self) -> dict[str, Any]:
        # The user's terminal does not travel to another process.
        state = {**super().__getstate__(), "progress": silence}
        found = state.get("contents")
        if isinstance(found, Index):
            # It is mapped at its first use: an error of unpickling ends a spawned worker before it can say
            # anything.
            del state["contents"]
            make, arguments = found.__reduce__()
            state["_known"] = partial(make, *arguments)
        return state


def joint_contents(shards: Shards, progress: Progress) -> Index:
    """Finds or makes the joint index of archives on disk.

    Raises:
        DatasetError: an archive cannot be read, or has a flaw and flaws are errors.
    """
    archives, options = tuple(map(Archive.of, shards.names)), shards.options
    found = joint_index(archives, options.cache, checksums=options.checksums, progress=progress)
    _check_skipped(found.skipped, shards)
    return found


def indexed_contents(shards: Shards, progress: Progress) -> Contents:
    """Looks at the index of each shard: beside it, in the cache, or made of the shard.

    The fingerprint is that of the same shards on disk.

    Raises:
        DatasetError: a shard cannot be read, or has a flaw and flaws are errors.
    """
    number = len(shards.urls)
    checksums, found = shards.options.checksums, dict[int, Summary]()

    def find(shard: int) -> Summary | None:
        index = shards.known_index(shard)
        return None if index is None else Summary.of(index, checksums=checksums)

    def fetch(shard: int) -> Summary:
        return Summary.of(shards.open_shard(shard, refuses_stale=False)[0], checksums=checksums)

    progress("indexing archive", 0, number)
    for look, threads in ((find, ASKED_AT_A_TIME), (fetch, FETCHED_AT_A_TIME)):
        missing = [shard for shard in range(number) if shard not in found]
        for shard, part in in_threads(look, missing, threads, "samplerkit-index"):
            if part is not None:
                found[shard] = part
                progress("indexing archive", len(found), number)
    parts = [found[shard] for shard in range(number)]
    joint = Joint.of(parts)
    _check_skipped(joint.skipped, shards)
    firsts, stops = np.array(joint.cuts, dtype=np.int64).T
    counts = np.array([part.num_samples for part in parts], dtype=np.int64)
    layout = Layout(stops - firsts, short_names(shards.urls))
    return Contents(layout, counts, firsts, joint.fingerprint, joint.skipped, is_told=False)


def _check_skipped(skipped: Skipped, shards: Shards) -> None:
    """Logs what is skipped of shards; where flaws are errors, the first one is raised."""
    if not len(skipped):
        return
    if not shards.options.skips:
        raise skipped.places[0].error()
    counts = ", ".join(f"{count} {reason}" for reason, count in skipped.counts.items())
    _LOGGER.warning("skipped in %s and the other archives: %s", shards.names[0], counts)
