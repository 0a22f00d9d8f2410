"""The index of a folder of litData, and one of its chunks, in all its ways of packing."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any, Final, final

import numpy as np

from samplerkit.storage.formats.byte_parts import ByteParts
from samplerkit.storage.formats.extras import extra
from samplerkit.storage.formats.folder import require_inside
from samplerkit.storage.formats.litdata_tree import SampleTree, tree_of

_FRAMED: Final = struct.Struct("<8sHHIII")
_FRAME: Final = struct.Struct("<IIQII")
_MARK_OF_FRAMES: Final = b"LDFZ01\0\0"
_MARK_OF_ROWS: Final = b"LDARW01\0"
_MOST_BYTES: Final = 1 << 31

Sample = bytes | memoryview | dict[str, Any]
"""The bytes of a sample, of a file in memory where they are not packed; or the dict of a row of Arrow's."""


@final
@dataclass(frozen=True)
class LitChunk:
    """A chunk, as the index tells of it.

    Args:
        name: of the file.
        size: in bytes, unpacked where the file is packed as a whole; early versions leave out its head.
        samples: how many it has.
    """

    name: str
    size: int
    samples: int

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> LitChunk:
        """Takes what the index says.

        Raises:
            ValueError: it cannot be.
            LookupError: something is missing.
        """
        name, size, samples = told["filename"], told["chunk_bytes"], told["chunk_size"]
        require_inside(name)
        if type(size) is not int or type(samples) is not int or min(size, samples) < 0:
            raise ValueError(f"{name!r} of {size!r} bytes and {samples!r} samples")
        return cls(name, size, samples)

    @property
    def sizes(self) -> tuple[int, int]:
        """The bytes that it may have."""
        return self.size, self.size + 4 * (self.samples + 2)


@final
@dataclass(frozen=True)
class LitIndex:
    """What the index of a folder says.

    Args:
        chunks: the files.
        formats: what writes each value of a sample.
        tree: how values make a sample.
        packing: what zstd has packed: `chunk`, `batch` or `sample`; nothing, if it is empty.
        is_tokens: whether samples are tokens, without the sizes of values before them.
    """

    chunks: tuple[LitChunk, ...]
    formats: tuple[str, ...]
    tree: SampleTree
    packing: str
    is_tokens: bool

    @classmethod
    def of(cls, data: bytes) -> LitIndex:
        """Takes what the index says.

        Raises:
            ValueError: it is none, or something that is not read.
            LookupError: something is missing.
        """
        told = json.loads(data)
        config, chunks = told["config"], tuple(map(LitChunk.of, told["chunks"]))
        if not chunks:
            raise ValueError("it names no chunks")
        if config.get("encryption"):
            raise ValueError("its chunks are encrypted")
        loader = config.get("item_loader") or "PyTreeLoader"
        if loader not in {"PyTreeLoader", "TokensLoader"}:
            raise ValueError(f"written for {loader}, which is not read")
        compression = config.get("compression") or ""
        if compression.partition(":")[0] not in {"", "zstd"}:
            raise ValueError(f"compression {compression!r}, which is not known")
        packing = (config.get("compression_level") or "chunk") if compression else ""
        if packing not in {"", "chunk", "batch", "sample"}:
            raise ValueError(f"compression of a {packing!r}, which is not known")
        formats, tree = tuple(config["data_format"]), tree_of(config["data_spec"])
        if tree.leaves != len(formats) or (loader == "TokensLoader" and len(formats) != 1):
            raise ValueError(f"samples of {tree.leaves} values, and {len(formats)} ways to write them")
        return cls(chunks, formats, tree, packing, loader == "TokensLoader")

    def understood(self, number: int, data: bytes) -> Sequence[Sample]:
        """Takes the bytes of a chunk apart.

        Raises:
            ValueError: it is not what the index says.
        """
        chunk = self.chunks[number]
        raw = _unpacked(data, max(chunk.sizes)) if self.packing == "chunk" else data
        if len(raw) not in chunk.sizes:
            raise ValueError(f"it has {len(raw)} bytes, and index.json says {chunk.size}")
        if self.packing == "batch":
            return _framed(raw, chunk.samples)
        ends = _ends(raw, 4, chunk.samples)
        if int.from_bytes(raw[:4], "little") != chunk.samples or ends[0] != 4 * (chunk.samples + 2):
            raise ValueError(f"it does not begin with {chunk.samples} samples, as index.json says")
        if ends[-1] != len(raw):
            return _rows(raw, ends[-1], chunk.samples)
        parts = ByteParts(raw, ends)
        return [*map(_unpacked, parts)] if self.packing == "sample" else parts


