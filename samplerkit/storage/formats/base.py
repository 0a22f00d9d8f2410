"""Base classes of the formats: files of chunks, folders with an index, and samples made from rows."""

from __future__ import annotations

import hashlib
import os
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar, Final, final

import numpy as np

from samplerkit.errors import DatasetError
from samplerkit.order.layout import Layout
from samplerkit.order.typing import Ids
from samplerkit.storage.files.chunked import ChunkedDataset, ChunkLimits, Chunks, DatasetOfFiles
from samplerkit.storage.files.content import (
    ChunkFile,
    Content,
    FileContent,
    LazySamples,
    gathered_samples,
)
from samplerkit.storage.files.packages import guarded
from samplerkit.storage.files.paths import one_path
from samplerkit.storage.files.stored import Stored
from samplerkit.storage.formats.values import between, ends_in
from samplerkit.storage.lengths import COUNTING_THREADS
from samplerkit.storage.open_files import REWRITE
from samplerkit.storage.per_process import storage_for
from samplerkit.storage.remote.options import RemoteOptions
from samplerkit.storage.remote.version import UNKNOWN_SIZE
from samplerkit.storage.threads import all_in_threads
from samplerkit.storage.urls import add_suffix, is_remote, shown

INDEX: Final = "index.json"


@final
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


def _file_of(files: Sequence[ChunkFile], number: int) -> ChunkFile:
    """Returns a file. Not `files.__getitem__`: a copy of the dataset would share this bound method."""
    return files[number]


class FormatOfFiles(DatasetOfFiles):
    """A dataset over files that have several chunks each.

    `_inspect` may raise any exception: it is turned into an error that names the file.
    """

    _progress_label: ClassVar[str] = "headers read:"

    @abstractmethod
    def _inspect(self, number: int) -> ChunkFile:
        """Examines a file by its number; called from several threads."""

    def _find(self) -> Chunks:
        def inspect(number: int) -> ChunkFile:
            return guarded(shown(self.files[number]), "read", lambda: self._inspect(number))

        report = partial(self._progress, self._progress_label)
        files = all_in_threads(inspect, len(self.files), COUNTING_THREADS, "samplerkit-scan", report)
        columns = files[0].columns if files else ()
        for place, file in zip(self.files, files, strict=True):
            if file.columns != columns:
                problem = f"has other columns than {self._names[0]}, {list(columns)}"
                hint = "select columns that all files have"
                raise DatasetError(shown(place), problem, list(file.columns), hint=hint)
        starts = np.cumsum([0, *(len(file.sizes) for file in files)])
        sizes = np.fromiter(chain.from_iterable(file.sizes for file in files), np.int64, int(starts[-1]))
        return self._chunks_of(
            partial(_file_of, files), starts, sizes, b"".join(file.digest for file in files)
        )

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
    def _parse_index(self, index: bytes, place: str) -> ParsedIndex:
        """Finds the files that an index lists; may raise any exception. `place` is the index's name."""

    def _find(self) -> Chunks:
        index = Stored.of(self._inside(INDEX), self._storage)
        (data,) = index.read([(0, index.size)])

        def parse() -> Chunks:
            shards, rows = self._parse_index(data, index.name)
            layout = Layout([shard.samples for shard in shards], [shard.name for shard in shards])
            files = [self._stored(shard) for shard in shards]
            return Chunks(layout, partial(_read_shard, files, rows), digest_of(data).hex())

        return guarded(index.name, "read", parse)

    def _inside(self, name: str) -> str:
        if not self.is_remote:
            return os.fspath(Path(self.folder, name))
        return add_suffix(self.folder, name if self.folder.endswith("/") else f"/{name}")

    def _stored(self, shard: FolderShard) -> Stored:
        """Returns a file of the index, without a request if it is remote: there may be very many files."""
        path, sizes = self._inside(shard.file), shard.sizes
        if self.is_remote:
            return Stored(path, UNKNOWN_SIZE, 0, self._storage)
        stored = Stored.of(path)
        if sizes and stored.size not in sizes:
            problem = f"must have {sizes[0]} bytes, as {INDEX} lists"
            raise DatasetError(stored.name, problem, stored.size, hint=REWRITE)
        return stored

    def __repr__(self) -> str:
        place = shown(self.folder) if self.is_remote else self.folder
        return f"{type(self).__name__}({place!r}, {self._shown_size})"


@dataclass(frozen=True)
class FolderShard:
    """A file that an index lists.

    Args:
        name: the name in the layout.
        samples: the number of samples.
        file: the path of the file to read, below the folder.
        sizes: the sizes in bytes that the file may have; empty if the index has none.
        plain_sizes: the sizes in bytes that the decompressed file may have.

    Raises:
        ValueError: the file is outside of the folder, or a number is not valid.
    """

    name: str
    samples: int
    file: str
    sizes: tuple[int, ...]
    plain_sizes: tuple[int, ...]

    def __post_init__(self) -> None:
        path = PurePosixPath(self.file)
        if path.is_absolute() or ".." in path.parts or not path.parts:
            raise ValueError(f"a shard outside of the folder, {self.file!r}")
        if any(
            type(number) is not int or number < 0 for number in (self.samples, *self.sizes, *self.plain_sizes)
        ):
            size = (*self.sizes, *self.plain_sizes)[0]
            raise ValueError(f"{self.file!r} of {size!r} bytes and {self.samples!r} samples")

    def split(self, plain: bytes) -> tuple[bytes, list[bytes], bytes]:
        """Splits the decompressed file, which begins with the offsets of its samples.

        Returns:
            The part before the samples, the bytes of each sample, and the part after them.

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
        return plain[head : ends[0]], between(plain, ends), plain[ends[-1] :]


Rows = tuple[Sequence[Any], int, Callable[[Any], Any]]
"""The rows of a chunk, their size in memory, and the function that makes a sample from a row."""

ParsedIndex = tuple[Sequence[FolderShard], Callable[[int, bytes], Rows]]
"""Shards, and the function that splits the bytes of one into rows; it may raise any exception."""


def _read_shard(files: Sequence[Stored], rows: Callable[[int, bytes], Rows], number: int) -> FileContent:
    stored = files[number]
    if stored.size == UNKNOWN_SIZE:
        stored = Stored.of(stored.path, stored.storage)
    (data,) = stored.read([(0, stored.size)])
    content = guarded(stored.name, "read", lambda: rows(number, data))
    return content_of(stored.name, *content)


def content_of(place: str, rows: Sequence[Any], size: int, make: Callable[[Any], Any]) -> FileContent:
    """Returns a chunk in memory whose samples are made when they are read.

    Args:
        place: the name in error messages.
        rows: the rows that samples are made from.
        size: their size in memory, in bytes.
        make: makes a sample from a row.
    """
    return FileContent(place, LazySamples(rows, make, size), len(rows), size)


def digest_of(data: bytes) -> bytes:
    """Returns a digest of data, for a fingerprint."""
    return hashlib.blake2b(data, digest_size=16).digest()
