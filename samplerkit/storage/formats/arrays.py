"""Samples in HDF5 files and zarr groups: rows of arrays of one length, by chunk."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, Final, Literal, final

from samplerkit.errors import ArgumentTypeError, ArgumentValueError, DatasetError
from samplerkit.order import arguments
from samplerkit.storage.files.chunked import ChunkLimits
from samplerkit.storage.files.content import Content, FileContent
from samplerkit.storage.files.packages import extra
from samplerkit.storage.files.paths import local_paths
from samplerkit.storage.files.stored import Stored
from samplerkit.storage.formats.arrow.rows import Batches, gather_of
from samplerkit.storage.formats.base import ChunkFile, FormatOfFiles, names_of
from samplerkit.storage.urls import is_remote, shown

MissingChunks = Literal["raise", "fill"]


@final
class Hdf5Dataset(FormatOfFiles):
    """Samples in HDF5 files: a sample is a row of each array, and chunks of rows are the files of the layout.

    A file is open only while a chunk is read. What leads out of a file (external links and storage, virtual
    arrays) and what refers to other objects is refused.

    Args:
        files: a path or a glob pattern, whose matches are sorted by bytes; or a list of these, in the order
            given.
        arrays: the arrays, by their paths in a file; None for all at its top.
        chunk_rows: the rows that are read at once; None for those of the largest chunk, or 1024 where there
            are none.
        batches: what a batch is: `samples`, a list of dicts; `columns` or `tensors`, a dict of these.
        max_chunks: chunks in memory at most, those that are read ahead included.
        max_bytes: bytes in memory at most; None for no limit.
        read_ahead: how many chunks are read before they are needed; 0 for none.
        threads: how many threads read ahead; HDF5 itself reads one at a time.

    Attributes:
        files: the paths.

    Raises:
        ArgumentTypeError: an argument has the wrong type.
        ArgumentValueError: no file, one that is named twice, a URL, or a word that is not known.
        ArgumentRangeError: a number is too small.
        DatasetError: nothing matches the pattern; later, h5py is not installed, a file cannot be read or is
            not the one that it was, or its arrays have other lengths.

    Example:
        >>> Hdf5Dataset("train.h5", ["x", "y"], batches="tensors")
        Hdf5Dataset(1 files, not looked at)
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
        self._arrays: Final = names_of(arrays)
        self._chunk_rows: Final = _checked_rows(chunk_rows)
        limits = ChunkLimits(max_chunks, max_bytes, read_ahead, threads)
        gather = gather_of(batches)
        super().__init__(files, limits, gather, progress=False, options=None, paths=local_paths)

    def _look(self, number: int) -> ChunkFile:
        path = self.files[number]
        h5py, stored = extra("h5py", "hdf5"), Stored.of(path)
        with h5py.File(path, "r") as file:
            links = {name: file.get(name, getlink=True) for name in file}
            chosen = self._arrays or [n for n, link in links.items() if isinstance(link, h5py.HardLink)]
            arrays = ((name, _hdf5_array(h5py, path, file, name, self._arrays)) for name in chosen)
            there = [(name, array) for name, array in arrays if array is not None]
            return RowRanges.of(path, there, self._chunk_rows, stored).as_file()

    def _reader(self, columns: tuple[Any, ...]) -> Callable[[RowRanges, int], Content]:
        return _read_hdf5


def _read_hdf5(ranges: RowRanges, number: int) -> FileContent:
    if ranges.stored is not None:
        ranges.stored.require_same()
    h5py, (start, end), columns = extra("h5py", "hdf5"), ranges.span(number), {}
    with h5py.File(ranges.path, "r") as opened:
        for name in ranges.columns:
            array = _hdf5_array(h5py, ranges.path, opened, name, ranges.columns)
            ranges.require_same(name, array)
            is_text = h5py.check_string_dtype(array.dtype) is not None
            columns[name] = (array.asstr() if is_text else array)[start:end]
    return FileContent.of(columns, ranges.place(number))


