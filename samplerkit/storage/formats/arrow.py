"""Samples in files of Arrow's IPC, by record batch: those of pyarrow, and of Hugging Face."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, final

from samplerkit.errors import DatasetError
from samplerkit.order.layout import Layout
from samplerkit.storage.files.chunked import ChunkCache, ChunkedDataset, limits_of
from samplerkit.storage.files.content import Content
from samplerkit.storage.files.paths import distinct_names, local_paths
from samplerkit.storage.formats.arrow_file import ArrowFile
from samplerkit.storage.formats.arrow_rows import ArrowBatches, ArrowContent, gather_of, names_of
from samplerkit.storage.formats.stored import guarded
from samplerkit.storage.lengths import COUNTING_THREADS
from samplerkit.storage.per_process import Process
from samplerkit.storage.progress import all_in_threads


@final
class ArrowDataset(ChunkedDataset):
    """Samples in files of Arrow's IPC, each a row: record batches are the files of the layout.

    Streams and files, compressed or not, with dictionaries; and folders that `datasets.Dataset.save_to_disk`
    wrote. Nothing is mapped into memory: a file that shrinks while it is read is an error, and no signal.

    Args:
        files: a path or a glob pattern, whose matches are sorted by bytes; a list of these, in the order
            given; or a folder from `save_to_disk`.
        columns: the columns to hand out; None for all.
        batches: what a batch is: `samples`, `columns`, `tensors` or `arrow`, as for `ParquetDataset`.
        max_chunks: record batches in memory at most, those that are read ahead included.
        max_bytes: bytes in memory at most; None for no limit.
        read_ahead: how many record batches are read before they are needed; 0 for none.
        threads: how many of them at a time.

    Attributes:
        files: the paths.

    Raises:
        ArgumentTypeError: an argument has the wrong type.
        ArgumentValueError: no file, one that is named twice, a URL, or a word that is not known.
        ArgumentRangeError: a number is too small.
        DatasetError: pyarrow is not installed, or nothing matches the pattern; later, a file cannot be read,
            is not the one that it was, or has other columns.

    Example:
        >>> import tempfile
        >>> import pyarrow as pa
        >>> path = os.path.join(tempfile.mkdtemp(), "a.arrow")
        >>> table = pa.table({"id": range(7)})
        >>> with pa.ipc.new_stream(path, table.schema) as stream:
        ...     stream.write_table(table, max_chunksize=3)
        >>> dataset = ArrowDataset(path)
        >>> len(dataset), dataset.layout.sizes, dataset[5]
        (7, array([3, 3, 1]), {'id': np.int64(5)})
    """

    def __init__(
        self,
        files: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
        columns: Sequence[str] | None = None,
        *,
        batches: ArrowBatches = "samples",
        max_chunks: int = 4,
        max_bytes: int | None = None,
        read_ahead: int = 1,
        threads: int = 1,
    ) -> None:
        self.files: Final = local_paths(_in_folder(files))
        self._names: Final = distinct_names(self.files)
        self._columns: Final = names_of(columns)
        limits = limits_of(max_chunks, max_bytes, read_ahead, threads)
        super().__init__(limits, gather_of(batches, has_arrow=True), None)
        self._looked: _RecordBatches | None = None

    @property
    def fingerprint(self) -> str:
        """What changes with the files: a digest of the headers of all messages, not of their content."""
        state = hashlib.blake2b(digest_size=16)
        for file in self._batches.files:
            state.update(repr([message.check for message in (file.schema, *file.batches)]).encode())
        return state.hexdigest()

    def __repr__(self) -> str:
        return f"ArrowDataset({len(self.files)} files, {self._shown_size})"

    @property
    def _batches(self) -> _RecordBatches:
        _ = self.layout
        assert self._looked is not None  # noqa: S101  # for mypy: the layout was made of it
        return self._looked

    def _looked_up(self, process: Process[ChunkCache]) -> Layout:
        look = partial(_looked_at, self.files)
        files = all_in_threads(look, len(self.files), COUNTING_THREADS, "samplerkit-headers")
        schema = files[0].read_schema()
        columns = self._columns if self._columns is not None else tuple(schema.names)
        for name in columns:
            if schema.names.count(name) != 1:
                problem = f"holds {schema.names.count(name) or 'no'} columns {name!r}, but only"
                raise DatasetError(files[0].stored.name, problem, schema.names)
        for file in files[1:]:
            other = file.read_schema()
            if [(f.name, f.type) for f in other] != [(f.name, f.type) for f in schema]:
                problem = f"has other columns than {self._names[0]}, {schema.names}"
                raise DatasetError(file.stored.name, problem, other.names)
        places = [
            (number, at)
            for number, file in enumerate(files)
            for at, batch in enumerate(file.batches)
            if batch.rows
        ]
        self._looked = _RecordBatches(tuple(files), columns, tuple(places))
        sizes = [files[file].batches[at].rows for file, at in places]
        return Layout(sizes, [f"{self._names[file]}:{at}" for file, at in places])

    def _reading(self, layout: Layout) -> Callable[[int], Content]:
        return self._batches.read


@final
@dataclass(frozen=True)
class _RecordBatches:
    """The record batches of all files.

    Args:
        files: the files.
        columns: that are handed out.
        places: of each record batch, its file and its number in it.
    """

    files: tuple[ArrowFile, ...]
    columns: tuple[str, ...]
    places: tuple[tuple[int, int], ...]

    def read(self, number: int) -> ArrowContent:
        """Reads a record batch."""
        at, batch = self.places[number]
        file = self.files[at]
        place = f"{file.stored.name}, record batch {batch}"
        table = file.read(batch, place)
        chosen = guarded(place, "read", lambda: table.select(list(self.columns)))
        return ArrowContent(place, chosen)


def _looked_at(files: Sequence[str], number: int) -> ArrowFile:
    return ArrowFile.of(files[number])


def _in_folder(files: Any) -> Any:
    """Gives the files of a folder that `save_to_disk` wrote; of anything else, itself.

    Raises:
        DatasetError: the folder does not say which files are its data.
    """
    if not isinstance(files, str | os.PathLike) or not Path(files).is_dir():
        return files
    folder = Path(files)
    try:
        named = json.loads((folder / "state.json").read_bytes())["_data_files"]
        return [folder / Path(entry["filename"]).name for entry in named]
    except (OSError, ValueError, LookupError, TypeError) as error:
        mend = "give a folder from save_to_disk, of one split, or the files themselves"
        raise DatasetError(str(folder), "does not say in state.json which files it has", mend=mend) from error
