"""Datasets over HDF5 files and zarr groups: samples are rows of arrays of one length, read by chunk."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any, Final, Literal, final

from samplerkit.errors import DatasetError
from samplerkit.order import arguments
from samplerkit.storage.files.chunked import ChunkLimits
from samplerkit.storage.files.content import ChunkFile, FileContent, names_of
from samplerkit.storage.files.packages import extra
from samplerkit.storage.files.paths import local_paths, one_path
from samplerkit.storage.files.stored import Stored
from samplerkit.storage.formats.arrow_rows import Batches, gather_of
from samplerkit.storage.formats.base import FormatOfFiles

MissingChunks = Literal["raise", "fill"]


@final
class Hdf5Dataset(FormatOfFiles):
    """Samples in HDF5 files: a sample is a row of each array, and chunks of rows are the files of the layout.

    A file is open only while a chunk is read. Arrays that lead out of their file (external links and storage,
    virtual arrays) and arrays of references to other objects are refused.

    Args:
        files: a path or a glob pattern, whose matches are sorted by bytes; or a list of these, in the order
            given.
        arrays: the paths of the arrays in a file; None for all at the top level.
        chunk_rows: how many rows are read at once; None for the rows of the largest chunk, or 1024 if arrays
            are not chunked.
        batches: the form of a batch: `samples`, a list of dicts; `columns` or `tensors`, a dict of these.
        max_chunks: chunks in memory at most, including prefetched ones.
        max_bytes: bytes in memory at most; None for no limit.
        read_ahead: how many chunks are prefetched; 0 for none.
        threads: how many threads prefetch; HDF5 itself reads one chunk at a time.

    Attributes:
        files: the paths.

    Raises:
        ArgumentTypeError: an argument has the wrong type.
        ArgumentValueError: no file, a file given twice, a URL, or an unknown option.
        ArgumentRangeError: a number is too small.
        DatasetError: no file matches the pattern; later, h5py is not installed, a file cannot be read or has
            changed, or its arrays have different lengths.

    Example:
        >>> Hdf5Dataset("train.h5", ["x", "y"], batches="tensors")
        Hdf5Dataset(1 files, not opened)
    """

    def __init__(
        self,
        files: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
        arrays: Sequence[str] | None = None,
        *,
        chunk_rows: int | None = None,
        batches: Batches = "samples",
        max_chunks: int = 4,
        max_bytes: int | None = None,
        read_ahead: int = 1,
        threads: int = 1,
    ) -> None:
        self._arrays: Final = names_of(arrays, "arrays")
        self._chunk_rows: Final = arguments.limit("chunk_rows", chunk_rows)
        limits = ChunkLimits(max_chunks, max_bytes, read_ahead, threads)
        super().__init__(files, limits, gather_of(batches), find=local_paths)

    def _inspect(self, number: int) -> ChunkFile:
        stored = Stored.of(self.files[number])
        return Hdf5Rows(path=stored.path, stored=stored).of(self._arrays, self._chunk_rows)


@final
class ZarrDataset(FormatOfFiles):
    """Samples in a zarr group on disk: a sample is a row of each array; chunks are the files of the layout.

    Reads versions 2 and 3, shards, and all compressions of zarr. Pickled arrays are refused.

    Args:
        folder: the folder of the group.
        arrays: the names of the arrays in the group; None for all.
        chunk_rows: how many rows are read at once; None for the rows of the largest chunk or shard.
        missing_chunks: how missing chunks are read. zarr does not write chunks that hold only the fill value,
            so a lost chunk looks the same: `raise` makes both an error, `fill` reads both as the fill value.
        batches: the form of a batch: `samples`, a list of dicts; `columns` or `tensors`, a dict of these.
        max_chunks: chunks in memory at most, including prefetched ones.
        max_bytes: bytes in memory at most; None for no limit.
        read_ahead: how many chunks are prefetched; 0 for none.
        threads: how many of them are read in parallel.

    Raises:
        ArgumentTypeError: an argument has the wrong type.
        ArgumentValueError: a URL, or an unknown option.
        ArgumentRangeError: a number is too small.
        DatasetError: later, zarr is not installed, the group cannot be read, or its arrays have different
            lengths.

    Example:
        >>> ZarrDataset("train.zarr", ["x", "y"])
        ZarrDataset('train.zarr', not opened)
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        arrays: Sequence[str] | None = None,
        *,
        chunk_rows: int | None = None,
        missing_chunks: MissingChunks = "raise",
        batches: Batches = "samples",
        max_chunks: int = 4,
        max_bytes: int | None = None,
        read_ahead: int = 1,
        threads: int = 1,
    ) -> None:
        self._arrays: Final = names_of(arrays, "arrays")
        self._chunk_rows: Final = arguments.limit("chunk_rows", chunk_rows)
        arguments.choice("missing_chunks", missing_chunks, ("raise", "fill"))
        self._fills: Final = missing_chunks == "fill"
        limits = ChunkLimits(max_chunks, max_bytes, read_ahead, threads)
        self.folder: Final = one_path("folder", folder, "fetch it")
        super().__init__([self.folder], limits, gather_of(batches), find=tuple)

    def __repr__(self) -> str:
        return f"ZarrDataset({self.folder!r}, {self._shown_size})"

    def _inspect(self, number: int) -> ChunkFile:
        return ZarrRows(path=self.folder, fills=self._fills).of(self._arrays, self._chunk_rows)