def _hdf5_array(h5py: Any, path: str, file: Any, name: str, wanted: Sequence[str] | None) -> Any:
    """Gives an array of a file, if nothing in it leads to another file; None of a group that was not named.

    Raises:
        DatasetError: there is none, or it leads to another file.
    """
    parts = name.strip("/").split("/")
    for end in range(1, len(parts) + 1):
        link = file.get("/".join(parts[:end]), getlink=True)
        if isinstance(link, h5py.ExternalLink):
            hint = "name that file"
            raise DatasetError(path, f"array {name!r} is in another file", link.filename, hint=hint)
    array = file.get(name)
    if not isinstance(array, h5py.Dataset):
        if wanted is None:
            return None
        raise DatasetError(path, f"holds no array {name!r}, but at its top", sorted(file))
    if array.external or array.is_virtual:
        raise DatasetError(path, f"array {name!r} is made of other files", hint="copy it into one")
    kind = array.dtype
    if kind.hasobject and h5py.check_string_dtype(kind) is None and h5py.check_vlen_dtype(kind) is None:
        raise DatasetError(path, f"array {name!r} holds references, which are not followed", str(kind))
    return array


@final
class ZarrDataset(FormatOfFiles):
    """Samples in a zarr group on disk: a sample is a row of each array; chunks are the files of the layout.

    Versions 2 and 3, shards, and the compressions that zarr has. What is pickled is refused.

    Args:
        folder: of the group.
        arrays: the arrays, by their names in the group; None for all.
        chunk_rows: the rows that are read at once; None for those of the largest chunk or shard.
        missing_chunks: what a chunk is that is not there. zarr leaves out chunks that hold nothing but the
            fill value, so one that was lost looks the same: `raise` makes both an error, `fill` the value.
        batches: what a batch is: `samples`, a list of dicts; `columns` or `tensors`, a dict of these.
        max_chunks: chunks in memory at most, those that are read ahead included.
        max_bytes: bytes in memory at most; None for no limit.
        read_ahead: how many chunks are read before they are needed; 0 for none.
        threads: how many of them at a time.

    Raises:
        ArgumentTypeError: an argument has the wrong type.
        ArgumentValueError: a URL, or a word that is not known.
        ArgumentRangeError: a number is too small.
        DatasetError: later, zarr is not installed, the group cannot be read, or its arrays differ in length.

    Example:
        >>> ZarrDataset("train.zarr", ["x", "y"])
        ZarrDataset('train.zarr', not looked at)
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
        self._arrays: Final = names_of(arrays)
        self._chunk_rows: Final = _checked_rows(chunk_rows)
        arguments.choice("missing_chunks", missing_chunks, ("raise", "fill"))
        self._fills: Final = missing_chunks == "fill"
        limits = ChunkLimits(max_chunks, max_bytes, read_ahead, threads)
        gather = gather_of(batches)
        super().__init__(folder, limits, gather, progress=False, options=None, paths=_folder)
        self.folder: Final = self.files[0]

    def __repr__(self) -> str:
        return f"ZarrDataset({self.folder!r}, {self._shown_size})"

    def _look(self, number: int) -> ChunkFile:
        group = _zarr_group(self.folder)
        names = self._arrays or tuple(sorted(group.array_keys()))
        arrays = [(name, _zarr_array(self.folder, group, name)) for name in names]
        return RowRanges.of(self.folder, arrays, self._chunk_rows).as_file()

    def _reader(self, columns: tuple[Any, ...]) -> Callable[[RowRanges, int], Content]:
        return partial(_read_zarr, self._fills)


def _folder(folder: Any) -> tuple[str]:
    if not isinstance(folder, str | os.PathLike):
        raise ArgumentTypeError("folder", "must be the path of a group", folder)
    if is_remote(path := os.fspath(folder)):
        raise ArgumentValueError("folder", "must be local", shown(path), hint="fetch it")
    return (path,)


def _read_zarr(fills: bool, ranges: RowRanges, number: int) -> FileContent:
    folder, (start, end), columns = ranges.path, ranges.span(number), {}
    group = _zarr_group(folder)
    for name in ranges.columns:
        array = _zarr_array(folder, group, name)
        ranges.require_same(name, array)
        missing = None if fills else next(_missing(Path(folder, name), array, start, end), None)
        if missing is not None:
            hint = "write it again; if it holds nothing but the fill value: missing_chunks='fill'"
            raise DatasetError(ranges.place(number), "has no such chunk", str(missing), hint=hint)
        columns[name] = array[start:end]
    return FileContent.of(columns, ranges.place(number))


def _missing(folder: Path, array: Any, start: int, end: int) -> Iterator[Path]:
    """Goes through the chunks of some rows that are not there."""
    grid = array.shards or array.chunks
    rows = range(start // grid[0], -(-end // grid[0]))
    others = (range(-(-size // step)) for size, step in zip(array.shape[1:], grid[1:], strict=True))
    for place in product(rows, *others):
        path = folder / array.metadata.encode_chunk_key(place)
        if not path.is_file():
            yield path


def _zarr_group(folder: str) -> Any:
    found = extra("zarr", "zarr").open(folder, mode="r")
    if not hasattr(found, "array_keys"):
        raise DatasetError(folder, "is an array alone", hint="put it into a group: its name is a column then")
    return found


def _zarr_array(folder: str, group: Any, name: str) -> Any:
    """Gives an array of a group.

    Raises:
        DatasetError: there is none, or it is pickled.
    """
    try:
        array = group[name]
    except KeyError:
        array = None
    if array is None or not hasattr(array, "chunks"):
        raise DatasetError(folder, f"holds no array {name!r}, but", sorted(group.array_keys()))
    if "pickle" in repr(array.metadata.to_dict()).lower():
        raise DatasetError(folder, f"array {name!r} is pickled: that is never loaded", hint="write it again")
    return array


@final
@dataclass(frozen=True)
class RowRanges:
    """The rows of a file or group, in ranges.

    Args:
        path: of the file or group.
        columns: the arrays.
        shapes: of each, for errors and to see whether it changed, with its type.
        rows: how many there are.
        step: how many a range has; the last one may have fewer.
        stored: the file as it was; None of a group.
    """

    path: str
    columns: tuple[str, ...]
    shapes: tuple[tuple[tuple[int, ...], str], ...]
    rows: int
    step: int
    stored: Stored | None = None

    @classmethod
    def of(
        cls, path: str, arrays: Sequence[tuple[str, Any]], step: int | None, stored: Stored | None = None
    ) -> RowRanges:
        """Looks at arrays that have `shape`, `dtype` and `chunks`.

        Args:
            path: of the file or group.
            arrays: by name.
            step: the rows of a range; None for those of the largest chunk, or 1024 where there are none.
            stored: the file as it was; None of a group.

        Raises:
            DatasetError: there is none, one is a single value, or they have different lengths.
        """
        if not arrays:
            raise DatasetError(path, "holds no arrays", hint="name those to read")
        alone = next((name for name, array in arrays if not array.shape), None)
        if alone is not None:
            problem = f"array {alone!r} has no rows: it is a single value"
            raise DatasetError(path, problem, hint="name the others")
        lengths = {name: array.shape[0] for name, array in arrays}
        if len(set(lengths.values())) > 1:
            hint = "name those of one length"
            raise DatasetError(path, "holds arrays of different lengths", lengths, hint=hint)
        chunks = [_rows_at_once(array) for _, array in arrays]
        names, shapes = zip(*((name, (tuple(a.shape), str(a.dtype))) for name, a in arrays), strict=True)
        return cls(path, names, shapes, next(iter(lengths.values())), step or max(chunks) or 1024, stored)

    def as_file(self) -> ChunkFile:
        """Gives the ranges as chunks; without a digest: shapes and types do not change with the content."""
        return ChunkFile(self, self.sizes, self.columns)

    def place(self, number: int) -> str:
        """What errors call a range."""
        return "{}, rows {} to {}".format(self.path, *self.span(number))

    @property
    def sizes(self) -> list[int]:
        """The rows of each range."""
        return [min(self.step, self.rows - start) for start in range(0, self.rows, self.step)]

    def span(self, number: int) -> tuple[int, int]:
        """Gives the first row of a range, and the one after its last."""
        return number * self.step, min(self.rows, (number + 1) * self.step)

    def require_same(self, name: str, array: Any) -> None:
        """Requires that an array is as it was.

        Raises:
            DatasetError: it is not.
        """
        before = self.shapes[self.columns.index(name)]
        now = (tuple(array.shape), str(array.dtype))
        if now != before:
            raise DatasetError(self.path, f"array {name!r} is not as it was, {before}", now)


def _rows_at_once(array: Any) -> int:
    chunks = getattr(array, "shards", None) or array.chunks
    return int(chunks[0]) if chunks else 0


def _checked_rows(chunk_rows: Any) -> int | None:
    return None if chunk_rows is None else arguments.at_least("chunk_rows", chunk_rows, 1)
