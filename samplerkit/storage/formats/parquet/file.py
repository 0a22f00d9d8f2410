"""One Parquet file: its footer, its row groups, each read by one read, and the rows that meet a filter."""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from threading import Lock
from typing import Any, Final

import numpy as np

from samplerkit.errors import DatasetError
from samplerkit.order.caching import Latest
from samplerkit.order.typing import Ids
from samplerkit.storage.files.content import ChunkFile, digest_of, require_columns
from samplerkit.storage.files.packages import extra, guarded
from samplerkit.storage.files.stored import ByteSpan, Stored
from samplerkit.storage.formats.arrow_rows import ArrowContent, as_record_batch, take
from samplerkit.storage.formats.parquet.filter import Keys, RowFilter, ranges_of
from samplerkit.storage.remote.storage import RemoteStorage

Metadata = Any
"""A footer as parsed by pyarrow: `pyarrow.parquet.FileMetaData`."""

_GUESS = 1 << 16
"""The number of bytes that are first read from the end of a file: most footers fit."""

_FOOTERS: Final = 64
"""The number of footers that a process keeps: footers of files with many columns are large."""

_NO_ROWS: Final = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class ParquetFile(ChunkFile):
    """A Parquet file as it was when it was first examined; each process reads the footer itself again.

    Args:
        stored: the file.
        footer: the offset and length of the footer in bytes.
        check: a digest of the footer.
        rows: the number of rows of each row group.
        footers: the footers that this process keeps.
        filtered: for each row group, the rows that are samples, None for all; empty if all rows are samples.
        keys: the keys in folder names, which are columns of one value each.
    """

    stored: Stored
    footer: ByteSpan
    check: bytes
    rows: tuple[int, ...]
    footers: Footers
    filtered: tuple[Ids | None, ...] = ()
    keys: Keys = ()

    @classmethod
    def of(cls, path: str, storage: RemoteStorage | None, footers: Footers) -> ParquetFile:
        """Reads the footer of a file.

        Raises:
            DatasetError: the file cannot be read.
            Exception: it is not a Parquet file; any error that pyarrow raises.
        """
        stored = Stored.of(path, storage)
        guess = min(stored.size, _GUESS)
        (end,) = stored.read([(stored.size - guess, guess)])
        if len(end) < 12 or end[-4:] != b"PAR1":
            hint = "it is not a Parquet file, was truncated, or has an encrypted footer"
            raise ValueError(f"it ends with {end[-4:]!r}: {hint}")
        length = int.from_bytes(end[-8:-4], "little")
        footer = (stored.size - 8 - length, length)
        data = end[-8 - length : -8] if length + 8 <= guess else stored.read([footer])[0]
        metadata = _parse_footer(data)
        columns = tuple((field.name, str(field.type)) for field in metadata.schema.to_arrow_schema())
        file = cls(stored, footer, digest_of(data), _rows(metadata), footers, columns=columns)
        footers.add(file, metadata)
        return file

    def place(self, chunk: int) -> str:
        """Returns the name of a row group in error messages."""
        return f"{self.stored.name}, row group {chunk}"

    def select(self, names: Sequence[str] | None, condition: RowFilter | None) -> ParquetFile:
        """Returns the file restricted to some columns and to the rows that meet a condition.

        Raises:
            DatasetError: the file lacks a column, or cannot be read.
        """
        keys = tuple((name, str(value.type)) for name, value in self.keys)
        columns = (*self.columns, *keys)
        available, types = [name for name, _ in columns], dict(columns)
        selected = tuple(available) if names is None else names
        require_columns(self.stored.name, available, (*selected, *(condition.names if condition else ())))
        if not selected:
            raise DatasetError(self.stored.name, "has no columns")
        filtered = tuple(
            guarded(self.place(group), "read", partial(self._filter_rows, group, condition))
            for group in range(len(self.rows))
            if condition
        )
        sizes = [n if rows is None else rows.size for n, rows in zip(self.rows, filtered, strict=False)]
        digest = self.check + "".join(f"{name}={value.as_py()!r}/" for name, value in self.keys).encode()
        columns = tuple((name, types[name]) for name in selected)
        return replace(self, columns=columns, filtered=filtered, sizes=sizes or self.rows, digest=digest)

    def _filter_rows(self, group: int, condition: RowFilter) -> Ids | None:
        if not self.rows[group]:
            return _NO_ROWS
        footer = self.footers.of(self)
        # Where metadata is damaged or encrypted, this raises, and `footer.row_group(group).column(0)` would
        # end the process. One at a time: `_spans` raises if no bytes are requested.
        for column in self._own(condition.names):
            _spans(self.stored, footer, group, [column])
        keys = {name: (value.as_py(), value.as_py()) for name, value in self.keys if value.is_valid}
        if not condition.may_hold(ranges_of(footer, group, condition.names) | keys):
            return _NO_ROWS
        table = self._table(group, condition.names)
        hint = "compare a column with values of its own type"
        rows = guarded(self.place(group), "filtered", lambda: condition.rows(table), hint)
        return None if rows.size == self.rows[group] else rows

    def read_footer(self) -> Metadata:
        """Reads the footer again.

        Raises:
            ValueError: the footer has changed.
        """
        (data,) = self.stored.read([self.footer])
        if digest_of(data) != self.check:
            raise ValueError("its footer was changed")
        return _parse_footer(data)

    def read(self, chunk: int) -> ArrowContent:
        """Reads a row group; a remote file is read by one request if the columns are adjacent.

        Raises:
            DatasetError: the file was changed, or lacks a column.
            Exception: the row group does not match the footer; any error that pyarrow raises.
        """
        batch = as_record_batch(self._table(chunk, [name for name, _ in self.columns]))
        rows = self.filtered[chunk] if self.filtered else None
        return ArrowContent(self.place(chunk), batch if rows is None else take(batch, rows))

    def _table(self, group: int, columns: Sequence[str]) -> Any:
        own, footer = self._own(columns), self.footers.of(self)
        spans = _spans(self.stored, footer, group, own)
        parts = dict(zip(spans, self.stored.read(spans), strict=True))
        table = _read_columns(_PartReader(self.stored, parts), footer, group, own)
        table.validate()
        if sorted(table.column_names) != sorted(own):
            require_columns(self.stored.name, footer.schema.to_arrow_schema().names, own)
        if table.num_rows != self.rows[group]:
            raise ValueError(f"it has {table.num_rows} rows, but its footer lists {self.rows[group]}")
        for name, value in self.keys:
            table = table.append_column(name, extra("pyarrow", "parquet").repeat(value, table.num_rows))
        # For `a.b`, pyarrow also returns the field `b` of a column `a`.
        return table.select(list(columns))

    def _own(self, columns: Sequence[str]) -> list[str]:
        """Returns the columns that are in the file itself, not keys of folders."""
        keys = {name for name, _ in self.keys}
        return [name for name in columns if name not in keys]


