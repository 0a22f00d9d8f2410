"""A MindRecord file: its header, its pages, and the columns of a row."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, final

import numpy as np

from samplerkit.errors import DatasetError
from samplerkit.storage.formats.msgpack import unpacked_map
from samplerkit.storage.formats.stored import ANEW, ByteSpan, Stored, guarded
from samplerkit.storage.remote.storage import RemoteStorage

_MOST_HEADER: Final = 1 << 28
_NUMBERS: Final = {"int32": "<i4", "int64": "<i8", "float32": "<f4", "float64": "<f8"}


@final
@dataclass(frozen=True)
class RowGroup:
    """Rows that lie together.

    Args:
        rows: how many.
        raw: where their numbers and texts lie: offset and length.
        blob: where their bytes and arrays do.
    """

    rows: int
    raw: ByteSpan
    blob: ByteSpan


@final
@dataclass(frozen=True)
class MindColumns:
    """What all rows hold.

    Args:
        kinds: of each column, by its name: `string`, `bytes`, or the type of numbers.
        shapes: of those that are arrays; a -1 says as many as there are.
        blobs: the columns that lie in pages of bytes and arrays, in their order.
    """

    kinds: tuple[tuple[str, str], ...]
    shapes: tuple[tuple[str, tuple[int, ...]], ...]
    blobs: tuple[str, ...]

    @classmethod
    def of(cls, schemas: Sequence[Mapping[str, Any]]) -> MindColumns:
        """Takes what a header says.

        Raises:
            ValueError: it cannot be.
            LookupError: something is missing.
        """
        if len(schemas) != 1:
            raise ValueError(f"{len(schemas)} schemas, and only files of one are read")
        told, blobs = schemas[0]["schema"], tuple(schemas[0]["blob_fields"])
        kinds = tuple((str(name), str(field["type"])) for name, field in told.items())
        for name, kind in kinds:
            if kind not in {"string", "bytes", *_NUMBERS}:
                raise ValueError(f"column {name!r} of type {kind!r}, which is not known")
        arrays = [name for name, _ in kinds if "shape" in told[name]]
        shapes = tuple((name, tuple(map(int, told[name]["shape"]))) for name in arrays)
        in_blob = {name for name, kind in kinds if kind == "bytes"} | {*arrays}
        if set(blobs) != in_blob or len(blobs) != len(in_blob):
            raise ValueError(f"bytes and arrays in columns {sorted(in_blob)}, and says {list(blobs)}")
        return cls(kinds, shapes, blobs)

    @property
    def names(self) -> tuple[str, ...]:
        """All columns."""
        return tuple(name for name, _ in self.kinds)

    def made(self, raw: bytes, blob: bytes, chosen: Sequence[str]) -> dict[str, Any]:
        """Makes the dict of a row.

        Raises:
            ValueError: it is not what the header says.
        """
        plain, pieces = unpacked_map(raw), self._pieces(blob)
        kinds, shapes = dict(self.kinds), dict(self.shapes)
        # Where a column of integers is an array, all columns of integers are written short.
        is_short = any(kinds[name].startswith("int") for name in shapes)
        found: dict[str, Any] = {}
        for name in chosen:
            kind, data = kinds[name], pieces.get(name)
            if data is None:
                found[name] = _scalar(name, kind, plain)
            elif kind == "bytes":
                found[name] = data
            else:
                whole = _widened(data) if is_short and kind.startswith("int") else None
                values = np.frombuffer(data, _NUMBERS[kind]) if whole is None else whole
                found[name] = values.astype(kind).reshape(shapes[name])  # a copy, which can be written to
        return found

    def _pieces(self, blob: bytes) -> dict[str, bytes]:
        if len(self.blobs) == 1:
            return {self.blobs[0]: blob}  # it alone has no length before it
        if not self.blobs:
            return {}
        at, found = 0, {}
        for name in self.blobs:
            size = int.from_bytes(blob[at : at + 8], "big")
            found[name], at = blob[at + 8 : at + 8 + size], at + 8 + size
        if at != len(blob):
            raise ValueError(f"its columns take {at} bytes, and there are {len(blob)}")
        return found


@final
@dataclass(frozen=True)
class MindRecordFile:
    """A file as it was when it was looked at.

    Args:
        stored: the file.
        digest: of its header.
        columns: what its rows hold.
        groups: its rows.
    """

    stored: Stored
    digest: bytes
    columns: MindColumns
    groups: tuple[RowGroup, ...]

    @classmethod
    def of(cls, path: str, storage: RemoteStorage | None) -> MindRecordFile:
        """Looks at a file: its header says where all its rows lie.

        Raises:
            DatasetError: it cannot be read, or is no MindRecord file.
        """
        stored = Stored.of(path, storage)
        (start,) = stored.read([(0, min(8, stored.size))], storage)
        length = int.from_bytes(start, "little")
        if len(start) < 8 or not 2 <= length <= min(stored.size - 8, _MOST_HEADER):
            raise DatasetError(stored.name, "is no MindRecord file, or was cut", mend=ANEW)
        (data,) = stored.read([(8, length)], storage)
        header = guarded(stored.name, "read", lambda: json.loads(data))
        columns = guarded(stored.name, "read", lambda: MindColumns.of(header["schema"]))
        groups = guarded(stored.name, "read", lambda: _groups(header, stored.size))
        return cls(stored, hashlib.blake2b(data, digest_size=16).digest(), columns, groups)

    def read(self, number: int, storage: RemoteStorage | None) -> list[tuple[bytes, bytes]]:
        """Reads a row group: of each row its numbers and texts, and its bytes and arrays.

        Raises:
            DatasetError: it cannot be read, or is not what the header says.
        """
        group = self.groups[number]
        raw, blob = self.stored.read([group.raw, group.blob], storage)
        place = f"{self.stored.name}, row group {number}"

        def parsed() -> list[tuple[bytes, bytes]]:
            return list(zip(_rows(raw, group.rows), _rows(blob, group.rows), strict=True))

        return guarded(place, "read", parsed)


def _groups(header: Mapping[str, Any], size: int) -> tuple[RowGroup, ...]:
    """Finds the rows: those of a page of bytes and arrays have their numbers together in another page.

    Raises:
        ValueError: pages contradict one another.
        LookupError: something is missing.
    """
    begins, page_bytes = header["header_size"], header["page_size"]
    pages = sorted(header["page"], key=lambda page: int(page["page_id"]))
    if [page["page_id"] for page in pages] != list(range(len(pages))):
        raise ValueError("pages without the numbers that they should have")
    raw: dict[int, ByteSpan] = {}
    blobs = []
    for page in pages:
        start, used = begins + page["page_id"] * page_bytes, page["page_size"]
        if not 0 <= used <= page_bytes or start + used > size:
            raise ValueError(f"page {page['page_id']} lies beyond the end, at {size}")
        if page["page_type"] == "BLOB_DATA":
            blobs.append((page["page_type_id"], page["start_row_id"], page["end_row_id"], (start, used)))
            continue
        groups = [(group["id"], group["offset"]) for group in page["row_group_ids"]]
        ends = [*(offset for _, offset in groups[1:]), used]
        for (id, offset), end in zip(groups, ends, strict=True):
            if id in raw or not 0 <= offset <= end:
                raise ValueError(f"row group {id} lies where it cannot")
            raw[id] = (start + offset, end - offset)
    row, found = 0, []
    for number, (id, first, last, blob) in enumerate(sorted(blobs)):
        if (id, first) != (number, row) or last < first:
            raise ValueError(f"row group {number} does not follow the one before it")
        found.append(RowGroup(last - first, raw.pop(id), blob))
        row = last
    if raw:
        raise ValueError(f"row groups {sorted(raw)} lack their bytes and arrays")
    return tuple(found)


def _rows(data: bytes, count: int) -> list[bytes]:
    """Cuts a page into rows, each with its length before it."""
    at, found = 0, []
    for _ in range(count):
        size = int.from_bytes(data[at : at + 8], "little")
        found.append(data[at + 8 : at + 8 + size])
        at += 8 + size
    if at != len(data):
        raise ValueError(f"{count} rows that end at {at}, in a page of {len(data)} bytes")
    return found


def _scalar(name: str, kind: str, plain: Mapping[str, Any]) -> Any:
    if name not in plain:
        raise ValueError(f"a row without column {name!r}")
    value = plain[name]
    if kind == "string":
        return value if isinstance(value, str) else json.dumps(value)
    made = np.dtype(kind).type(value)
    if kind.startswith("int") and int(value) != made:
        problem = f"column {name!r} holds {value!r}, which is no {kind}"
        raise ValueError(problem)
    return made


def _widened(data: bytes) -> Any:
    """Reads integers that were each written in as few bytes as they need: 2 bits of each say how many."""
    count = int.from_bytes(data[:4], "big")
    at = 4 + math.ceil(count / 4)
    if at > len(data):
        raise ValueError(f"{count} integers in {len(data)} bytes")
    told = np.frombuffer(data, np.uint8, at - 4, 4)
    kinds = (told[:, None] >> np.array([6, 4, 2, 0], np.uint8)) & 3
    sizes = (1 << kinds.reshape(-1)[:count]).astype(np.int64)
    starts = at + np.cumsum(sizes) - sizes
    if at + int(sizes.sum()) != len(data):
        raise ValueError(f"{count} integers that end elsewhere than their {len(data)} bytes")
    found, source = np.empty(count, np.int64), np.frombuffer(data, np.uint8)
    for size in (1, 2, 4, 8):
        which = np.flatnonzero(sizes == size)
        parts = np.ascontiguousarray(source[starts[which][:, None] + np.arange(size)])
        found[which] = parts.view(f"<i{size}").reshape(-1)
    return found
