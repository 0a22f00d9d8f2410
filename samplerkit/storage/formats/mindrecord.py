"""A dataset over MindRecord files, read by row group, without MindSpore."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, final

import numpy as np

from samplerkit.storage.files.chunked import ChunkLimits
from samplerkit.storage.files.content import ChunkFile, FileContent, digest_of, require_columns
from samplerkit.storage.files.packages import extra
from samplerkit.storage.files.stored import ByteSpan, Stored
from samplerkit.storage.formats.base import FormatOfFiles, content_of
from samplerkit.storage.remote.options import RemoteOptions
from samplerkit.storage.threads import Progress

_MAX_HEADER: Final = 1 << 28
_NUMBERS: Final = {"int32": "<i4", "int64": "<i8", "float32": "<f4", "float64": "<f8"}


@final
class MindRecordDataset(FormatOfFiles):
    """Samples in MindRecord files, one per row: row groups are the files of the layout.

    Neither MindSpore nor the `.db` next to each file is needed: the header of a file has the positions of its
    rows. A sample is a dict: numbers and arrays are numpy values of the types in the schema; strings and
    bytes are Python values.

    Args:
        files: a path, a URL or a glob pattern, whose matches are sorted by bytes; or a list of these, in
            the order given. Do not list the `.db` files.
        columns: the columns to return; None for all.
        decode: makes a sample from the dict of a row; None to return the dict itself.
        max_chunks: row groups in memory at most, including prefetched ones.
        max_bytes: bytes in memory at most; None for no limit.
        read_ahead: how many row groups are prefetched; 0 for none. None for 1, and
            for remote files for 4 per rank, as far as memory allows.
        threads: how many of them are read in parallel; None as for `read_ahead`.
        progress: called while headers are read; None for a line on the terminal, False for nothing.
        remote: how URLs are read: `RemoteOptions`, or a mapping of their fields.

    Attributes:
        files: the paths and URLs.
        is_remote: whether some of them are remote.

    Raises:
        ArgumentTypeError: an argument has the wrong type.
        ArgumentValueError: no file, or a file given twice.
        ArgumentRangeError: a number is too small.
        DatasetError: no file matches the pattern; later, a file cannot be read, has changed,
            or has other columns.

    Example:
        >>> MindRecordDataset(["train.mindrecord0", "train.mindrecord1"], ["image", "label"])
        MindRecordDataset(2 files, not opened)
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
        limits = ChunkLimits(max_chunks, max_bytes, read_ahead, threads)
        super().__init__(files, limits, progress=progress, remote=remote, columns=columns, decode=decode)

    def _inspect(self, number: int) -> ChunkFile:
        stored = Stored.of(self.files[number], self._storage)
        return MindRecordFile.of(stored, self._columns)


@dataclass(frozen=True, eq=False)
class MindRecordFile(ChunkFile):
    """A file as it was when it was first examined.

    Args:
        stored: the file.
        kinds: the type of each column by name: `string`, `bytes`, or the type of numbers.
        shapes: the shapes of array columns by name; -1 is any size.
        blobs: the columns that are stored in pages of bytes and arrays, in their order.
        groups: for each row group, the parts of the file with numbers and strings, and with bytes and arrays.
    """

    stored: Stored
    kinds: Mapping[str, str]
    shapes: Mapping[str, tuple[int, ...]]
    blobs: tuple[str, ...]
    groups: Sequence[tuple[ByteSpan, ByteSpan]]

    @classmethod
    def of(cls, stored: Stored, selected: Sequence[str] | None) -> MindRecordFile:
        """Reads the header of a file, which has the positions of all rows.

        Raises:
            DatasetError: the file cannot be read, or lacks a column.
            ValueError: the file is not a MindRecord file, or its header is not valid.
            LookupError: a value of the header is missing.
        """
        (start,) = stored.read([(0, min(8, stored.size))])
        length = int.from_bytes(start, "little")
        if len(start) < 8 or not 2 <= length <= min(stored.size - 8, _MAX_HEADER):
            raise ValueError("it is not a MindRecord file, or was truncated")
        (data,) = stored.read([(8, length)])
        header = json.loads(data)
        if (number := len(header["schema"])) != 1:
            raise ValueError(f"it has {number} schemas, but only one is supported")
        schema, blobs = header["schema"][0]["schema"], tuple(header["schema"][0]["blob_fields"])
        kinds = {name: str(field["type"]) for name, field in schema.items()}
        for name, kind in kinds.items():
            if kind not in {"string", "bytes", *_NUMBERS}:
                raise ValueError(f"column {name!r} has type {kind!r}, which is not supported")
        shapes = {name: tuple(map(int, schema[name]["shape"])) for name in kinds if "shape" in schema[name]}
        in_blob = sorted({name for name, kind in kinds.items() if kind == "bytes"} | shapes.keys())
        if sorted(blobs) != in_blob:
            raise ValueError(f"its bytes and arrays are columns {in_blob}, but it lists {list(blobs)}")
        require_columns(stored.name, [*kinds], selected or ())
        sizes, groups = _groups(header, stored.size)
        columns, digest = tuple((name, kinds[name]) for name in selected or kinds), digest_of(data)
        return cls(stored, kinds, shapes, blobs, groups, sizes=sizes, columns=columns, digest=digest)

    def place(self, chunk: int) -> str:
        """Returns the name of a row group in error messages."""
        return f"{self.stored.name}, row group {chunk}"

    def read(self, chunk: int) -> FileContent:
        """Reads a row group: the numbers and strings, and the bytes and arrays of each row.

        Raises:
            DatasetError: the row group cannot be read.
            ValueError: it does not match the header.
        """
        (raw, blob), count = self.stored.read(self.groups[chunk]), self.sizes[chunk]
        rows = list(zip(_cut(raw, count, "little"), _cut(blob, count, "little"), strict=True))
        return content_of(self.place(chunk), rows, len(raw) + len(blob), self._maker())

    def _maker(self) -> Callable[[tuple[bytes, bytes]], dict[str, Any]]:
        """Returns the function that makes the dict of a row; it raises ValueError if a row is not valid."""
        kinds, shapes, unpack = self.kinds, self.shapes, extra("msgpack", "mindrecord").unpackb
        # If a column of integers holds arrays, all integer columns are stored with variable sizes.
        is_short = any(kinds[name].startswith("int") for name in shapes)

        def make_sample(row: tuple[bytes, bytes]) -> dict[str, Any]:
            plain, pieces, sample = dict(unpack(row[0])), self._pieces(row[1]), {}
            for name, kind in self.columns:
                data = pieces.get(name)
                if data is None:
                    sample[name] = _scalar(name, kind, plain)
                elif kind == "bytes":
                    sample[name] = data
                else:
                    is_widened = is_short and kind.startswith("int")
                    values = _widened(data) if is_widened else np.frombuffer(data, _NUMBERS[kind])
                    sample[name] = values.astype(kind).reshape(shapes[name])  # a writable copy
            return sample

        return make_sample

    def _pieces(self, blob: bytes) -> dict[str, bytes]:
        if len(self.blobs) == 1:
            return {self.blobs[0]: blob}  # a single column has no length before it
        return dict(zip(self.blobs, _cut(blob, len(self.blobs), "big"), strict=True)) if self.blobs else {}


