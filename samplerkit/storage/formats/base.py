"""Base classes of the formats: files of chunks, folders with an index, and samples made from rows."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from operator import getitem
from pathlib import Path, PurePosixPath
from typing import Any, Final

import numpy as np

from samplerkit.errors import ArgumentValueError, DatasetError
from samplerkit.order.layout import Layout
from samplerkit.order.typing import Ids
from samplerkit.storage.files.chunked import ChunkedDataset, ChunkLimits, Chunks, DatasetOfFiles
from samplerkit.storage.files.content import (
    ChunkFile,
    Content,
    FileContent,
    LazySamples,
    digest_of,
    gathered_samples,
)
from samplerkit.storage.files.packages import guarded
from samplerkit.storage.files.paths import one_path
from samplerkit.storage.files.stored import INDEX_SUFFIX, Stored
from samplerkit.storage.formats.file_index import IndexKind
from samplerkit.storage.formats.values import ends_in
from samplerkit.storage.lengths import COUNTING_THREADS
from samplerkit.storage.per_process import storage_for
from samplerkit.storage.remote.access import UNKNOWN_SIZE
from samplerkit.storage.remote.options import RemoteOptions
from samplerkit.storage.threads import all_in_threads
from samplerkit.storage.urls import add_suffix, is_remote, shown

INDEX: Final = "index.json"


@dataclass(frozen=True, eq=False)
class ChunkPositions:
    """The positions in files of all chunks that have samples.

    Args:
        file_at: returns a file by its number; a file of a catalogue is built when it is needed.
        file: the number of the file of each chunk.
        chunk: the number of each chunk in its file.
    """

    file_at: Callable[[int], ChunkFile]
    file: Ids
    chunk: Ids

    def at(self, number: int) -> tuple[ChunkFile, int]:
        """Returns the file of a chunk, and the number of the chunk in it."""
        return self.file_at(int(self.file[number])), int(self.chunk[number])

    def read(self, number: int) -> Content:
        """Reads a chunk; errors name the chunk."""
        file, chunk = self.at(number)
        return guarded(file.place(chunk), "read", lambda: file.read(chunk))


class FormatOfFiles(DatasetOfFiles):
    """A dataset over files that have several chunks each.

    `_inspect` may raise any exception: it is turned into an error that names the file.
    """

    @abstractmethod
    def _inspect(self, number: int) -> Any:
        """Examines a file by its number, and returns a `ChunkFile`; called from several threads."""

    def _inspect_all(self) -> list[Any]:
        def inspect(number: int) -> Any:
            return guarded(shown(self.files[number]), "read", lambda: self._inspect(number))

        report = partial(self._progress, "files examined:")
        return all_in_threads(inspect, range(len(self.files)), COUNTING_THREADS, "samplerkit-scan", report)

    def _find(self) -> Chunks:
        files = self._inspect_all()
        columns = files[0].columns if files else ()
        for place, file in zip(self.files, files, strict=True):
            if file.columns != columns:
                problem = f"has other columns than {self._names[0]}, {list(columns)}"
                hint = "select columns that all files have"
                raise DatasetError(shown(place), problem, list(file.columns), hint=hint)
        starts = np.cumsum([0, *(len(file.sizes) for file in files)])
        sizes = np.fromiter(chain.from_iterable(file.sizes for file in files), np.int64, int(starts[-1]))
        # Not `files.__getitem__`: a copy of the dataset would share this bound method.
        file_at: Any = partial(getitem, files)
        return self._chunks_of(file_at, starts, sizes, b"".join(file.digest for file in files))

    def _chunks_of(self, get: Callable[[int], ChunkFile], starts: Ids, sizes: Ids, digests: bytes) -> Chunks:
        """Makes the chunks of all files.

        Args:
            get: returns a file by its number.
            starts: the number of the first chunk of each file.
            sizes: the number of samples in each chunk.
            digests: the digests of all files, joined.
        """
        numbers = np.flatnonzero(sizes)
        file = np.searchsorted(starts, numbers, side="right") - 1
        chunks = ChunkPositions(get, file, numbers - starts[file])
        pairs = zip(file.tolist(), chunks.chunk.tolist(), strict=True)
        layout = Layout(sizes[numbers], [f"{self._names[at]}:{chunk}" for at, chunk in pairs])
        return Chunks(layout, chunks.read, digest_of(digests).hex() if digests else None, chunks)


class IndexedFiles(FormatOfFiles):
    """A dataset over indexed files; the indexes can be written next to the files."""

    _indexes: IndexKind

    def save_indexes(self, folder: str | os.PathLike[str] | None = None) -> int:
        """Writes the index of each file, so that other machines and jobs need not make it.

        Args:
            folder: the folder to write to, under the names of the files and `.skidx`, for uploading next to
                remote files; None to write next to the files.

        Returns:
            The number of samples.

        Raises:
            ArgumentTypeError: `folder` is not a path.
            ArgumentValueError: files are remote and no folder was given, or it is a URL, or two indexes have
                the same name.
            DatasetError: a file cannot be read, or an index cannot be written.
        """
        if folder is None and self.is_remote:
            hint = "name a folder, and upload its files"
            problem = "is needed, since nothing is written next to remote files"
            raise ArgumentValueError("folder", problem, folder, hint=hint)
        folder = None if folder is None else one_path("folder", folder, "upload its files")
        ends = self.files if folder is None else [name.rpartition("/")[2] for name in self._names]
        if len(set(ends)) < len(ends):
            hint = "save the indexes of each folder separately"
            raise ArgumentValueError("folder", "would have indexes of the same name", folder, hint=hint)

        def save(number: int) -> int:
            stored = Stored.of(self.files[number], self._storage)
            indexed = self._indexes.of(stored)
            target = Path(folder or "", ends[number] + INDEX_SUFFIX)
            try:
                self._indexes.write(target, stored, indexed)
            except OSError as error:
                raise DatasetError(str(target), f"cannot be written ({error.strerror})") from error
            return len(indexed)

        report = partial(self._progress, "files indexed:")
        return sum(all_in_threads(save, range(len(self.files)), COUNTING_THREADS, "samplerkit-index", report))


class FolderDataset(ChunkedDataset):
    """Samples in the files of a folder that has an index, local or at a URL.

    Args:
        folder: the argument that the user gave.
        columns: the columns to return; None for all.
        decode: makes a sample from the value that was read; None to return the value itself.
        max_chunks: chunks in memory at most, including prefetched ones.
        max_bytes: bytes in memory at most; None for no limit.
        read_ahead: how many chunks are prefetched.
        threads: how many of them are read in parallel.
        remote: how URLs are read, the argument that the user gave.

    Attributes:
        folder: the path or URL.
        is_remote: whether it is remote.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        columns: Sequence[str] | None = None,
        *,
        decode: Callable[[Any], Any] | None = None,
        max_chunks: int = 4,
        max_bytes: int | None = None,
        read_ahead: int | None = None,
        threads: int | None = None,
        remote: RemoteOptions | Mapping[str, Any] | None = None,
    ) -> None:
        self.folder: Final = one_path("folder", folder)
        self.is_remote = is_remote(self.folder)
        limits = ChunkLimits(max_chunks, max_bytes, read_ahead, threads)
        storage = storage_for(self.is_remote, None, RemoteOptions.of(remote))
        super().__init__(limits, gathered_samples, storage, columns, decode)

    @abstractmethod
    def _parse_index(self, index: bytes, place: str) -> Sequence[FolderShard]:
        """Finds the files that an index lists; may raise any exception. `place` is the index's name."""

    def _find(self) -> Chunks:
        index = Stored.of(self._inside(INDEX), self._storage)
        (data,) = index.read([(0, index.size)])

        def parse() -> Chunks:
            shards = self._parse_index(data, index.name)
            layout = Layout([shard.samples for shard in shards], [shard.name for shard in shards])
            files = [(shard, self._stored(shard)) for shard in shards]
            return Chunks(layout, partial(_read_shard, files), digest_of(data).hex())

        return guarded(index.name, "read", parse)

    def _inside(self, name: str) -> str:
        if not self.is_remote:
            return os.fspath(Path(self.folder, name))
        return add_suffix(self.folder, name if self.folder.endswith("/") else f"/{name}")

    def _stored(self, shard: FolderShard) -> Stored:
        """Returns a file of the index, without a request if it is remote: there may be very many files."""
        path = self._inside(shard.file)
        return Stored(path, UNKNOWN_SIZE, 0, self._storage) if self.is_remote else Stored.of(path)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({shown(self.folder)!r}, {self._shown_size})"


