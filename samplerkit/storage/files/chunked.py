"""Base classes of datasets that read samples in chunks: files with a reader, row groups, record batches.

To add a format: a subclass of a base in `storage/formats/base.py` that finds the chunks, and a `ChunkFile`
that reads one. docs/contributing.md lists what else names a format.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Final, Literal

import numpy as np

from samplerkit.order import arguments
from samplerkit.order.layout import Layout
from samplerkit.order.typing import Ids
from samplerkit.storage.ahead.cache import ReadAheadCache
from samplerkit.storage.ahead.limits import CacheLimits, warn_of_rereading
from samplerkit.storage.catalogue.catalogue_file import open_catalogue
from samplerkit.storage.catalogue.file_catalogue import Kind
from samplerkit.storage.file_stats import FileStats
from samplerkit.storage.files.content import (
    Content,
    ContentPart,
    checked_decode,
    gathered_samples,
    names_of,
    read_decoded,
)
from samplerkit.storage.files.paths import distinct_names, file_paths
from samplerkit.storage.ids import by_file, checked_ids, checked_index
from samplerkit.storage.per_process import OpenPerProcess, storage_for
from samplerkit.storage.remote.options import RemoteOptions
from samplerkit.storage.remote.storage import RemoteStorage
from samplerkit.storage.threads import Progress, progress_of, silence, this_worker
from samplerkit.storage.urls import is_remote

ChunkCache = ReadAheadCache[Content]
"""The chunks that one process holds in memory."""


@dataclass(frozen=True)
class Chunks:
    """The chunks of a dataset as they were when they were found; they are sent to workers.

    Args:
        layout: the number of samples in each chunk.
        read: reads a chunk by its number, from several threads; it must not hold a reference to the dataset.
        digest: changes with the content; None if there is no such digest.
        files: the files of the chunks, for a format that also reads them in another way.
    """

    layout: Layout
    read: Callable[[int], Content]
    digest: str | None = None
    files: Any = None


class ChunkedDataset(OpenPerProcess[ChunkCache]):
    """A map-style dataset whose samples are in chunks; each chunk is read as a whole and kept for a while.

    The chunks are the files of the dataset's layout. A subclass for a format finds the chunks, once; this
    class implements the dataset, in every process.

    Args:
        limits: the memory limits that the user gave.
        gather: makes a batch from the samples of several chunks.
        storage: reads remote files; None if there are none.
        columns: the columns to return, as the user gave them; None for all.
        decode: the user's function that decodes a sample; None to return samples as they are.
    """

    enters_draws = True
    """A Loader that seeds draws need not read samples one at a time: each item is read in its own draw."""

    is_remote: bool = False
    """Whether some of the files are remote."""

    def __init__(
        self,
        limits: ChunkLimits,
        gather: Callable[[Iterable[ContentPart], int], Any],
        storage: RemoteStorage | None,
        columns: Any = None,
        decode: Any = None,
    ) -> None:
        super().__init__(storage)
        self._columns: Final = names_of(columns)
        self._decode: Final = checked_decode(decode)
        self._given_limits: Final = limits
        self._gather: Final = gather
        self._chunks: Chunks | None = None
        self._has_warned = False

    @abstractmethod
    def _find(self) -> Chunks:
        """Finds the chunks; called once, with the lock of the process held."""

    def _note_counted(self, files: int) -> None:
        process = self._processes.current()
        process.earlier += FileStats(files_counted=files)

    @property
    def _index(self) -> Chunks:
        """The chunks; found at the first access."""
        if self._chunks is None:
            with self._processes.current().lock:
                if self._chunks is None:
                    self._chunks = self._find()
        return self._chunks

    @property
    def layout(self) -> Layout:
        """The number of samples in each chunk; found at the first access."""
        return self._index.layout

    @property
    def fingerprint(self) -> str | None:
        """A digest that changes with the content; None if there is no such digest."""
        return self._index.digest

    @property
    def is_layout_known(self) -> bool:
        """Whether the layout can be returned without a request for remote files."""
        return self._chunks is not None or not self.is_remote

    @property
    def stats(self) -> FileStats:
        """Counts of reads and waits in this process since the dataset was made or the process began.

        Those of workers are in `stats` of their `Loader`.
        """
        return self._stats

    def __len__(self) -> int:
        return len(self.layout)

    def __getitem__(self, index: int) -> Any:
        """Returns a sample."""
        parts = by_file(self.layout, np.array([checked_index(index, self)]))
        with closing(self._cache().each(parts)) as contents:
            return gathered_samples(contents, 1)[0]

    def __getitems__(self, ids: Iterable[int]) -> Any:
        """Returns a batch, in the order of the ids; each chunk is read once.

        Args:
            ids: the ids of the samples, in [0, len), as a list or an array.

        Returns:
            A list of samples, unless the dataset has another form of batches.

        Raises:
            OutOfDatasetError: an id is out of range.
            DatasetError: a chunk cannot be read, now or when it was prefetched.
        """
        checked = checked_ids(ids, len(self))
        cache = self._cache()
        cache.begin(checked)
        with closing(cache.each(by_file(self.layout, checked))) as contents:
            batch = self._gather(contents, checked.size)
        if cache.is_too_small and not self._has_warned:
            self._has_warned = True
            warn_of_rereading(cache.rereads, self._limits)
        return batch

    def expect(self, upcoming: Iterable[Ids]) -> None:
        """Receives the ids that this process will read, to prefetch chunks and to keep those needed again.

        A `Loader` calls this at the start of each epoch and after a resume.

        Args:
            upcoming: the ids of each upcoming batch, int64 arrays; consumed only as far as needed.
        """
        self._cache().expect(upcoming, self.layout.file_of)

    @property
    def _limits(self) -> CacheLimits:
        """The limits of this process: chunks in memory, prefetched chunks and threads."""
        return self._given_limits.cache_limits(is_remote=self.is_remote)

    @property
    def _shown_size(self) -> str:
        return "not opened" if self._chunks is None else f"{len(self._chunks.layout)} samples"

    def _cache(self) -> ChunkCache:
        process = self._processes.current()
        cache = process.open_files
        if cache is not None:
            return cache
        read = partial(read_decoded, self._index.read, self._decode)
        make = partial(ReadAheadCache, read, self._limits)
        return process.open(self, make)


class DatasetOfFiles(ChunkedDataset):
    """A map-style dataset over files that a user names.

    Args:
        files: the argument that the user gave; it may be a catalogue if the class sets `_kind`.
        limits: the memory limits.
        gather: makes a batch from the samples of several chunks.
        progress: the argument that the user gave.
        remote: how URLs are read, as the user gave it; False leaves them to the reader.
        lengths: the number of samples in each file, or where it is saved, which may be a URL.
        find: finds the files that a user names; None for `file_paths`.
        columns: the columns to return, as the user gave them.
        decode: the user's function that decodes a sample.

    Attributes:
        files: the paths and URLs.
        is_remote: whether some of them are remote.
    """

    _kind: ClassVar[Kind | None] = None

    def __init__(
        self,
        files: Any,
        limits: ChunkLimits,
        gather: Callable[[Iterable[ContentPart], int], Any] = gathered_samples,
        progress: Progress | bool | None = False,
        remote: RemoteOptions | Mapping[str, Any] | Literal[False] | None = False,
        lengths: Any = None,
        find: Callable[[Any], tuple[str, ...]] | None = None,
        columns: Any = None,
        decode: Any = None,
    ) -> None:
        self._progress: Final = progress_of(progress)
        options = None if remote is False else RemoteOptions.of(remote)
        catalogue = None if self._kind is None else open_catalogue(files, self._kind, options, lengths)
        self._catalogue: Final = catalogue
        paths = find(files) if find else file_paths(files, options) if catalogue is None else catalogue.files
        self.files: Final = paths
        self._names: Final[tuple[str, ...]] = catalogue.names if catalogue else distinct_names(paths)
        self.is_remote = any(map(is_remote, self.files)) if catalogue is None else catalogue.is_remote
        super().__init__(limits, gather, storage_for(self.is_remote, lengths, options), columns, decode)

    def __getstate__(self) -> dict[str, Any]:
        # Another process does not report progress: it does not own the user's terminal.
        return {**super().__getstate__(), "_progress": silence}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self.files)} files, {self._shown_size})"


AHEAD: Final = 4
"""The default number of remote chunks that a rank prefetches, and of threads that it does so with.

