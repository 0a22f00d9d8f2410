"""A dataset over litData's optimized folders, compressed or not, local or remote, without its package."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any, Final, final

from samplerkit.storage.files.packages import extra
from samplerkit.storage.formats.base import INDEX, FolderDataset, FolderShard, Rows
from samplerkit.storage.formats.values import cutter, ends_in, sample_maker, unpacked, value_decoder

_HEAD_OF_FRAMES: Final = struct.Struct("<8sHHIII")
_FRAME: Final = struct.Struct("<IIQII")
_MARK_OF_FRAMES: Final = b"LDFZ01\0\0"
_MARK_OF_ROWS: Final = b"LDARW01\0"
_MAX_BYTES: Final = 1 << 31


@final
class LitDataset(FolderDataset):
    """Samples in a folder that was written by litData's `optimize`: chunks are the files of the layout.

    The litData package is not needed. Pickled values and encrypted chunks are refused.

    Args:
        folder: the folder of `index.json`, a path or URL. Combine several folders in a `TreeDataset`.
        columns: the entries of a sample to return, if samples are dicts; None for all.
        decode: makes a sample from the value that was written; None to return the value itself.
        max_chunks: chunks in memory at most, including prefetched ones.
        max_bytes: bytes in memory at most; None for no limit.
        read_ahead: how many chunks are prefetched; 0 for none. None for 1, and
            for remote files for 4 per rank, as far as memory allows.
        threads: how many of them are read in parallel; None as for `read_ahead`.
        remote: how URLs are read: `RemoteOptions`, or a mapping of their fields.

    Attributes:
        folder: the path or URL.
        is_remote: whether it is remote.

    Raises:
        ArgumentTypeError: an argument has the wrong type.
        ArgumentRangeError: a number is too small.
        DatasetError: later, there is no index, a chunk does not match it, or a value is pickled.

    Example:
        >>> LitDataset("/data/optimized/train", ["image", "label"])
        LitDataset('/data/optimized/train', not opened)
    """

    def _parse_index(self, index: bytes, place: str) -> Sequence[FolderShard]:
        parsed = json.loads(index)
        config, entries = parsed["config"], parsed["chunks"]
        if not entries:  # the config is empty then
            return ()
        samples = LitSamples.of(config, self._columns)
        samples.maker(b"", ())  # raises if a column does not exist
        return [LitChunk.of(entry, samples) for entry in entries]


@dataclass(frozen=True)
class LitSamples:
    """How the samples of a folder are stored.

    Args:
        formats: the name of litData's serializer of each value of a sample.
        spec: how a sample is built from its values.
        packing: the unit that zstd compresses: `chunk`, `batch` or `sample`; empty if not compressed.
        is_tokens: whether samples are tokens, which are stored without the sizes of values before them.
        columns: the entries of a sample to return; None for all.
    """

    formats: tuple[str, ...]
    spec: Any
    packing: str
    is_tokens: bool
    columns: Sequence[str] | None

    @classmethod
    def of(cls, config: Mapping[str, Any], columns: Sequence[str] | None) -> LitSamples:
        """Reads the config in an index.

        Raises:
            ValueError: the config is not valid, or its format is not supported.
            LookupError: a value is missing.
        """
        if config.get("encryption"):
            raise ValueError("its chunks are encrypted")
        loader = config.get("item_loader") or "PyTreeLoader"
        if loader not in {"PyTreeLoader", "TokensLoader"}:
            raise ValueError(f"it was written for {loader}, which is not supported")
        compression = config.get("compression") or ""
        if compression.partition(":")[0] not in {"", "zstd"}:
            raise ValueError(f"compression {compression!r} is not supported")
        packing = (config.get("compression_level") or "chunk") if compression else ""
        if packing not in {"", "chunk", "batch", "sample"}:
            raise ValueError(f"compression of each {packing!r} is not supported")
        formats, is_tokens = tuple(config["data_format"]), loader == "TokensLoader"
        return cls(formats, json.loads(config["data_spec"]), packing, is_tokens, columns)

    def maker(self, data: bytes, ends: Sequence[int]) -> Callable[[int], Any]:
        """Returns the function that makes a sample, given its number.

        Args:
            data: the bytes of all samples.
            ends: the offsets at which samples begin, and at which the last one ends.

        Raises:
            ValueError: a column does not exist, or the spec of samples is not valid.
        """
        make = sample_maker(self.spec, tuple(map(value_decoder, self.formats)), self.columns)
        if self.is_tokens:
            return lambda row: make([data[ends[row] : ends[row + 1]]])
        cut_sample = cutter(data, ends, [None] * len(self.formats))
        return lambda row: make(cut_sample(row))


@dataclass(frozen=True)
class LitChunk(FolderShard):
    """The index entry of a chunk, and how its samples are stored."""

    stored: LitSamples

    @classmethod
    def of(cls, parsed: Mapping[str, Any], stored: LitSamples) -> LitChunk:
        """Reads the index entry of a chunk.

        Raises:
            ValueError: a value of the entry is not valid.
            LookupError: a value is missing.
        """
        name, size, samples = parsed["filename"], parsed["chunk_bytes"], parsed["chunk_size"]
        # In early versions the size does not include the header of a chunk.
        sizes = (size, size + 4 * (samples + 2))
        return cls(name, samples, name, sizes, stored)

    def rows(self, data: bytes) -> Rows:
        """Splits a chunk into the bytes of samples, or into the rows of its Arrow table as dicts.

        Raises:
            ValueError: the chunk does not match the index.
        """
        packing = self.stored.packing
        if packing == "batch":
            data, ends = _unpack_frames(data, self.samples)
        else:
            if packing == "chunk":
                data = unpacked("zstd", data, max(self.plain_sizes))
            header, ends = self.split(data)
            if header:
                raise ValueError("its sample offsets are wrong")
            if ends[-1] < len(data):
                return _rows(data[ends[-1] :], self.samples, self.stored.columns), len(data), dict
            if packing == "sample":
                samples = [unpacked("zstd", data[at:end], _MAX_BYTES) for at, end in pairwise(ends)]
                data, ends = b"".join(samples), [0, *accumulate(map(len, samples))]
        return range(self.samples), ends[-1] - ends[0], self.stored.maker(data, ends)


def _unpack_frames(raw: bytes, samples: int) -> tuple[bytes, list[int]]:
    """Decompresses batches of samples, each of which is a frame of its own.

    Returns:
        The samples, and the offsets at which they begin and the last one ends.
    """
    mark, version, flags, count, _, frames = _HEAD_OF_FRAMES.unpack_from(raw)
    if (mark, version, flags, count) != (_MARK_OF_FRAMES, 1, 0, samples):
        raise ValueError(f"it does not begin with frames of {samples} samples, as {INDEX} lists")
    ends, at = ends_in(raw, _HEAD_OF_FRAMES.size, count), _HEAD_OF_FRAMES.size + 4 * (count + 1)
    place, first, plain = at + frames * _FRAME.size, 0, bytearray()
    for begins, items, offset, packed, size in _FRAME.iter_unpack(raw[at:place]):
        if (begins, offset, ends[first]) != (first, place, len(plain)):
            raise ValueError("its frame offsets or sizes are wrong")
        plain += unpacked("zstd", raw[offset : offset + packed], size)
        first, place = first + items, place + packed
    if (first, place, ends[-1]) != (count, len(raw), len(plain)):
        raise ValueError("its frame offsets or sizes are wrong")
    return bytes(plain), ends


def _rows(data: bytes, samples: int, columns: Sequence[str] | None) -> list[dict[str, Any]]:
    """Reads columns of the table of rows that follows the samples, or replaces them."""
    if data[-8:] != _MARK_OF_ROWS or int.from_bytes(data[-12:-8], "little") + 12 != len(data):
        raise ValueError("it has other data after its samples")
    ipc, table_data = extra("pyarrow.ipc", "litdata"), data[:-12]
    is_file = table_data.startswith(b"ARROW1")
    reader = ipc.open_file(table_data) if is_file else ipc.open_stream(table_data)
    table = reader.read_all()
    table.validate(full=True)
    if table.num_rows != samples:
        raise ValueError(f"its table has {table.num_rows} rows, but {INDEX} lists {samples}")
    rows: list[dict[str, Any]] = table.select(columns or table.column_names).to_pylist()
    return rows
