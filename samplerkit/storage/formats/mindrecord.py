"""Samples in MindRecord files, by row group, without MindSpore."""

from __future__ import annotations

import hashlib
import os
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import Any, Final, final

from samplerkit.errors import ArgumentTypeError, DatasetError
from samplerkit.order.layout import Layout
from samplerkit.storage.files.chunked import ChunkCache, limits_of
from samplerkit.storage.files.content import FileContent, MadeSamples, gathered_samples
from samplerkit.storage.files.several import DatasetOfFiles
from samplerkit.storage.formats.arrow_rows import names_of
from samplerkit.storage.formats.mindrecord_file import MindRecordFile
from samplerkit.storage.lengths import COUNTING_THREADS
from samplerkit.storage.per_process import Process
from samplerkit.storage.progress import Progress, all_in_threads
from samplerkit.storage.remote.options import RemoteOptions
from samplerkit.storage.remote.storage import RemoteStorage


@final
class MindRecordDataset(DatasetOfFiles):
    """Samples in MindRecord files, each a row: row groups are the files of the layout.

    MindSpore is not needed, nor the `.db` beside each file: the header of a file says where its rows lie. A
    sample is a dict: numbers and arrays are numpy's, of the types of the schema; texts and bytes Python's.

    Args:
        files: a path, a URL or a glob pattern, whose matches are sorted by bytes; or a list of these, in
            the order given. Those of a dataset in several files are named without their `.db`.
        columns: the columns to hand out; None for all.
        decode: makes a sample of the dict of a row; None for the dict itself.
        max_chunks: row groups in memory at most, those that are read ahead included.
        max_bytes: bytes in memory at most; None for no limit.
        read_ahead: how many row groups are read before they are needed; 0 for none. None for 1, and
            where they lie elsewhere for 4 a rank, as far as there is room.
        threads: how many of them at a time; None as for `read_ahead`.
        progress: is called while headers are read; None for a line on the terminal, False for nothing.
        remote: how URLs are read: `RemoteOptions`, or a mapping of these.

    Attributes:
        files: the paths and URLs.
        is_remote: whether some of them lie elsewhere.

    Raises:
        ArgumentTypeError: an argument has the wrong type.
        ArgumentValueError: no file, or one that is named twice.
        ArgumentRangeError: a number is too small.
        DatasetError: nothing matches the pattern; later, a file cannot be read, is not the one that it was,
            or has other columns.

    Example:
        >>> MindRecordDataset(["train.mindrecord0", "train.mindrecord1"], ["image", "label"])
        MindRecordDataset(2 files, not looked at)
    """

    def __init__(
        self,
        files: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
        columns: Sequence[str] | None = None,
        *,
        decode: Callable[[dict[str, Any]], Any] | None = None,
        max_chunks: int = 4,
        max_bytes: int | None = None,
        read_ahead: int | None = None,
        threads: int | None = None,
        progress: Progress | bool | None = None,
        remote: RemoteOptions | Mapping[str, Any] | None = None,
    ) -> None:
        if decode is not None and not callable(decode):
            raise ArgumentTypeError("decode", "must be a function of a sample", decode)
        self._columns: Final = names_of(columns)
        self._decode: Final = decode
        limits = limits_of(max_chunks, max_bytes, read_ahead, threads)
        super().__init__(files, limits, gathered_samples, progress, RemoteOptions.of(remote))
        self._looked: tuple[MindRecordFile, ...] = ()

    @property
    def fingerprint(self) -> str:
        """What changes with the rows and their places: a digest of the headers of all files."""
        _ = self.layout
        return hashlib.blake2b(b"".join(file.digest for file in self._looked), digest_size=16).hexdigest()

    def _looked_up(self, process: Process[ChunkCache]) -> Layout:
        told = partial(self._progress, "headers read:")

        def look(number: int) -> MindRecordFile:
            return MindRecordFile.of(self.files[number], self._storage)

        found = all_in_threads(look, len(self.files), COUNTING_THREADS, "samplerkit-headers", told)
        known = found[0].columns.names
        for file in found:
            if file.columns != found[0].columns:
                problem = f"has other columns than {self._names[0]}, {list(known)}"
                raise DatasetError(file.stored.name, problem, list(file.columns.names))
        missing = next((name for name in self._columns or () if name not in known), None)
        if missing is not None:
            raise DatasetError(found[0].stored.name, f"holds no column {missing!r}, but only", list(known))
        self._looked = tuple(found)
        places = [
            (name, number, group.rows)
            for name, file in zip(self._names, found, strict=True)
            for number, group in enumerate(file.groups)
        ]
        return Layout([rows for *_, rows in places], [f"{name}:{number}" for name, number, _ in places])

    def _reading(self, layout: Layout) -> Callable[[int], FileContent]:
        starts = (0, *accumulate(len(file.groups) for file in self._looked))
        columns = self._columns or self._looked[0].columns.names
        return partial(_RowsOf(self._looked, starts, columns, self._decode).read, self._storage)


@final
@dataclass(frozen=True)
class _RowsOf:
    """The row groups of all files, as they were when these were looked at."""

    files: tuple[MindRecordFile, ...]
    starts: tuple[int, ...]
    columns: tuple[str, ...]
    decode: Callable[[dict[str, Any]], Any] | None

    def read(self, storage: RemoteStorage | None, number: int) -> FileContent:
        """Reads a row group, by its number among all."""
        at = bisect_right(self.starts, number) - 1
        file, group = self.files[at], number - self.starts[at]
        rows = file.read(group, storage)
        size = sum(len(raw) + len(blob) for raw, blob in rows)
        place = f"{file.stored.name}, row group {group}"
        return FileContent(place, MadeSamples(rows, partial(self._made, file), size), len(rows), size)

    def _made(self, file: MindRecordFile, row: tuple[bytes, bytes]) -> Any:
        found = file.columns.made(*row, self.columns)
        return found if self.decode is None else self.decode(found)