@dataclass(frozen=True, eq=False, kw_only=True)
class RowRanges(ChunkFile):
    """The rows of a file or group, in ranges. There is no digest: shapes do not change with the content.

    Args:
        path: the path of the file or group.
        step: the number of rows of a range; the last range may have fewer.
        shapes: the shape and type of each array, for errors and to detect changes.
    """

    path: str
    step: int = 0
    shapes: Sequence[tuple[tuple[int, ...], str]] = ()

    @abstractmethod
    def open_arrays(self, names: Sequence[str] | None) -> AbstractContextManager[Mapping[str, Any]]:
        """Opens the arrays of these names, or all; they have `shape`, `dtype` and `chunks`."""

    @abstractmethod
    def rows(self, name: str, array: Any, chunk: int) -> Any:
        """Reads a range of an open array, given its name."""

    def of(self, names: Sequence[str] | None, step: int | None) -> RowRanges:
        """Returns the ranges of the rows of arrays.

        Args:
            names: the names of the arrays; None for all.
            step: the rows of a range; None for the rows of the largest chunk, or 1024 without chunks.

        Raises:
            DatasetError: there is no array, one is a single value, or they have different lengths.
        """
        with self.open_arrays(names) as arrays:
            count = FileContent.of(arrays, self.path).length
            step = step or max(map(_rows_at_once, arrays.values())) or 1024
            shapes = [*map(_shape, arrays.values())]
            sizes = [min(step, count - start) for start in range(0, count, step)]
            return replace(self, step=step, shapes=shapes, columns=tuple(arrays), sizes=sizes)

    def place(self, chunk: int) -> str:
        """Returns the name of a range in error messages."""
        span = self.span(chunk)
        return f"{self.path}, rows {span.start} to {span.stop}"

    def read(self, chunk: int) -> FileContent:
        """Reads a range.

        Raises:
            DatasetError: the file was changed, or an array has another shape or type.
        """
        columns = {}
        with self.open_arrays(self.columns) as arrays:
            for before, (name, array) in zip(self.shapes, arrays.items(), strict=True):
                if (now := _shape(array)) != before:
                    raise DatasetError(self.path, f"array {name!r} has changed from {before}", now)
                columns[name] = self.rows(name, array, chunk)
        return FileContent.of(columns, self.place(chunk))

    def span(self, chunk: int) -> slice:
        """Returns the rows of a range."""
        return slice(chunk * self.step, chunk * self.step + self.sizes[chunk])


