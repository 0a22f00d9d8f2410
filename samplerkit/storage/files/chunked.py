"""What all datasets share that read samples in chunks: files with a reader, row groups, record batches."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Generator, Iterable
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Final, final

import numpy as np

from samplerkit.order import arguments
from samplerkit.order.layout import Layout
from samplerkit.order.typing import Ids
from samplerkit.storage.ahead.cache import ReadAheadCache
from samplerkit.storage.ahead.cache_entries import CacheLimits, FileStats, tell_of_rereading
from samplerkit.storage.catalogue.catalogue_file import opened_catalogue
from samplerkit.storage.catalogue.file_catalogue import Kind
from samplerkit.storage.files.content import Content, ContentPart, DecodeSample, MadeSamples, gathered_samples
from samplerkit.storage.files.paths import distinct_names, file_paths
from samplerkit.storage.ids import by_file, checked_ids, checked_index
from samplerkit.storage.per_process import OpenPerProcess, storage_for, with_requests
from samplerkit.storage.remote.options import RemoteOptions
from samplerkit.storage.remote.storage import RemoteStorage
from samplerkit.storage.threads import Progress, progress_of, silence, this_worker
from samplerkit.storage.urls import is_remote

ChunkCache = ReadAheadCache[Content]
"""The chunks in memory of one process."""


@final
@dataclass(frozen=True)
class Chunks:
    """The chunks of a dataset as they were when they were found; they travel to workers.

    Args:
        layout: how many samples are in which chunk.
        read: reads a chunk, by its number, from several threads; it must not hold the dataset.
        digest: changes with the content; None where nothing does.
        files: those that the chunks are in, for a format that reads them in another way too.
    """

    layout: Layout
    read: Callable[[int], Content]
    digest: str | None = None
    files: Any = None


class ChunkedDataset(OpenPerProcess[ChunkCache]):
    """A map-style dataset whose samples are in chunks, each read as a whole and kept for a while.

    Chunks are the files of its layout. A format finds its chunks, once; all that is asked of a dataset, in
    whatever process, is here.

    Args:
        limits: what may be in memory, as the user gave it.
        gather: makes a batch of what was taken from chunks.
        storage: reads remote files; None where there are none.
    """

    enters_draws = True
    """A Loader that seeds draws need not read this one by one: items of sequences are read in their draws."""

    is_remote: bool = False
    """Whether some of its files are remote."""

    _decode: DecodeSample | None = None
    """What the user makes of a sample; None for the same."""

    def __init__(
        self,
        limits: ChunkLimits,
        gather: Callable[[Iterable[ContentPart], int], Any],
        storage: RemoteStorage | None,
    ) -> None:
        super().__init__()
        self._asked: Final = limits
        self._gather: Final = gather
        self._storage: Final = storage
        self._chunks: Chunks | None = None
        self._has_told = False

    @abstractmethod
    def _find(self) -> Chunks:
        """Finds the chunks; called once, with the lock of the process held."""

    def _note_counted(self, files: int) -> None:
        process = self._processes.here()
        process.before += FileStats(files_counted=files)

    @property
    def _found(self) -> Chunks:
        """The chunks; found now if they are not known."""
        if self._chunks is None:
            with self._processes.here().lock:
                if self._chunks is None:
                    self._chunks = self._find()
        return self._chunks

    @property
    def layout(self) -> Layout:
        """How many samples are in which chunk; looked up now if it is not known."""
        return self._found.layout

    @property
    def fingerprint(self) -> str | None:
        """A digest that changes with the content; None where nothing says so."""
        return self._found.digest

    @property
    def is_layout_known(self) -> bool:
        """Whether the layout is known without a request for remote files."""
        return self._chunks is not None or not self.is_remote

    @property
    def stats(self) -> FileStats:
        """What was read and waited for in this process, since the dataset was made or the process began.

        The workers of a `Loader` are added, as their batches are handed out. Those of a plain DataLoader are
        not known.
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
        """Returns a batch, in the order of the ids; each chunk is gone through once.

        Args:
            ids: of the samples, in [0, len), as a list or an array.

        Returns:
            A list of samples, unless the dataset has another form of batches.

        Raises:
            OutOfDatasetError: there is no such sample.
            DatasetError: a chunk cannot be read; also if that was found out ahead.
        """
        wanted = checked_ids(ids, len(self))
        cache = self._cache()
        cache.begin(wanted)
        with closing(self._parts(wanted)) as parts:
            batch = self._gather(parts, wanted.size)
        if cache.is_too_small and not self._has_told:
            self._has_told = True
            self._tell_of_rereading(cache.read_again)
        return batch

    def _tell_of_rereading(self, times: int) -> None:
        tell_of_rereading(times, self._limits)

    def expect(self, upcoming: Iterable[Ids]) -> None:
        """Receives what this process will read, so that chunks are read ahead and the right ones kept.

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
        return "not looked at" if self._chunks is None else f"{len(self._chunks.layout)} samples"

    def _parts(self, ids: Ids) -> Generator[ContentPart, None, None]:
        """Goes through the chunks that hold some of the ids."""
        return self._cache().each(by_file(self.layout, ids))

    def _cache(self) -> ChunkCache:
        process = self._processes.here()
        held = process.held
        if held is not None:
            return held
        read = self._found.read if self._decode is None else partial(_decoded, self._found.read, self._decode)
        make = partial(ReadAheadCache, read, self.layout.num_files, self._limits)
        return process.opened(self, make)


def _decoded(read: Callable[[int], Any], decode: DecodeSample, number: int) -> Any:
    content = read(number)
    return replace(content, data=MadeSamples(content.data, decode, content.num_bytes))


class DatasetOfFiles(ChunkedDataset):
    """A map-style dataset over files that a user names.

    Args:
        files: as the user gave them; where `_kind` says what they are, they may be a catalogue.
        limits: what may be in memory.
        gather: makes a batch of what was taken from chunks.
        progress: as the user gave it.
        options: how URLs are read; None leaves them to the reader.
        lengths: of the samples in each file, which may be at a URL too.
        paths: finds the files that a user names, for a format that has its own way.

    Attributes:
        files: the paths and URLs.
        is_remote: whether some of them are remote.
    """

    _kind: ClassVar[Kind | None] = None

    def __init__(
        self,
        files: Any,
        limits: ChunkLimits,
        gather: Callable[[Iterable[ContentPart], int], Any],
        progress: Progress | bool | None,
        options: RemoteOptions | None,
        lengths: Any = None,
        paths: Callable[[Any], tuple[str, ...]] | None = None,
    ) -> None:
        self._progress: Final = progress_of(progress)
        known = None if self._kind is None else opened_catalogue(files, self._kind, options)
        self._catalogue: Final = known
        found = paths(files) if paths else file_paths(files, options) if known is None else known.files
        self.files: Final = found
        names = tuple(known.names) if known else distinct_names(found) if found else ()
        self._names: Final = names
        self.is_remote = any(map(is_remote, self.files)) if known is None else known.is_remote
        super().__init__(limits, gather, storage_for(self.is_remote, lengths, options))

    def __getstate__(self) -> dict[str, Any]:
        # The user's terminal does not travel to another process.
        return {**super().__getstate__(), "_progress": silence}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self.files)} files, {self._shown_size})"


AHEAD: Final = 4
"""Remote chunks that a rank reads ahead by as many threads, unless the user says it.