def _ends(data: bytes, at: int, count: int) -> list[int]:
    ends: list[int] = np.frombuffer(data, "<u4", count + 1, at).tolist()
    if ends != sorted(ends):
        raise ValueError("its samples do not lie where it says")
    return ends


def _framed(raw: bytes, samples: int) -> list[Sample]:
    """Unpacks runs of samples, each packed by itself."""
    mark, version, flags, count, _, frames = _FRAMED.unpack_from(raw)
    if (mark, version, flags, count) != (_MARK_OF_FRAMES, 1, 0, samples):
        raise ValueError(f"it does not begin with frames of {samples} samples, as index.json says")
    ends, at = _ends(raw, _FRAMED.size, count), _FRAMED.size + 4 * (count + 1)
    told = [_FRAME.unpack_from(raw, at + number * _FRAME.size) for number in range(frames)]
    place, first = at + frames * _FRAME.size, 0
    found: list[Sample] = []
    for begins, items, offset, packed, size in told:
        last = first + items
        if (begins, offset) != (first, place) or last > count or size != ends[last] - ends[first]:
            raise ValueError("its frames do not lie where it says")
        plain = _unpacked(raw[offset : offset + packed], size)
        if len(plain) != size:
            raise ValueError(f"a frame of {len(plain)} bytes, which says {size}")
        start = ends[first]
        found += [plain[a - start : b - start] for a, b in pairwise(ends[first : last + 1])]
        first, place = last, place + packed
    if (first, place, ends[0]) != (count, len(raw), 0):
        raise ValueError("its frames do not hold all samples")
    return found


def _rows(raw: bytes, start: int, samples: int) -> list[Sample]:
    """Reads the table of rows that stands behind the samples, or in their place."""
    length = int.from_bytes(raw[-12:-8], "little")
    if raw[-8:] != _MARK_OF_ROWS or start + length + 12 != len(raw):
        raise ValueError("its samples do not end where it does")
    ipc, table = extra("pyarrow.ipc", "litdata"), raw[start:-12]
    reader = ipc.open_file(table) if table.startswith(b"ARROW1") else ipc.open_stream(table)
    found = reader.read_all()
    found.validate(full=True)
    if found.num_rows != samples:
        raise ValueError(f"a table of {found.num_rows} rows, and index.json says {samples}")
    rows: list[Sample] = found.to_pylist()
    return rows


def _unpacked(data: bytes | memoryview, most: int = _MOST_BYTES) -> bytes:
    """Unpacks what zstd has packed, to so many bytes and one more at most."""
    pa = extra("pyarrow", "litdata")
    stream: Any = pa.CompressedInputStream(pa.BufferReader(data), "zstd")
    found: bytes = stream.read(most + 1)
    return found


def cutter(count: int) -> Callable[[bytes | memoryview], Sequence[bytes]]:
    """Gives what cuts the bytes of a sample into those of its values."""
    sizes = struct.Struct(f"<{count}I")

    def cut(item: bytes | memoryview) -> Sequence[bytes]:
        ends = [*accumulate(sizes.unpack_from(item), initial=sizes.size)]
        if count and ends[-1] != len(item):
            raise ValueError(f"its values end at {ends[-1]}, and there are {len(item)} bytes")
        return [bytes(item[start:end]) for start, end in pairwise(ends)]

    return cut