Rows = tuple[Sequence[Any], int, Callable[[Any], Any]]
"""The rows of a chunk, their size in memory, and the function that makes a sample from a row."""


@dataclass(frozen=True)
class FolderShard(ABC):
    """A file that an index lists.

    Args:
        name: the name in the layout.
        samples: the number of samples.
        file: the path of the file to read, below the folder.
        plain_sizes: the sizes in bytes that the decompressed file may have.

    Raises:
        ValueError: the file is outside of the folder, or a number is not valid.
    """

    name: str
    samples: int
    file: str
    plain_sizes: tuple[int, ...]

    def __post_init__(self) -> None:
        path = PurePosixPath(self.file)
        if path.is_absolute() or ".." in path.parts or not path.parts:
            raise ValueError(f"a shard outside of the folder, {self.file!r}")
        if any(type(number) is not int or number < 0 for number in (self.samples, *self.plain_sizes)):
            raise ValueError(f"{self.file!r} of {self.plain_sizes[0]!r} bytes and {self.samples!r} samples")

    @abstractmethod
    def rows(self, data: bytes) -> Rows:
        """Splits the bytes of the file into rows; may raise any exception."""

    def split(self, plain: bytes) -> tuple[bytes, list[int]]:
        """Splits the decompressed file, which begins with the offsets of its samples.

        Returns:
            The part between the offsets and the first sample; and the offsets at which samples begin and the
            last one ends.

        Raises:
            ValueError: the file does not match the index, or a sample ends before it begins.
        """
        if len(plain) not in self.plain_sizes:
            raise ValueError(f"it has {len(plain)} bytes, but {INDEX} lists {self.plain_sizes[0]}")
        samples, head = int.from_bytes(plain[:4], "little"), 4 * (self.samples + 2)
        if samples != self.samples:
            raise ValueError(f"it has {samples} samples, but {INDEX} lists {self.samples}")
        ends = ends_in(plain, 4, samples)
        if ends[0] < head or ends[-1] > len(plain):
            raise ValueError("its sample offsets are wrong")
        return plain[head : ends[0]], ends


def _read_shard(files: Sequence[tuple[FolderShard, Stored]], number: int) -> FileContent:
    shard, stored = files[number]
    if stored.size == UNKNOWN_SIZE:
        stored = Stored.of(stored.path, stored.storage)
    (data,) = stored.read([(0, stored.size)])
    return content_of(stored.name, *guarded(stored.name, "read", lambda: shard.rows(data)))


def content_of(place: str, rows: Sequence[Any], size: int, make: Callable[[Any], Any]) -> FileContent:
    """Returns a chunk in memory whose samples are made when they are read.

    Args:
        place: the name in error messages.
        rows: the rows that samples are made from.
        size: their size in memory, in bytes.
        make: makes a sample from a row.
    """
    return FileContent(place, LazySamples(rows, make, size), len(rows), size)
