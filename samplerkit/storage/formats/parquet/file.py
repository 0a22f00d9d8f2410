"""One Parquet file: its footer, its row groups, each read in one go, and which of their rows are wanted."""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from threading import Lock
from typing import Any, Final, final

import numpy as np

from samplerkit.errors import DatasetError
from samplerkit.order.caching import Latest
from samplerkit.order.typing import Ids
from samplerkit.storage.files.content import ChunkFile, require_columns
from samplerkit.storage.files.packages import extra, guarded
from samplerkit.storage.files.stored import ByteSpan, Stored
from samplerkit.storage.formats.arrow_rows import ArrowContent, as_record_batch
from samplerkit.storage.formats.parquet.filter import Keys, RowFilter, ranges_of
from samplerkit.storage.opening import REWRITE
from samplerkit.storage.remote.storage import RemoteStorage

Metadata = Any
"""A footer as pyarrow has it: `pyarrow.parquet.FileMetaData`."""

_GUESS = 1 << 16
"""The end of a file that is read at once: most footers fit."""

_FOOTERS: Final = 64
"""Footers that a process keeps: of files with many columns they are large."""

_NO_ROWS: Final = np.zeros(0, dtype=np.int64)


@final
@dataclass(frozen=True, eq=False)
class ParquetFile(ChunkFile):
    """A Parquet file as it was when it was looked at; the footer itself is read again in each process.

    Args:
        stored: the file.
        footer: where its footer is: offset and length.
        check: a digest of it.
        rows: of each row group.
        footers: those that this process has read.
        kept: of each row group the rows that are samples, None for all; empty where all are.
        keys: of its folders, which are columns of one value each.
    """

    stored: Stored
    footer: ByteSpan
    check: bytes
    rows: tuple[int, ...]
    footers: Footers
    kept: tuple[Ids | None, ...] = ()
    keys: Keys = ()

    @classmethod
    def of(cls, path: str, storage: RemoteStorage | None, footers: Footers) -> ParquetFile:
        """Looks at a file.

        Raises:
            DatasetError: it cannot be read, or is no Parquet file.
        """
        stored = Stored.of(path, storage)
        guess = min(stored.size, _GUESS)
        (end,) = stored.read([(stored.size - guess, guess)])
        if len(end) < 12 or end[-4:] not in {b"PAR1", b"PARE"}:
            problem = "is no Parquet file, or was cut: it lacks the end mark"
            raise DatasetError(stored.name, problem, hint=REWRITE)
        if end[-4:] == b"PARE":
            hint = "decrypt it; what is read here is plain"
            raise DatasetError(stored.name, "has an encrypted footer", hint=hint)
        length = int.from_bytes(end[-8:-4], "little")
        footer = (stored.size - 8 - length, length)
        data = end[-8 - length : -8] if length + 8 <= guess else stored.read([footer])[0]
        metadata = _parsed(stored.name, data)
        schema = guarded(stored.name, "read", metadata.schema.to_arrow_schema)
        columns = tuple((field.name, str(field.type)) for field in schema)
        found = cls(stored, footer, _digest(data), _rows(metadata), footers, columns=columns)
        footers.add(found, metadata)
        return found

    def place(self, chunk: int) -> str:
        """Returns the name of a row group in error messages."""
        return f"{self.stored.name}, row group {chunk}"

    def chosen(self, names: Sequence[str] | None, condition: RowFilter | None) -> ParquetFile:
        """Returns the file of which some columns are read, and the rows that meet a condition.

        Raises:
            DatasetError: it lacks a column, or cannot be read.
        """
        keys = tuple((name, str(value.type)) for name, value in self.keys)
        columns = (*self.columns, *keys)
        there, types = [name for name, _ in columns], dict(columns)
        wanted = tuple(there) if names is None else names
        require_columns(self.stored.name, there, (*wanted, *(condition.names if condition else ())))
        if not wanted:
            raise DatasetError(self.stored.name, "has no columns")
        kept = tuple(self._wanted_rows(group, condition) for group in range(len(self.rows)) if condition)
        sizes = [n if rows is None else rows.size for n, rows in zip(self.rows, kept, strict=False)]
        digest = self.check + "".join(f"{name}={value.as_py()!r}/" for name, value in self.keys).encode()
        columns = tuple((name, types[name]) for name in wanted)
        return replace(self, columns=columns, kept=kept, sizes=sizes or self.rows, digest=digest)

    def _wanted_rows(self, group: int, condition: RowFilter) -> Ids | None:
        if not self.rows[group]:
            return _NO_ROWS
        metadata = self.footers.of(self)
        self._require_columns(group, condition.names, metadata)
        keys = {name: (value.as_py(), value.as_py()) for name, value in self.keys if value.is_valid}
        if not condition.may_hold(ranges_of(metadata, group, condition.names) | keys):
            return _NO_ROWS
        table = self._table(group, condition.names)
        hint = "compare a column with values of its own type"
        rows = guarded(self.place(group), "filtered", lambda: condition.rows(table), hint)
        return None if rows.size == self.rows[group] else rows

    def _require_columns(self, group: int, columns: Sequence[str], metadata: Metadata) -> None:
        """Requires that columns of a row group are where they can be: then pyarrow may look at them.

        Where they are damaged or encrypted, `metadata.row_group(group).column(0)` ends the process.

        Raises:
            DatasetError: they are not.
        """
        reader = _Reader(self.stored, metadata)
        for column in self._own(columns):  # one at a time: it fails where it asks for no bytes
            guarded(self.place(group), "read", partial(reader.spans, group, [column]))

    def read_footer(self) -> Metadata:
        """Reads the footer again.

        Raises:
            DatasetError: it is another one by now.
        """
        (data,) = self.stored.read([self.footer])
        if _digest(data) != self.check:
            raise DatasetError(self.stored.name, "has another footer than before", hint=REWRITE)
        metadata = _parsed(self.stored.name, data)
        if _rows(metadata) != self.rows:
            problem = "has other row groups than before"
            raise DatasetError(self.stored.name, problem, list(_rows(metadata))[:9], hint=REWRITE)
        return metadata

    def read(self, chunk: int) -> ArrowContent:
        """Reads a row group; of a remote file in one go where its columns are together.

        Raises:
            DatasetError: it cannot be read, or is not what the footer says.
        """
        batch = as_record_batch(self._table(chunk, [name for name, _ in self.columns]))
        return ArrowContent(self.place(chunk), batch, self.kept[chunk] if self.kept else None)

    def _table(self, group: int, columns: Sequence[str]) -> Any:
        own, footer = self._own(columns), self.footers.of(self)
        reader = _Reader(self.stored, footer)
        table = guarded(self.place(group), "read", lambda: reader.table(group, own))
        if sorted(table.column_names) != sorted(own):
            require_columns(self.stored.name, footer.schema.to_arrow_schema().names, own)
        if table.num_rows != self.rows[group]:
            problem = f"has {table.num_rows} rows, and its footer says {self.rows[group]}"
            raise DatasetError(self.place(group), problem, hint=REWRITE)
        for name, value in self.keys:
            table = table.append_column(name, extra("pyarrow", "parquet").repeat(value, table.num_rows))
        # For `a.b` pyarrow also gives the part `b` of a column `a`.
        return table.select(list(columns))

    def _own(self, columns: Sequence[str]) -> list[str]:
        """Returns the columns that are in the file itself."""
        keys = {name for name, _ in self.keys}
        return [name for name in columns if name not in keys]