class Footers:
    """The most recently used footers, shared by the threads of a process; not sent to other processes."""

    def __init__(self) -> None:
        self._cached: Latest[Metadata] = Latest(_FOOTERS)
        self._locks: dict[tuple[int, str], Lock] = {}

    def __reduce__(self) -> Any:
        return Footers, ()

    def clear(self) -> None:
        """Drops all footers."""
        self._cached = Latest(_FOOTERS)

    def add(self, file: ParquetFile, footer: Metadata) -> None:
        """Adds a footer that was read."""
        self._cached.get(file.stored.path, lambda: footer)

    def of(self, file: ParquetFile) -> Metadata:
        """Returns the footer of a file, and reads it if it is not kept."""
        # Several threads that prefetch row groups of a new file need its footer; only one reads it. Locks are
        # per process: a lock that another thread held at a fork is never released in the child.
        place = (os.getpid(), file.stored.path)
        with self._locks.setdefault(place, Lock()):
            footer = self._cached.get(file.stored.path, file.read_footer)
            self._locks.pop(place, None)
            return footer


def _spans(stored: Stored, footer: Metadata, group: int, columns: Sequence[str]) -> list[ByteSpan]:
    """Finds the parts of a file that hold columns of a row group, without reading them.

    The metadata of columns has these parts, but accessing damaged metadata may end the process, while
    reading columns with damaged metadata raises an exception. pyarrow requests the bytes of all columns
    before it decodes the first one. It receives zeros and fails at decoding; by then its requests are
    recorded. If it requests other parts later, in the real read, these are read as well.

    Returns:
        The parts, in order.
    """
    parts = _PartReader(stored)
    try:
        _read_columns(parts, footer, group, columns)
    except Exception:
        if not parts.requested:
            raise
    return sorted(parts.requested)


def _read_columns(parts: _PartReader, footer: Metadata, group: int, columns: Sequence[str]) -> Any:
    """Reads columns of a row group with pyarrow, as a table."""
    file = extra("pyarrow.parquet", "parquet").ParquetFile(
        extra("pyarrow", "parquet").PythonFile(parts, mode="r"),
        metadata=footer,
        page_checksum_verification=True,
        pre_buffer=False,
    )
    return file.read_row_group(group, columns=list(columns), use_threads=False)


class _PartReader(io.RawIOBase):
    """A file-like object that pyarrow reads from.

    It must not refer to the `ParquetFile` that reads it: pyarrow holds a reference that garbage collection
    cannot see, so both, and the bytes that were read, would never be freed.

    Args:
        stored: the file.
        cached: parts that were read already; None to return zeros and record the requested parts.

    Attributes:
        requested: the requested parts.
    """

    def __init__(self, stored: Stored, cached: dict[ByteSpan, bytes] | None = None) -> None:
        self._stored, self._cached, self._at = stored, cached, 0
        self.requested: list[ByteSpan] = []

    def read(self, length: int = -1) -> bytes:
        """Reads from the current position."""
        span = (self._at, length)
        self._at += length
        if self._cached is not None:
            return self._cached.get(span) or self._stored.read([span])[0]
        self._stored.require_parts([span])
        self.requested.append(span)
        return bytes(length)

    def seek(self, offset: int, whence: int = 0) -> int:
        """Changes the position."""
        self._at = offset + (0, self._at, self._stored.size)[whence]
        return self._at

    def readable(self) -> bool:
        """Returns True."""
        return True


def _parse_footer(footer: bytes) -> Metadata:
    # A file that consists of the footer only: pyarrow looks for the footer at the end.
    footer_only = b"".join((b"PAR1", footer, len(footer).to_bytes(4, "little"), b"PAR1"))
    data = extra("pyarrow", "parquet").BufferReader(footer_only)
    metadata = extra("pyarrow.parquet", "parquet").read_metadata(data)
    if min(_rows(metadata), default=0) < 0:
        raise ValueError("a row group has a negative number of rows")
    return metadata


def _rows(metadata: Metadata) -> tuple[int, ...]:
    return tuple(metadata.row_group(number).num_rows for number in range(metadata.num_row_groups))
