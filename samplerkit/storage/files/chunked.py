"""What all datasets share that read samples in chunks: files with a reader, row groups, record batches."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Generator, Iterable
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, final

import numpy as np

from samplerkit.order import arguments
from samplerkit.order.layout import Layout
from samplerkit.order.typing import Ids
from samplerkit.storage.ahead.cache import ReadAheadCache
from samplerkit.storage.ahead.shelf import CacheLimits
from samplerkit.storage.ahead.stats import FileStats, tell_of_rereading
from samplerkit.storage.files.content import Content, ContentPart, batch_ids, gathered_samples
from samplerkit.storage.files.remote import with_requests
from samplerkit.storage.ids import checked_index
from samplerkit.storage.per_process import OpenPerProcess, Process
from samplerkit.storage.remote.storage import RemoteStorage
from samplerkit.storage.workers import this_worker

ChunkCache = ReadAheadCache[Content]
"""The chunks in memory of one process."""


class ChunkedDataset(OpenPerProcess[ChunkCache]):
    """A map-style dataset whose samples lie in chunks, each read as a whole and kept for a while.

    Chunks are the files of its layout. A format says two things: how the layout is found, once, and how a
    chunk is read; all that is asked of a dataset, in whatever process, is here.

    Args:
        limits: what may be in memory, as the user says it.
        gather: makes a batch of what was taken from chunks.
        storage: fetches what lies elsewhere; None where nothing does.
    """

    enters_draws = True
    """A Loader that seeds draws need not read this one by one: items of sequences are read in their draws."""

    is_remote: bool = False
    """Whether some of its files lie elsewhere."""

    def __init__(
        self,
        limits: AskedLimits,
        gather: Callable[[Iterable[ContentPart], int], Any],
        storage: RemoteStorage | None,
    ) -> None:
        super().__init__()
        self._asked: Final = limits
        self._gather: Final = gather
        self._storage: Final = storage
        self._layout: Layout | None = None
        self._has_told = False

    @abstractmethod
    def _looked_up(self, process: Process[ChunkCache]) -> Layout:
        """Finds out how many samples lie in which chunk; called once, with the lock of the process held."""

    @abstractmethod
    def _reading(self, layout: Layout) -> Callable[[int], Content]:
        """Gives what reads a chunk, by its number, from several threads; it must not hold the dataset."""

    @property
    def layout(self) -> Layout:
        """How many samples lie in which chunk; looked up now if it is not known."""
        if self._layout is None:
            process = self._processes.here()
            with process.lock:
                if self._layout is None:
                    self._layout = self._looked_up(process)
        return self._layout

    @property
    def is_layout_known(self) -> bool:
        """Whether the layout can be told without asking for what lies elsewhere."""
        return self._layout is not None or not self.is_remote

    @property
    def stats(self) -> FileStats:
        """What was read and waited for in this process, since the dataset was made or the process began.

        The workers of a `Loader` are added, as their batches are handed out. Those of a plain DataLoader tell
        nobody.
        """
        process = self._processes.here()
        return process.with_workers(with_requests(process.stats, self._storage))

    def __len__(self) -> int:
        return len(self.layout)

    def __getitem__(self, index: int) -> Any:
        """Gives a sample."""
        with closing(self._parts(np.array([checked_index(index, self)]))) as parts:
            return gathered_samples(parts, 1)[0]

    def __getitems__(self, ids: Iterable[int]) -> Any:
        """Gives a batch, in the order asked for; each chunk is gone through once.

        Args:
            ids: of the samples, in [0, len), as a list or an array.

        Returns:
            A list of samples, unless the dataset was asked for another form of batches.

        Raises:
            OutOfDatasetError: there is no such sample.
            DatasetError: a chunk cannot be read; also if that was found out ahead.
        """
        wanted = batch_ids(ids)
        cache = self._cache()
        cache.begin(wanted)
        with closing(self._parts(wanted)) as parts:
            batch = self._gather(parts, wanted.size)
        if cache.is_too_small and not self._has_told:
            self._has_told = True
            tell_of_rereading(cache.rereading.times, self._limits)
        return batch

    def expect(self, upcoming: Iterable[Ids]) -> None:
        """Is told what this process will read, so that chunks are read ahead and the right ones kept.

        A `Loader` calls it, at the start of each epoch and after a resume.

        Args:
            upcoming: the ids of each batch to come, int64 arrays; iterated over as far as needed.
        """
        self._cache().expect(upcoming, self.layout.file_of)

    def close(self) -> None:
        """Ends the threads and lets go of what is in memory. The dataset can be used again."""
        self._processes.here().close(self._storage)

    @property
    def _limits(self) -> CacheLimits:
        """What this process may have in memory, and do."""
        return self._asked.here(is_remote=self.is_remote)

    @property
    def _shown_size(self) -> str:
        return "not looked at" if self._layout is None else f"{len(self._layout)} samples"

    def _parts(self, ids: Ids) -> Generator[ContentPart, None, None]:
        """Goes through the chunks that hold some of the ids."""
        layout, cache = self.layout, self._cache()
        file = layout.file_of(ids)
        by_file = np.argsort(file, kind="stable")
        numbers, first = np.unique(file[by_file], return_index=True)
        places = dict(zip(numbers.tolist(), np.split(by_file, first[1:]), strict=False))
        try:
            # Not sorted once for all: while one file is gone through, another one arrives.
            while places:
                number = cache.nearest(places)
                mine = places.pop(number)
                with cache.using(number) as content:
                    yield content, ids[mine] - layout.starts[number], mine
                    del content  # else it would stay in memory while the next one is read
        finally:
            cache.end()

    def _cache(self) -> ChunkCache:
        process = self._processes.here()
        held = process.held
        if held is not None:
            return held
        layout = self.layout
        return process.opened(
            self, partial(ReadAheadCache, self._reading(layout), layout.num_files, self._limits)
        )


AHEAD: Final = 4
"""Chunks that a rank reads ahead by as many threads where they lie elsewhere, unless the user says it.

