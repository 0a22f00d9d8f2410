"""Samples in HDF5 files: rows of arrays, by chunk."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, final

import numpy as np

from samplerkit.errors import DatasetError
from samplerkit.order import arguments
from samplerkit.order.layout import Layout
from samplerkit.storage.files.chunked import ChunkCache, ChunkedDataset, limits_of
from samplerkit.storage.files.content import Content, FileContent
from samplerkit.storage.files.paths import distinct_names, local_paths
from samplerkit.storage.formats.arrow_rows import Batches, gather_of, names_of
from samplerkit.storage.formats.extras import extra
from samplerkit.storage.formats.row_ranges import RowRanges
from samplerkit.storage.formats.stored import Stored, guarded
from samplerkit.storage.per_process import Process


@final
class Hdf5Dataset(ChunkedDataset):
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
        self.files: Final = local_paths(files)
        self._names: Final = distinct_names(self.files)
        self._arrays: Final = names_of(arrays)
        self._chunk_rows: Final = (
            None if chunk_rows is None else arguments.at_least("chunk_rows", chunk_rows, 1)
        )
        super().__init__(limits_of(max_chunks, max_bytes, read_ahead, threads), gather_of(batches), None)
        self._looked: tuple[_File, ...] = ()

    def __repr__(self) -> str:
        return f"Hdf5Dataset({len(self.files)} files, {self._shown_size})"

    def _looked_up(self, process: Process[ChunkCache]) -> Layout:
        self._looked = tuple(_File.of(path, self._arrays, self._chunk_rows) for path in self.files)
        first = self._looked[0].ranges
        for file in self._looked:
            if file.ranges.names != first.names:
                problem = f"holds other arrays than {self._names[0]}, {list(first.names)}"
                raise DatasetError(file.stored.name, problem, list(file.ranges.names))
        sizes = [size for file in self._looked for size in file.ranges.sizes]
        names = [
            f"{name}:{number}"
            for name, file in zip(self._names, self._looked, strict=True)
            for number in range(len(file.ranges.sizes))
        ]
        return Layout(sizes, names)

    def _reading(self, layout: Layout) -> Callable[[int], Content]:
        starts = np.cumsum([0, *(len(file.ranges.sizes) for file in self._looked)])
        return partial(_read, self._looked, starts)


@final
@dataclass(frozen=True)
class _File:
    """A file, and its rows, as they were when they were looked at."""

    stored: Stored
    ranges: RowRanges

    @classmethod
    def of(cls, path: str, names: tuple[str, ...] | None, step: int | None) -> _File:
        """Looks at a file."""
        h5py, stored = extra("h5py", "hdf5"), Stored.of(path, None)

        def looked() -> RowRanges:
            with h5py.File(path, "r") as file:
                chosen = names or [
                    name for name in file if isinstance(file.get(name, getlink=True), h5py.HardLink)
                ]
                arrays = [(name, _array(h5py, path, file, name, optional=names is None)) for name in chosen]
                return RowRanges.of(
                    path, [(name, array) for name, array in arrays if array is not None], step
                )

        return cls(stored, guarded(path, "read", looked))


def _read(files: Sequence[_File], starts: Any, number: int) -> FileContent:
    at = int(np.searchsorted(starts, number, side="right")) - 1
    stored, ranges = files[at].stored, files[at].ranges
    start, end = ranges.span(number - int(starts[at]))
    stored.require_same()
    h5py, place = extra("h5py", "hdf5"), f"{stored.name}, rows {start} to {end}"

    def read() -> FileContent:
        with h5py.File(stored.path, "r") as file:
            columns = {}
            for name in ranges.names:
                array = _array(h5py, stored.path, file, name, optional=False)
                ranges.require_same(place, name, array)
                is_text = h5py.check_string_dtype(array.dtype) is not None
                columns[name] = (array.asstr() if is_text else array)[start:end]
        return FileContent.of(columns, place)

    return guarded(place, "read", read)


def _array(h5py: Any, path: str, file: Any, name: str, *, optional: bool) -> Any:
    """Gives an array of a file, if nothing in it leads elsewhere; None of a group that nobody named.

    Raises:
        DatasetError: there is none, or it leads elsewhere.
    """
    parts = name.strip("/").split("/")
    for end in range(1, len(parts) + 1):
        link = file.get("/".join(parts[:end]), getlink=True)
        if isinstance(link, h5py.ExternalLink):
            raise DatasetError(
                path, f"array {name!r} lies in another file", link.filename, mend="name that file"
            )
    array = file.get(name)
    if not isinstance(array, h5py.Dataset):
        if optional:
            return None
        raise DatasetError(path, f"holds no array {name!r}, but at its top", sorted(file))
    if array.external or array.is_virtual:
        raise DatasetError(path, f"array {name!r} is made of other files", mend="copy it into one")
    kind = array.dtype
    if kind.hasobject and h5py.check_string_dtype(kind) is None and h5py.check_vlen_dtype(kind) is None:
        raise DatasetError(path, f"array {name!r} holds references, which are not followed", str(kind))
    return array
