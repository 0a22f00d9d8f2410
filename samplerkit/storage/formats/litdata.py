"""Samples in litData's optimized folders: chunks, packed or not, local or remote, without its package."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, Final, final

import numpy as np

from samplerkit.errors import DatasetError
from samplerkit.order.layout import Layout
from samplerkit.storage.files.chunked import Chunks
from samplerkit.storage.files.content import FileContent
from samplerkit.storage.files.packages import extra, guarded
from samplerkit.storage.files.stored import Stored
from samplerkit.storage.formats.base import (
    INDEX,
    DecodeSample,
    FolderDataset,
    content_of,
    digest_of,
    require_inside,
)
from samplerkit.storage.formats.values import Make, SampleTree, cut, tree_of, value_decoder
from samplerkit.storage.missing_file import REWRITE

_HEAD_OF_FRAMES: Final = struct.Struct("<8sHHIII")
_FRAME: Final = struct.Struct("<IIQII")
_MARK_OF_FRAMES: Final = b"LDFZ01\0\0"
_MARK_OF_ROWS: Final = b"LDARW01\0"
_MOST_BYTES: Final = 1 << 31

SampleBytes = tuple[bytes, int, int]
"""Where the bytes of a sample are: in what, from where on, and up to where."""


@final
class LitDataset(FolderDataset):
    """Samples in a folder that litData has optimized: chunks are the files of the layout.

    Its package is not needed. What is pickled is refused, and so are encrypted chunks.

    Args:
        folder: with `index.json`, on this machine or at a URL. Several are parts of a `TreeDataset`.
        columns: the entries of a sample to hand out, where samples are dicts; None for all there is.
        decode: makes a sample of what was written; None for this itself.
        max_chunks: chunks in memory at most, those that are read ahead included.
        max_bytes: bytes in memory at most; None for no limit.
        read_ahead: how many chunks are read before they are needed; 0 for none. None for 1, and
            of remote ones for 4 a rank, as far as there is room.
        threads: how many of them at a time; None as for `read_ahead`.
        remote: how URLs are read: `RemoteOptions`, or a mapping of these.

    Attributes:
        folder: the path or URL.
        is_remote: whether it is remote.

    Raises:
        ArgumentTypeError: an argument has the wrong type.
        ArgumentRangeError: a number is too small.
        DatasetError: later, there is no index, a chunk is not what it says, or a value is pickled.

    Example:
        >>> LitDataset("/data/optimized/train", ["image", "label"])
        LitDataset('/data/optimized/train', not looked at)
    """

    def _found_in(self, index: bytes, place: str) -> Chunks:
        found, chosen = LitIndex.of(index), self._columns
        if chosen is not None and found.chunks:
            found.tree.chosen(chosen)
        files = tuple(self._file_of(found, chunk) for chunk in found.chunks)
        layout = Layout([chunk.samples for chunk in found.chunks], [chunk.name for chunk in found.chunks])
        read = partial(_read, found, files, chosen, self._decode)
        return Chunks(layout, read, digest_of(repr(found).encode()))

    def _file_of(self, index: LitIndex, chunk: LitChunk) -> Stored:
        stored = self._stored(chunk.name, chunk.size)
        if not self.is_remote and index.packing != "chunk" and stored.size not in chunk.sizes:
            problem = f"has {stored.size} bytes, and {INDEX} says"
            raise DatasetError(stored.name, problem, chunk.size, hint=REWRITE)
        return stored


def _read(
    index: LitIndex,
    files: Sequence[Stored],
    columns: tuple[str, ...] | None,
    decode: DecodeSample | None,
    number: int,
) -> FileContent:
    """Reads a chunk."""
    stored = files[number]
    if stored.storage is not None:
        stored = Stored.of(stored.path, stored.storage)
    (data,) = stored.read([(0, stored.size)])
    samples, size = guarded(stored.name, "read", lambda: index.samples_in(number, data))
    if samples and isinstance(samples[0], dict):
        return content_of(stored.name, samples, size, lambda row: _chosen(row, columns), decode)
    cut_sample, make = index.cutter(), index.maker(columns)
    return content_of(stored.name, samples, size, lambda part: make(cut_sample(*part)), decode)


def _chosen(row: Mapping[str, Any], columns: Sequence[str] | None) -> Any:
    return row if columns is None else {name: row[name] for name in columns}


@final
@dataclass(frozen=True)
class LitChunk:
    """A chunk, as the index has it.

    Args:
        name: of the file.
        size: in bytes, unpacked where the file is packed as a whole; early versions leave out its head.
        samples: how many it has.
    """

    name: str
    size: int
    samples: int

    @classmethod
    def of(cls, said: Mapping[str, Any]) -> LitChunk:
        """Takes what the index says.

        Raises:
            ValueError: it cannot be.
            LookupError: something is missing.
        """
        name, size, samples = said["filename"], said["chunk_bytes"], said["chunk_size"]
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
        said = json.loads(data)
        config, chunks = said["config"], tuple(map(LitChunk.of, said["chunks"]))
        if not chunks:  # its config then says nothing
            return cls((), (), SampleTree("tuple", (), (), 0), "", is_tokens=False)
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

    def maker(self, columns: Sequence[str] | None) -> Make:
        """Gives what makes a sample of the bytes of its values."""
        decoders = tuple(map(value_decoder, self.formats))
        if columns is None:
            return self.tree.maker(decoders)
        parts = [(name, part.maker(decoders, at)) for name, part, at in self.tree.chosen(columns)]
        return lambda values: {name: part(values) for name, part in parts}

    def cutter(self) -> Callable[[bytes, int, int], Sequence[bytes]]:
        """Gives what cuts the bytes of a sample into those of its values."""
        if self.is_tokens:
            return lambda data, start, end: [data[start:end]]
        sizes = struct.Struct(f"<{len(self.formats)}I")
        return lambda data, start, end: cut(data, sizes.unpack_from(data, start), start + sizes.size, end)

    def samples_in(self, number: int, data: bytes) -> tuple[Sequence[SampleBytes | dict[str, Any]], int]:
        """Finds the samples in the bytes of a chunk.

        Returns:
            The samples, a part each or the dict of a row of Arrow's; and the bytes that they take, unpacked.

        Raises:
            ValueError: it is not what the index says.
        """
        chunk = self.chunks[number]
        raw = _unpacked(data, max(chunk.sizes)) if self.packing == "chunk" else data
        if len(raw) not in chunk.sizes:
            raise ValueError(f"it has {len(raw)} bytes, and index.json says {chunk.size}")
        if self.packing == "batch":
            found = _framed(raw, chunk.samples)
            return found, sum(end - start for _, start, end in found)
        ends = _ends(raw, 4, chunk.samples)
        if int.from_bytes(raw[:4], "little") != chunk.samples or ends[0] != 4 * (chunk.samples + 2):
            raise ValueError(f"it does not begin with {chunk.samples} samples, as index.json says")
        if ends[-1] != len(raw):
            return _rows(raw, ends[-1], chunk.samples), len(raw)
        if self.packing == "sample":
            unpacked = [_unpacked(raw[start:end]) for start, end in pairwise(ends)]
            return [(sample, 0, len(sample)) for sample in unpacked], sum(map(len, unpacked))
        return _CutSamples(raw, ends), len(raw)


@final
@dataclass(frozen=True, eq=False)
class _CutSamples(Sequence[SampleBytes]):
    """The samples of a chunk, one behind another: as many tuples would make Python look for garbage."""

    data: bytes
    ends: list[int]

    def __len__(self) -> int:
        return len(self.ends) - 1

    def __getitem__(self, number: int) -> SampleBytes:  # type: ignore[override]  # never sliced
        return self.data, self.ends[number], self.ends[number + 1]


def _ends(data: bytes, at: int, count: int) -> list[int]:
    ends: list[int] = np.frombuffer(data, "<u4", count + 1, at).tolist()
    if ends != sorted(ends):
        raise ValueError("its samples are not where it says")
    return ends


def _framed(raw: bytes, samples: int) -> list[SampleBytes]:
    """Unpacks runs of samples, each packed by itself."""
    mark, version, flags, count, _, frames = _HEAD_OF_FRAMES.unpack_from(raw)
    if (mark, version, flags, count) != (_MARK_OF_FRAMES, 1, 0, samples):
        raise ValueError(f"it does not begin with frames of {samples} samples, as index.json says")
    ends, at = _ends(raw, _HEAD_OF_FRAMES.size, count), _HEAD_OF_FRAMES.size + 4 * (count + 1)
    said = [_FRAME.unpack_from(raw, at + number * _FRAME.size) for number in range(frames)]
    place, first = at + frames * _FRAME.size, 0
    found: list[SampleBytes] = []
    for begins, items, offset, packed, size in said:
        last = first + items
        if (begins, offset) != (first, place) or last > count or size != ends[last] - ends[first]:
            raise ValueError("its frames are not where it says")
        plain = _unpacked(raw[offset : offset + packed], size)
        if len(plain) != size:
            raise ValueError(f"a frame of {len(plain)} bytes, which says {size}")
        start = ends[first]
        found += [(plain, a - start, b - start) for a, b in pairwise(ends[first : last + 1])]
        first, place = last, place + packed
    if (first, place, ends[0]) != (count, len(raw), 0):
        raise ValueError("its frames do not hold all samples")
    return found


def _rows(raw: bytes, start: int, samples: int) -> list[dict[str, Any]]:
    """Reads the table of rows that follows the samples, or replaces them."""
    length = int.from_bytes(raw[-12:-8], "little")
    if raw[-8:] != _MARK_OF_ROWS or start + length + 12 != len(raw):
        raise ValueError("its samples do not end where it does")
    ipc, table = extra("pyarrow.ipc", "litdata"), raw[start:-12]
    reader = ipc.open_file(table) if table.startswith(b"ARROW1") else ipc.open_stream(table)
    found = reader.read_all()
    found.validate(full=True)
    if found.num_rows != samples:
        raise ValueError(f"a table of {found.num_rows} rows, and index.json says {samples}")
    rows: list[dict[str, Any]] = found.to_pylist()
    return rows


def _unpacked(data: bytes, most: int = _MOST_BYTES) -> bytes:
    """Unpacks what zstd has packed, to so many bytes and one more at most."""
    pa = extra("pyarrow", "litdata")
    stream: Any = pa.CompressedInputStream(pa.BufferReader(data), "zstd")
    found: bytes = stream.read(most + 1)
    return found