There each waits for its answer, and keeps no other one waiting.
"""


@final
@dataclass(frozen=True)
class AskedLimits:
    """What a user says that a process may have in memory and do, and leaves out.

    Args:
        most: chunks in memory at most.
        max_bytes: bytes in memory at most; None for no limit.
        read_ahead: chunks that are read before they are needed; None for 1, and elsewhere `AHEAD`.
        threads: how many of them at a time; None as for `read_ahead`.
        called: the name of the first of these where the user says it.
    """

    most: int
    max_bytes: int | None
    read_ahead: int | None
    threads: int | None
    called: str

    def here(self, *, is_remote: bool) -> CacheLimits:
        """Gives the limits of this process; the workers of a loader share what a rank reads ahead.

        Args:
            is_remote: chunks lie elsewhere, so that each of them has to be waited for.
        """
        left_out = max(1, AHEAD // this_worker()[1]) if is_remote else 1
        ahead = left_out if self.read_ahead is None else self.read_ahead
        threads = left_out if self.threads is None else self.threads
        return CacheLimits(self.most, self.max_bytes, ahead, threads, called=self.called)


def limits_of(
    most: int,
    max_bytes: int | None,
    read_ahead: int | None,
    threads: int | None,
    *,
    called: str = "max_chunks",
) -> AskedLimits:
    """Takes the limits that a user tells, as `AskedLimits` has them.

    Raises:
        ArgumentTypeError: no integer.
        ArgumentRangeError: one is too small.
    """
    return AskedLimits(
        arguments.at_least(called, most, 1),
        None if max_bytes is None else arguments.at_least("max_bytes", max_bytes, 1),
        None if read_ahead is None else arguments.at_least("read_ahead", read_ahead, 0),
        None if threads is None else arguments.at_least("threads", threads, 1),
        called,
    )