@final
class Footers:
    """The footers of the files that were read last, for all threads of a process; none travels to another."""

    def __init__(self) -> None:
        self._known: Latest[Metadata] = Latest(_FOOTERS)
        self._reading: dict[tuple[int, str], Lock] = {}

    def __reduce__(self) -> Any:
        return Footers, ()

    def clear(self) -> None:
        """Forgets all."""
        self._known = Latest(_FOOTERS)

    def add(self, file: ParquetFile, footer: Metadata) -> None:
        """Keeps a footer that was read."""
        self._known.get(file.stored.path, lambda: footer)

    def of(self, file: ParquetFile) -> Metadata:
        """Returns the footer of a file, read now if it is not known."""
        # Threads that read row groups of a new file ahead all want its footer: one of them reads it. A lock
        # that another thread held at a fork is for ever locked in the child.
        place = (os.getpid(), file.stored.path)
        with self._reading.setdefault(place, Lock()):
            footer = self._known.get(file.stored.path, file.read_footer)
            self._reading.pop(place, None)
            return footer


@final
class _Reader:
    """Reads row groups by pyarrow.

    Args:
        stored: the file.
        metadata: its footer.
    """

    def __init__(self, stored: Stored, metadata: Metadata) -> None:
        self._parts = _Parts(stored)
        self._opened = extra("pyarrow.parquet", "parquet").ParquetFile(
            extra("pyarrow", "parquet").PythonFile(self._parts, mode="r"),
            metadata=metadata,
            page_checksum_verification=True,
            pre_buffer=False,
        )

    def table(self, group: int, columns: Sequence[str]) -> Any:
        """Reads columns of a row group into a table."""
        spans = self.spans(group, columns)
        self._parts.known = dict(zip(spans, self._parts.stored.read(spans), strict=True))
        table = self._read(group, columns)
        table.validate()
        return table

    def spans(self, group: int, columns: Sequence[str]) -> list[ByteSpan]:
        """Finds out which parts of the file columns of a row group are read from, without reading them.

        The metadata of columns would say so, but to ask for it may end the process, and while pyarrow reads,
        the same is an exception. It asks for the bytes of all columns before it decodes the first: given
        zeros, it fails then, and has said what it reads. Should it ask for others later, these are read too.

        Returns:
            The parts, in order.
        """
        self._parts.known, self._parts.asked = None, []
        try:
            self._read(group, columns)
        except Exception:
            if not self._parts.asked:
                raise
        return sorted(self._parts.asked)

    def _read(self, group: int, columns: Sequence[str]) -> Any:
        return self._opened.read_row_group(group, columns=list(columns), use_threads=False)


