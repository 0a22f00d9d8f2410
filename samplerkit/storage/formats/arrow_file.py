"""One file of Arrow's IPC: where its record batches lie, found from message to message."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, final

from samplerkit.errors import DatasetError
from samplerkit.storage.formats.extras import extra
from samplerkit.storage.formats.stored import ANEW, ByteSpan, Stored, guarded

_MAGIC = b"ARROW1\0\0"
_MARK = 0xFFFFFFFF
_SCHEMA, _DICTIONARY, _BATCH = 1, 2, 3
_LARGEST_HEADER = 1 << 28


@final
@dataclass(frozen=True)
class Message:
    """One message of a file.

    Args:
        kind: schema, dictionary or record batch.
        span: its bytes: offset and length.
        header: how many of them are not the body.
        check: a CRC-32 of these.
        rows: of a record batch.
    """

    kind: int
    span: ByteSpan
    header: int
    check: int
    rows: int


@final
@dataclass(frozen=True)
class ArrowFile:
    """A file as it was when it was looked at.

    Args:
        stored: the file.
        schema: the message that begins it.
        dictionaries: the messages of dictionaries.
        batches: those of record batches.
    """

    stored: Stored
    schema: Message
    dictionaries: tuple[Message, ...]
    batches: tuple[Message, ...]

    @classmethod
    def of(cls, path: str) -> ArrowFile:
        """Goes through a file, from header to header.

        Raises:
            DatasetError: it cannot be read, ends early, or is something else.
        """
        stored = Stored.of(path, None)
        if stored.size > 4 and stored.read([(0, 4)], None) == [b"FEA1"]:
            raise DatasetError(path, "is Feather of version 1", mend="write it anew as version 2")
        messages = list(guarded(path, "read", lambda: list(_messages(stored))))
        by_kind = {
            kind: tuple(m for m in messages if m.kind == kind) for kind in (_SCHEMA, _DICTIONARY, _BATCH)
        }
        if (
            len(by_kind[_SCHEMA]) != 1
            or messages[0].kind != _SCHEMA
            or len(messages) != sum(map(len, by_kind.values()))
        ):
            raise DatasetError(path, "holds other messages than one schema and its batches", mend=ANEW)
        return cls(stored, messages[0], by_kind[_DICTIONARY], by_kind[_BATCH])

    def read_schema(self) -> Any:
        """Reads the schema.

        Raises:
            DatasetError: it cannot be read.
        """
        pa = extra("pyarrow", "parquet")
        data = self._read([self.schema])
        return guarded(self.stored.name, "read", lambda: pa.ipc.read_schema(pa.BufferReader(data)))

    def read(self, number: int, place: str) -> Any:
        """Reads a record batch into a table.

        Raises:
            DatasetError: it cannot be read, or is not what it was.
        """
        batch = self.batches[number]
        before = [message for message in self.dictionaries if message.span < batch.span]
        data = self._read([self.schema, *before, batch])

        def parsed() -> Any:
            pa = extra("pyarrow", "parquet")
            with pa.ipc.open_stream(pa.BufferReader(data)) as stream:
                table = pa.Table.from_batches([stream.read_next_batch()])
            # Nothing else protects from offsets that lead out of the batch.
            table.validate(full=True)
            return table

        table = guarded(place, "read", parsed)
        if table.num_rows != batch.rows:
            problem = f"has {table.num_rows} rows, and its header said {batch.rows}"
            raise DatasetError(place, problem, mend=ANEW)
        return table

    def _read(self, messages: Sequence[Message]) -> bytes:
        parts = self.stored.read([message.span for message in messages], None)
        for message, part in zip(messages, parts, strict=True):
            if zlib.crc32(part[: message.header]) != message.check:
                problem = f"has another message at {message.span[0]} than before"
                raise DatasetError(self.stored.name, problem, mend=ANEW)
        return b"".join(parts)


def _messages(stored: Stored) -> Iterator[Message]:
    """Goes through the messages of a file, up to the mark that ends them.

    Raises:
        ValueError: there is no such mark, or something else.
        struct.error: a header is damaged.
    """
    (begins,) = stored.read([(0, min(8, stored.size))], None)
    is_file = begins == _MAGIC
    at = len(_MAGIC) if is_file else 0
    while True:
        if at + 4 > stored.size:
            raise ValueError("it ends without the mark of its end")
        (head,) = stored.read([(at, min(8, stored.size - at))], None)
        (length,) = struct.unpack_from("<I", head)
        prefix = 4
        if length == _MARK:  # before Arrow 0.15 there was no such mark
            (length,) = struct.unpack_from("<I", head, 4)
            prefix = 8
        if length == 0:
            _require_end(stored, at + prefix, is_file=is_file)
            return
        if length > min(_LARGEST_HEADER, stored.size - at - prefix):
            raise ValueError(f"a message at {at} that is longer than the file")
        (header,) = stored.read([(at, prefix + length)], None)
        kind, body, rows = _understood(header[prefix:])
        end = at + prefix + length + body
        if body < 0 or end > stored.size or rows < 0:
            raise ValueError(f"a message at {at} that is longer than the file")
        yield Message(kind, (at, end - at), prefix + length, zlib.crc32(header), rows)
        at = end


def _require_end(stored: Stored, at: int, *, is_file: bool) -> None:
    (rest,) = stored.read([(max(at, stored.size - 6), min(6, stored.size - at))], None)
    if is_file and rest != _MAGIC[:6]:
        raise ValueError("it ends without the mark of its end")
    if not is_file and at != stored.size:
        raise ValueError(f"more data after its end, at {at}")


def _understood(header: bytes) -> tuple[int, int, int]:
    """Gives the kind of a message, the length of its body, and the rows of a record batch."""
    (table,) = struct.unpack_from("<I", header)
    kind = _field(header, table, 1, "<B", 0)
    body = _field(header, table, 3, "<q", 0)
    inner = _slot(header, table, 2)
    if kind != _BATCH or inner is None:
        return kind, body, 0
    (offset,) = struct.unpack_from("<I", header, inner)
    return kind, body, _field(header, inner + offset, 0, "<q", 0)


def _field(data: bytes, table: int, number: int, kind: str, default: int) -> int:
    place = _slot(data, table, number)
    return default if place is None else int(struct.unpack_from(kind, data, place)[0])


def _slot(data: bytes, table: int, number: int) -> int | None:
    """Finds a field in a table of a flatbuffer; None where it is left out."""
    (back,) = struct.unpack_from("<i", data, table)
    places = table - back
    (size,) = struct.unpack_from("<H", data, places)
    if places < 0 or 4 + 2 * number >= size:
        return None
    (offset,) = struct.unpack_from("<H", data, places + 4 + 2 * number)
    return table + offset if offset else None