@dataclass(frozen=True, eq=False, kw_only=True)
class Hdf5Rows(RowRanges):
    """The rows of an HDF5 file."""

    stored: Stored

    @contextmanager
    def open_arrays(self, names: Sequence[str] | None) -> Iterator[Mapping[str, Any]]:
        """Opens arrays of the file, by default those at the top level that are not links."""
        self.stored.require_same()
        h5py = extra("h5py", "hdf5")
        with h5py.File(self.path, "r") as file:
            if names is None:
                links = {name: file.get(name, getlink=True) for name in file}
                own = (name for name, link in links.items() if isinstance(link, h5py.HardLink))
                names = [name for name in own if isinstance(file[name], h5py.Dataset)]
            yield {name: _hdf5_array(h5py, self.path, file, name) for name in names}

    def rows(self, name: str, array: Any, chunk: int) -> Any:
        """Reads a range; texts are strings."""
        is_text = extra("h5py", "hdf5").check_string_dtype(array.dtype) is not None
        return (array.asstr() if is_text else array)[self.span(chunk)]


def _hdf5_array(h5py: Any, path: str, file: Any, name: str) -> Any:
    """Returns an array of a file, unless it leads to another file.

    Raises:
        DatasetError: there is no such array, or it leads to another file.
    """
    # Checked before links are followed: the other file may be a pipe. A link within the file may lead to an
    # external link.
    parts = name.strip("/").split("/")
    links = (file.get("/".join(parts[:end]), getlink=True) for end in range(1, len(parts) + 1))
    other: Any = next((link.filename for link in links if isinstance(link, h5py.ExternalLink)), None)
    array = None if other else file.get(name)
    if isinstance(array, h5py.Dataset):
        sources = array.virtual_sources() if array.is_virtual else ()
        is_own = array.file.filename == file.filename
        other = (array.external or [each.file_name for each in sources]) if is_own else array.file.filename
    if other:
        hint = "name that file, or copy the array into this one"
        raise DatasetError(path, f"array {name!r} is in another file", other, hint=hint)
    if not isinstance(array, h5py.Dataset):
        raise DatasetError(path, f"must have an array {name!r}", sorted(file))
    kind = array.dtype
    if kind.hasobject and h5py.check_string_dtype(kind) is None and h5py.check_vlen_dtype(kind) is None:
        raise DatasetError(path, f"array {name!r} holds references, which are not followed", str(kind))
    return array


@dataclass(frozen=True, eq=False, kw_only=True)
class ZarrRows(RowRanges):
    """The rows of a zarr group; `fills` reads missing chunks as the fill value."""

    fills: bool

    def open_arrays(self, names: Sequence[str] | None) -> AbstractContextManager[Mapping[str, Any]]:
        """Opens arrays of the group, by default all."""
        group = extra("zarr", "zarr").open_group(self.path, mode="r")
        names = names or sorted(group.array_keys())
        return nullcontext({name: _zarr_array(self.path, group, name) for name in names})

    def rows(self, name: str, array: Any, chunk: int) -> Any:
        """Reads a range.

        Raises:
            DatasetError: a chunk is missing, unless missing chunks are read as the fill value.
        """
        span, grid = self.span(chunk), array.shards or array.chunks
        rows = range(span.start // grid[0], -(-span.stop // grid[0]))
        others = (range(-(-size // step)) for size, step in zip(array.shape[1:], grid[1:], strict=True))
        for place in () if self.fills else product(rows, *others):
            path = Path(self.path, name, array.metadata.encode_chunk_key(place))
            if not path.is_file():
                hint = "write it again; if it holds only the fill value, use missing_chunks='fill'"
                raise DatasetError(self.place(chunk), "lacks a chunk", str(path), hint=hint)
        return array[span]


def _zarr_array(folder: str, group: Any, name: str) -> Any:
    """Returns an array of a group.

    Raises:
        DatasetError: there is no such array, or it is pickled.
    """
    array = group.get(name)
    if not hasattr(array, "chunks"):
        raise DatasetError(folder, f"must have an array {name!r}", sorted(group.array_keys()))
    encoding = array.metadata.to_dict()
    if "pickle" in repr([encoding.get("codecs"), encoding.get("filters")]).lower():
        problem = f"array {name!r} is a pickle, which is never loaded"
        raise DatasetError(folder, problem, hint="write it again")
    return array


def _shape(array: Any) -> tuple[tuple[int, ...], str]:
    return tuple(array.shape), str(array.dtype)


def _rows_at_once(array: Any) -> int:
    chunks = getattr(array, "shards", None) or array.chunks
    return int(chunks[0]) if chunks else 0
