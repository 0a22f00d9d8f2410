"""Samples in zarr groups: rows of arrays, by chunk."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, Final, Literal, final

from samplerkit.errors import ArgumentTypeError, ArgumentValueError, DatasetError
from samplerkit.order import arguments
from samplerkit.order.layout import Layout
from samplerkit.storage.files.chunked import ChunkCache, ChunkedDataset, limits_of
from samplerkit.storage.files.content import Content, FileContent
from samplerkit.storage.formats.arrow_rows import Batches, gather_of, names_of
from samplerkit.storage.formats.extras import extra
from samplerkit.storage.formats.row_ranges import RowRanges
from samplerkit.storage.formats.stored import guarded
from samplerkit.storage.per_process import Process
from samplerkit.storage.urls import is_remote, shown

MissingChunks = Literal["raise", "fill"]


@final
class ZarrDataset(ChunkedDataset):
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
        if not isinstance(folder, str | os.PathLike):
            raise ArgumentTypeError("folder", "must be the path of a group", folder)
        self.folder: Final = os.fspath(folder)
        if is_remote(self.folder):
            raise ArgumentValueError(
                "folder", "must lie on this machine", shown(self.folder), mend="fetch it"
            )
        self._arrays: Final = names_of(arrays)
        self._chunk_rows: Final = (
            None if chunk_rows is None else arguments.at_least("chunk_rows", chunk_rows, 1)
        )
        arguments.choice("missing_chunks", missing_chunks, ("raise", "fill"))
        self._fills: Final = missing_chunks == "fill"
        super().__init__(limits_of(max_chunks, max_bytes, read_ahead, threads), gather_of(batches), None)
        self._ranges: RowRanges | None = None

    def __repr__(self) -> str:
        return f"ZarrDataset({self.folder!r}, {self._shown_size})"

    def _looked_up(self, process: Process[ChunkCache]) -> Layout:
        def looked() -> RowRanges:
            group = _group(self.folder)
            names = self._arrays or tuple(sorted(group.array_keys()))
            arrays = [(name, _array(self.folder, group, name)) for name in names]
            return RowRanges.of(self.folder, arrays, self._chunk_rows)

        self._ranges = guarded(self.folder, "read", looked)
        sizes = self._ranges.sizes
        return Layout(sizes, [f"{Path(self.folder).name}:{number}" for number in range(len(sizes))])

    def _reading(self, layout: Layout) -> Callable[[int], Content]:
        assert self._ranges is not None  # noqa: S101  # for mypy: the layout was made of it
        return _Chunks(self.folder, self._ranges, self._fills).read


@final
@dataclass(frozen=True)
class _Chunks:
    """Reads ranges of rows of the arrays of a group."""

    folder: str
    ranges: RowRanges
    fills: bool

    def read(self, number: int) -> FileContent:
        """Reads a range."""
        start, end = self.ranges.span(number)
        place = f"{self.folder}, rows {start} to {end}"

        def read() -> FileContent:
            group, columns = _group(self.folder), {}
            for name in self.ranges.names:
                array = _array(self.folder, group, name)
                self.ranges.require_same(place, name, array)
                missing = None if self.fills else next(self._missing(array, name, start, end), None)
                if missing is not None:
                    mend = (
                        "make it anew; if it was left out for it holds the fill value: missing_chunks='fill'"
                    )
                    raise DatasetError(place, "has no such chunk", str(missing), mend=mend)
                columns[name] = array[start:end]
            return FileContent.of(columns, place)

        return guarded(place, "read", read)

    def _missing(self, array: Any, name: str, start: int, end: int) -> Iterator[Path]:
        grid = array.shards or array.chunks
        rows = range(start // grid[0], -(-end // grid[0]))
        others = (range(-(-size // step)) for size, step in zip(array.shape[1:], grid[1:], strict=True))
        for place in product(rows, *others):
            path = Path(self.folder, name, array.metadata.encode_chunk_key(place))
            if not path.is_file():
                yield path


def _group(folder: str) -> Any:
    found = extra("zarr", "zarr").open(folder, mode="r")
    if not hasattr(found, "array_keys"):
        raise DatasetError(folder, "is an array alone", mend="put it into a group: its name is a column then")
    return found


def _array(folder: str, group: Any, name: str) -> Any:
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
        raise DatasetError(folder, f"array {name!r} is pickled: that is never loaded", mend="write it anew")
    return array