Each thread waits for its own response, so none of them delays another.
"""


@dataclass(frozen=True)
class ChunkLimits:
    """The limits that a user gave: chunks in memory, prefetched chunks and threads.

    Args:
        max_chunks: the largest number of chunks in memory.
        max_bytes: the largest number of bytes in memory; None for no limit.
        read_ahead: how many chunks are prefetched; None for 1, or `AHEAD` per rank if chunks are remote.
        threads: how many of them are read in parallel; None for the default of `read_ahead`.
        argument: the name of the user's argument for `max_chunks`.

    Raises:
        ArgumentTypeError: an argument is not an integer.
        ArgumentRangeError: an argument is too small.
    """

    max_chunks: int
    max_bytes: int | None
    read_ahead: int | None
    threads: int | None
    argument: str = "max_chunks"

    def __post_init__(self) -> None:
        arguments.at_least(self.argument, self.max_chunks, 1)
        for name, least in (("max_bytes", 1), ("read_ahead", 0), ("threads", 1)):
            if (value := getattr(self, name)) is not None:
                arguments.at_least(name, value, least)

    def cache_limits(self, *, is_remote: bool) -> CacheLimits:
        """Returns the limits of this process; a loader's workers share the rank's default for prefetching.

        Args:
            is_remote: whether chunks are remote, so that each has to be waited for.
        """
        default = max(1, AHEAD // this_worker()[1]) if is_remote else 1
        ahead = default if self.read_ahead is None else self.read_ahead
        threads = default if self.threads is None else self.threads
        return CacheLimits(self.max_chunks, self.max_bytes, ahead, threads, argument=self.argument)
