"""Datasets over Arrow tables: Arrow IPC files, read by record batch, and Hugging Face datasets."""

from __future__ import annotations

import io
import json
import os
import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, final

import numpy as np

from samplerkit.errors import ArgumentTypeError, DatasetError
from samplerkit.order import arguments
from samplerkit.order.caching import cached_property
from samplerkit.order.dataset_protocol import find_fingerprint
from samplerkit.order.layout import Layout
from samplerkit.storage.files.chunked import ChunkLimits
from samplerkit.storage.files.content import ChunkFile, require_columns
from samplerkit.storage.files.packages import extra
from samplerkit.storage.files.paths import local_paths
from samplerkit.storage.files.stored import ByteSpan, Stored
from samplerkit.storage.formats.arrow_rows import ArrowBatches, ArrowContent, gather_of
from samplerkit.storage.formats.base import FormatOfFiles
from samplerkit.storage.ids import checked_ids, checked_index


@final
class ArrowDataset(FormatOfFiles):
    """Samples in Arrow IPC files, one per row: record batches are the files of the layout.

    Reads the stream and the file format, compressed or not, with dictionaries, and folders written by
    `datasets.Dataset.save_to_disk`. Files are not memory-mapped, so a file that shrinks while it is read
    raises an error instead of ending the process by a signal.

    Args:
        files: a path or a glob pattern, whose matches are sorted by bytes; a list of these, in the order
            given; or a folder from `save_to_disk`.
        columns: the columns to return; None for all.
        batches: the form of a batch: `samples`, `columns`, `tensors` or `arrow`, as for `ParquetDataset`.
        max_chunks: record batches in memory at most, including prefetched ones.
        max_bytes: bytes in memory at most; None for no limit.
        read_ahead: how many record batches are prefetched; 0 for none.
        threads: how many of them are read in parallel.

    Attributes:
        files: the paths.

    Raises:
        ArgumentTypeError: an argument has the wrong type.
        ArgumentValueError: no file, a file given twice, a URL, or an unknown option.
        ArgumentRangeError: a number is too small.
        DatasetError: pyarrow is not installed, or no file matches the pattern; later, a file cannot be read,
            has changed, or has other columns.

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
        limits = ChunkLimits(max_chunks, max_bytes, read_ahead, threads)
        gather = gather_of(batches, has_arrow=True)
        super().__init__(files, limits, gather, find=_paths, columns=columns)

    def _inspect(self, number: int) -> ChunkFile:
        return ArrowFile.of(self.files[number], self._columns)


def _paths(files: Any) -> tuple[str, ...]:
    """Returns the files that are named, or those of a folder: no files if its dataset has no rows.

    Raises:
        DatasetError: the folder does not list its data files.
    """
    # Path's own raises where a name is too long, or a folder may not be read.
    if not isinstance(files, str | os.PathLike) or not os.path.isdir(files):  # noqa: PTH112
        return local_paths(files)
    folder = Path(files)
    try:
        entries = json.loads((folder / "state.json").read_bytes())["_data_files"]
        return tuple(os.fspath(folder / Path(entry["filename"]).name) for entry in entries)
    except (OSError, ValueError, LookupError, TypeError, RecursionError) as error:
        hint = "give a folder from save_to_disk, of one split, or the files themselves"
        raise DatasetError(str(folder), "does not list its files in state.json", hint=hint) from error


_MAGIC = b"ARROW1\0\0"
_MARK = 0xFFFFFFFF
_SCHEMA, _DICTIONARY, _BATCH = "schema", "dictionary", "record batch"


@dataclass(frozen=True)
class _Message:
    """One message of a file.

    Args:
        kind: schema, dictionary or record batch.
        span: the offset and length of the message in bytes.
        header: the length of the part before the body.
        check: a CRC-32 of that part.
        rows: the number of rows of a record batch.
    """

    kind: str
    span: ByteSpan
    header: int
    check: int
    rows: int


@dataclass(frozen=True, eq=False)
class ArrowFile(ChunkFile):
    """A file as it was when it was first examined: the positions and headers of its messages.

    pyarrow returns the number of rows of a record batch only after reading all of it, or after mapping the
    file into memory, where a file that shrinks ends the process. So it receives the headers only.

    Args:
        stored: the file.
        batches: the messages with record batches.
        others: the other messages: the schema, and dictionaries.
    """

    stored: Stored
    batches: tuple[_Message, ...]
    others: tuple[_Message, ...]

    @classmethod
    def of(cls, path: str, selected: Sequence[str] | None = None) -> ArrowFile:
        """Reads the headers of all messages of a file.

        Raises:
            DatasetError: the file cannot be read, ends early, or lacks a column.
            ValueError: the file holds other messages, or is not an Arrow file.
        """
        stored = Stored.of(path)
        messages = list(_messages(stored))
        kinds = [message.kind for message in messages]
        if kinds[:1] != [_SCHEMA] or not {*kinds[1:]} <= {_DICTIONARY, _BATCH}:
            raise ValueError("it must hold one schema, then dictionaries and record batches")
        batches = tuple(message for message in messages if message.kind == _BATCH)
        others = tuple(message for message in messages if message.kind != _BATCH)
        pa = extra("pyarrow", "parquet")
        schema = pa.ipc.read_schema(pa.BufferReader(_read(stored, messages[:1])))
        names = selected or schema.names
        require_columns(stored.name, schema.names, names)
        columns = tuple((name, str(schema.field(name).type)) for name in names)
        # A digest of the headers of all messages, not of their content.
        digest = np.array([message.check for message in (messages[0], *batches)], "<u4").tobytes()
        sizes = [batch.rows for batch in batches]
        return cls(stored, batches, others, sizes=sizes, columns=columns, digest=digest)

    def place(self, chunk: int) -> str:
        """Returns the name of a record batch in error messages."""
        return f"{self.stored.name}, record batch {chunk}"

    def read(self, chunk: int) -> ArrowContent:
        """Reads a record batch.

        Raises:
            DatasetError: the file was changed.
            Exception: the batch has changed; any error that pyarrow raises.
        """
        batch = self.batches[chunk]
        before = [message for message in self.others if message.span < batch.span]
        pa, data = extra("pyarrow", "parquet"), _read(self.stored, [*before, batch])
        with pa.ipc.open_stream(pa.BufferReader(data)) as stream:
            record_batch = stream.read_next_batch()
        # Nothing else protects against offsets beyond the batch.
        record_batch.validate(full=True)
        return ArrowContent(self.place(chunk), record_batch.select([name for name, _ in self.columns]))


def _read(stored: Stored, messages: Sequence[_Message]) -> bytes:
    parts = stored.read([message.span for message in messages])
    for message, part in zip(messages, parts, strict=True):
        if zlib.crc32(part[: message.header]) != message.check:
            raise ValueError(f"its message at byte {message.span[0]} was changed")
    return b"".join(parts)


def _messages(stored: Stored) -> Iterator[_Message]:
    """Iterates over the messages of a file, up to the end marker.

    Raises:
        DatasetError: the file ends early.
        ValueError: there is no end marker, or a message is not valid.
        Exception: any error that pyarrow raises if a header is damaged.
    """
    pa, size = extra("pyarrow", "parquet"), stored.size
    is_file = stored.read([(0, min(8, size))]) == [_MAGIC]
    at = len(_MAGIC) if is_file else 0
    while True:
        (head,) = stored.read([(at, 8)])
        mark, length = struct.unpack("<II", head)
        if mark != _MARK:
            raise ValueError(f"no Arrow message at byte {at}, of a version since 0.15")
        if length == 0:
            break
        (header,) = stored.read([(at, 8 + length)])
        message = pa.ipc.read_message(pa.PythonFile(_Header(header, size - at), mode="r"))
        body = message.body.size if message.body else 0
        # With a schema of no columns, so that the body is not read.
        rows = pa.ipc.read_record_batch(message, pa.schema([])).num_rows if message.type == _BATCH else 0
        if rows < 0:
            raise ValueError(f"a record batch at byte {at} has {rows} rows")
        yield _Message(message.type, (at, len(header) + body), len(header), zlib.crc32(header), rows)
        at += len(header) + body
    (end,) = stored.read([(size - 6, 6)])
    if is_file and end != _MAGIC[:6]:
        raise ValueError("it has no end marker")
    if not is_file and at + 8 != size:
        raise ValueError(f"it has data after its end, at byte {at + 8}")


class _Header(io.RawIOBase):
    """A message with a real header and a body of zeros, which take no memory.

    Args:
        header: the header.
        max_bytes: the largest size of the message in bytes.
    """

    def __init__(self, header: bytes, max_bytes: int) -> None:
        self._header, self._remaining = io.BytesIO(header), max_bytes

    def read(self, length: int = -1) -> bytes:
        """Reads from the current position."""
        self._remaining -= length
        if self._remaining < 0:
            raise ValueError("a message is longer than the file")
        data = self._header.read(length)
        return data + bytes(length - len(data))

    def readable(self) -> bool:
        """Returns True."""
        return True


_MAX_RUNS = 4
"""The average runs of selected rows per chunk from which on the selection counts as shuffled."""


@final
class HuggingFaceDataset:
    """A wrapper of a `datasets.Dataset`, with the layout of its chunks; nothing is copied.

    Samples and batches are those of the dataset, with its format, transform and selection. Rows that were
    selected in order keep the layout; a shuffled dataset has no files, so read it with GLOBAL. The dataset
    memory-maps its files; `ArrowDataset` reads the same folders without memory mapping.

    Args:
        dataset: a `datasets.Dataset` of Hugging Face.
        batches: the form of a batch: `samples`, a list of dicts; or `columns`, the dict that the dataset
            returns for a list of ids, in its format.

    Attributes:
        dataset: the wrapped dataset.

    Raises:
        ArgumentTypeError: `dataset` is not a `datasets.Dataset`; an `IterableDataset` is not one.
        ArgumentValueError: `batches` is not one of these.
    """

    def __init__(self, dataset: Any, *, batches: Literal["samples", "columns"] = "samples") -> None:
        if not all(hasattr(dataset, name) for name in ("data", "column_names", "select", "_fingerprint")):
            hint = "give one split, and no IterableDataset"
            given = type(dataset).__name__
            raise ArgumentTypeError("dataset", "must be a datasets.Dataset", given, hint=hint)
        arguments.choice("batches", batches, ("samples", "columns"))
        self.dataset: Final = dataset
        self._gives_columns: Final = batches == "columns"

    @cached_property
    def layout(self) -> Layout:
        """The number of rows in each chunk."""
        sizes = np.array([len(chunk) for chunk in self.dataset.data.column(0).chunks], dtype=np.int64)
        selected = getattr(self.dataset, "_indices", None)
        if selected is None:
            return Layout(sizes[sizes > 0])
        rows = np.concatenate([np.asarray(chunk) for chunk in selected.column(0).chunks] or [sizes[:0]])
        chunk = np.searchsorted(np.cumsum(sizes), rows, side="right")
        borders = np.flatnonzero(np.diff(chunk)) + 1
        if borders.size >= _MAX_RUNS * max(1, sizes.size):
            return Layout(len(rows))
        return Layout(np.diff([0, *borders, len(rows)]))

    @property
    def fingerprint(self) -> str | None:
        """The dataset's own fingerprint, which covers its content and all transforms applied to it."""
        return find_fingerprint(self.dataset)

    @property
    def column_names(self) -> list[str]:
        """The columns of the dataset."""
        return list(self.dataset.column_names)

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int | str) -> Any:
        """Returns a sample, in the format of the dataset; or a column as an array, if its name is given."""
        if isinstance(index, str):
            return self.dataset.select_columns(index).with_format("numpy")[:][index]
        return self.dataset[checked_index(index, self)]

    def __getitems__(self, ids: Iterable[int]) -> Any:
        """Returns a batch, in the order of the ids.

        Raises:
            OutOfDatasetError: an id is out of range.
            DatasetError: a transform returns more or fewer samples than ids.
        """
        rows = checked_ids(ids, len(self))
        if self._gives_columns:
            return self.dataset[rows.tolist()]
        samples = self.dataset.__getitems__(rows.tolist()) if rows.size else []
        if len(samples) != rows.size:
            problem = f"returns {len(samples)} samples for {rows.size} rows"
            hint = "let its transform return one row for each row, or use batches='columns'"
            raise DatasetError("dataset", problem, hint=hint)
        return samples

    def __repr__(self) -> str:
        return f"HuggingFaceDataset({len(self)} samples)"