def _groups(header: Mapping[str, Any], size: int) -> tuple[list[int], list[tuple[ByteSpan, ByteSpan]]]:
    """Finds the rows: a page of bytes and arrays has the numbers of its rows together in another page.

    Raises:
        ValueError: pages contradict each other.
        LookupError: a value is missing.
    """
    begins, page_bytes = header["header_size"], header["page_size"]
    pages = sorted(header["page"], key=lambda page: int(page["page_id"]))
    if [page["page_id"] for page in pages] != list(range(len(pages))):
        raise ValueError("its pages are not numbered from 0 on")
    raw: dict[int, ByteSpan] = {}
    blobs = []
    for page in pages:
        start, used = begins + page["page_id"] * page_bytes, page["page_size"]
        if not 0 <= used <= page_bytes or start + used > size:
            raise ValueError(f"page {page['page_id']} ends beyond the file of {size} bytes")
        if page["page_type"] == "BLOB_DATA":
            blobs.append((page["page_type_id"], page["start_row_id"], page["end_row_id"], (start, used)))
            continue
        groups = [(group["id"], group["offset"]) for group in page["row_group_ids"]]
        ends = [*(offset for _, offset in groups[1:]), used]
        for (id, offset), end in zip(groups, ends, strict=True):
            if id in raw or not 0 <= offset <= end:
                raise ValueError(f"row group {id} has an invalid offset")
            raw[id] = (start + offset, end - offset)
    row, sizes, spans = 0, [], []
    for number, (id, first, last, blob) in enumerate(sorted(blobs)):
        if (id, first) != (number, row) or last < first:
            raise ValueError(f"row group {number} does not follow the one before it")
        sizes.append(last - first)
        spans.append((raw.pop(id), blob))
        row = last
    if raw:
        raise ValueError(f"row groups {sorted(raw)} lack their bytes and arrays")
    return sizes, spans


def _cut(data: bytes, count: int, order: Literal["big", "little"]) -> list[bytes]:
    """Splits a page into rows, or a row into its bytes and arrays; each part has its length before it."""
    if 8 * count > len(data):  # otherwise a damaged number could take forever
        raise ValueError(f"{count} parts do not fit into {len(data)} bytes")
    at, parts = 0, []
    for _ in range(count):
        size = int.from_bytes(data[at : at + 8], order)
        parts.append(data[at + 8 : at + 8 + size])
        at += 8 + size
    if at != len(data):
        raise ValueError(f"{count} parts end at byte {at}, not {len(data)}")
    return parts


def _scalar(name: str, kind: str, plain: Mapping[str, Any]) -> Any:
    if name not in plain:
        raise ValueError(f"a row has no column {name!r}")
    value = plain[name]
    if kind == "string":
        return value if isinstance(value, str) else json.dumps(value)
    number = np.dtype(kind).type(value)
    if kind.startswith("int") and number != value:
        raise ValueError(f"column {name!r} holds {value!r}, which is not of type {kind}")
    return number


def _widened(data: bytes) -> Any:
    """Reads integers of variable size, each stored in the fewest bytes; 2 bits for each encode its size."""
    count = int.from_bytes(data[:4], "big")
    at = 4 + math.ceil(count / 4)
    if at > len(data):
        raise ValueError(f"{count} integers do not fit into {len(data)} bytes")
    schema = np.frombuffer(data, np.uint8, at - 4, 4)
    kinds = (schema[:, None] >> np.array([6, 4, 2, 0], np.uint8)) & 3
    sizes = (1 << kinds.reshape(-1)[:count]).astype(np.int64)
    starts = at + np.cumsum(sizes) - sizes
    if at + int(sizes.sum()) != len(data):
        raise ValueError(f"{count} integers do not fill {len(data)} bytes")
    # 8 bytes from each start on; the shifts remove those of the next integers.
    source, unused = np.frombuffer(data + bytes(7), np.uint8), 64 - 8 * sizes
    values = source[starts[:, None] + np.arange(8)].view("<i8").reshape(-1)
    return values << unused >> unused