@final
class _Parts(io.RawIOBase):
    """What pyarrow reads from as from a file.

    It must not refer to what reads it: pyarrow holds it where no collection of garbage looks, so that both,
    and the bytes that were read, would stay for ever.

    Attributes:
        known: parts that were read already; None where zeros are given, and noted what was asked for.
        asked: that.
    """

    def __init__(self, stored: Stored) -> None:
        self.stored = stored
        self.known: dict[ByteSpan, bytes] | None = None
        self.asked: list[ByteSpan] = []
        self._at = 0

    def read(self, length: int = -1) -> bytes:
        """Reads from its position."""
        span = (self._at, length)
        self._at += length
        if self.known is not None:
            return self.known.get(span) or self.stored.read([span])[0]
        self.stored.require_parts([span])
        self.asked.append(span)
        return bytes(length)

    def seek(self, offset: int, whence: int = 0) -> int:
        """Goes to a place."""
        self._at = offset + (0, self._at, self.stored.size)[whence]
        return self._at

    def readable(self) -> bool:
        """Returns that it can be read."""
        return True

    def seekable(self) -> bool:
        """Returns that it can go anywhere."""
        return True


def _parsed(name: str, footer: bytes) -> Metadata:
    # A file of nothing but its footer: pyarrow looks for it at the end.
    alone = b"".join((b"PAR1", footer, len(footer).to_bytes(4, "little"), b"PAR1"))
    read, pa = extra("pyarrow.parquet", "parquet").read_metadata, extra("pyarrow", "parquet")
    metadata = guarded(name, "read", lambda: read(pa.BufferReader(alone)))
    rows = _rows(metadata)
    if min(rows, default=0) < 0:
        raise DatasetError(name, "says that a row group has rows below zero", list(rows), hint=REWRITE)
    return metadata


def _rows(metadata: Metadata) -> tuple[int, ...]:
    return tuple(metadata.row_group(number).num_rows for number in range(metadata.num_row_groups))


def _digest(footer: bytes) -> bytes:
    return hashlib.blake2b(footer, digest_size=16).digest()