There each waits for its answer, and keeps no other one waiting.
"""


@final
@dataclass(frozen=True)
class ChunkLimits:
    """What a process may have in memory and do, as far as the user says it.

    Args:
        most: chunks in memory at most.
        max_bytes: bytes in memory at most; None for no limit.
        read_ahead: chunks that are read before they are needed; None for 1, and `AHEAD` of remote ones.
        threads: how many of them at a time; None as for `read_ahead`.
        called: the name of the first of these where the user says it.

    Raises:
        ArgumentTypeError: no integer.
        ArgumentRangeError: one is too small.
    """

    most: int
    max_bytes: int | None
    read_ahead: int | None
    threads: int | None
    called: str = "max_chunks"

    def __post_init__(self) -> None:
        arguments.at_least(self.called, self.most, 1)
        for name, least in (("max_bytes", 1), ("read_ahead", 0), ("threads", 1)):
            if (value := getattr(self, name)) is not None:
                arguments.at_least(name, value, least)

    def here(self, *, is_remote: bool) -> CacheLimits:
        """Gives the limits of this process; the workers of a loader share what a rank reads ahead.

        Args:
            is_remote: chunks are remote, so that each of them has to be waited for.
        """
        left_out = max(1, AHEAD // this_worker()[1]) if is_remote else 1
        ahead = left_out if self.read_ahead is None else self.read_ahead
        threads = left_out if self.threads is None else self.threads
        return CacheLimits(self.most, self.max_bytes, ahead, threads, called=self.called)
