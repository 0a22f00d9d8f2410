"""A dataset over MosaicML's MDS shards, compressed or not, local or remote, without its package."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, final

from samplerkit.storage.files.content import require_columns
from samplerkit.storage.files.packages import extra, guarded
from samplerkit.storage.formats.base import INDEX, FolderDataset, FolderShard, Rows
from samplerkit.storage.formats.values import Decoder, cutter, decoder, unpacked

_CODECS: Final = {"zstd": "zstd", "gz": "gzip", "bz2": "bz2", "br": "brotli", "snappy": "snappy"}
"""The names of compressions in pyarrow, by their names in MDS."""


@final
class MdsDataset(FolderDataset):
    """Samples in a folder of MosaicML's streaming format (MDS): shards are the files of the layout.

    The streaming package is not needed. Shards are checked against the sizes and digests of the index
    whenever they are read. All compressions of MDS are supported. Pickled columns are refused.

    Args:
        folder: the folder of `index.json`, a path or URL. Combine several folders in a `TreeDataset`.
        columns: the columns to return; None for all.
        decode: makes a sample from its dict; None to return the dict itself.
        max_chunks: shards in memory at most, including prefetched ones.
        max_bytes: bytes in memory at most; None for no limit.
        read_ahead: how many shards are prefetched; 0 for none. None for 1, and
            for remote files for 4 per rank, as far as memory allows.
        threads: how many of them are read in parallel; None as for `read_ahead`.
        remote: how URLs are read: `RemoteOptions`, or a mapping of their fields.

    Attributes:
        folder: the path or URL.
        is_remote: whether it is remote.

    Raises:
        ArgumentTypeError: an argument has the wrong type.
        ArgumentRangeError: a number is too small.
        DatasetError: later, there is no index, a shard does not match it, or a column is pickled.

    Example:
        >>> MdsDataset("/data/c4/train", ["tokens"])
        MdsDataset('/data/c4/train', not opened)
    """

    def _parse_index(self, index: bytes, place: str) -> Sequence[FolderShard]:
        entries = json.loads(index)["shards"]
        if not entries:  # then there are no columns
            return ()
        columns = _columns(entries[0])
        decoders = _decoders(columns, place, self._columns)
        shards = [MdsShard.of(entry, self._exists, decoders) for entry in entries]
        other = next((shard for shard in shards if shard.columns != columns), None)
        if other is not None:
            raise ValueError(f"{other.name} has other columns than {shards[0].name}, {other.columns}")
        return shards

    def _exists(self, name: str) -> bool:
        """Whether the uncompressed shard is on this machine, because MDS's package decompressed it."""
        return not self.is_remote and Path(self._inside(name)).exists()


MdsColumns = tuple[tuple[str, str, int | None], ...]
"""For each column its name, its encoding, and the size of its values in bytes; None if sizes vary."""


def _columns(parsed: Mapping[str, Any]) -> MdsColumns:
    """Reads the columns from an index entry or a shard's header."""
    sizes = [size or None for size in parsed["column_sizes"]]
    return tuple(zip(parsed["column_names"], parsed["column_encodings"], sizes, strict=True))


def _decoders(
    columns: MdsColumns, place: str, selected: Sequence[str] | None
) -> list[tuple[str, int, Decoder]]:
    """Returns the chosen columns: name, position among all, and the decoder of values.

    Raises:
        DatasetError: a column does not exist or exists twice, or its encoding is not safe or not known.
    """
    names = [name for name, _, _ in columns]
    require_columns(place, names, selected or names)
    hint = "select other columns, or write it again with another encoding"

    def column(name: str) -> tuple[str, int, Decoder]:
        at = names.index(name)
        decode = partial(decoder, columns[at][1])
        return name, at, guarded(place, f"read, column {name!r}", decode, hint)

    return [*map(column, selected or names)]


@dataclass(frozen=True)
class MdsShard(FolderShard):
    """The index entry of a shard; its name is that of the uncompressed shard.

    Args:
        compression: the compression of the file to read, without the level; empty if it is not compressed.
        digests: the digests of that file in hex, by algorithm.
        columns: the columns of the samples.
        decoders: name, position and decoder of each column to return.
    """

    compression: str
    digests: Mapping[str, str]
    columns: MdsColumns
    decoders: Sequence[tuple[str, int, Decoder]]

    @classmethod
    def of(cls, parsed: Mapping[str, Any], exists: Callable[[str], bool], decoders: Any) -> MdsShard:
        """Reads the index entry of a shard.

        Args:
            parsed: the entry.
            exists: whether an uncompressed shard exists; it is then read instead of the compressed one.
            decoders: those of the columns to return.

        Raises:
            ValueError: the version or format is not supported, or a value is not valid.
            LookupError: a value is missing.
        """
        if (parsed["version"], parsed["format"]) != (2, "mds"):
            raise ValueError(f"format {parsed['format']!r}, version {parsed['version']!r} is not supported")
        compression = str(parsed["compression"] or "").partition(":")[0]
        if compression not in {"", *_CODECS}:
            raise ValueError(f"compression {compression!r} is not supported")
        raw = parsed["raw_data"]
        if compression and exists(raw["basename"]):
            compression = ""
        file = parsed["zip_data"] if compression else raw
        name, samples, sizes = raw["basename"], parsed["samples"], (raw["bytes"],)
        digests, columns = dict(file["hashes"]), _columns(parsed)
        return cls(name, samples, file["basename"], sizes, compression, digests, columns, decoders)

    def rows(self, data: bytes) -> Rows:
        """Splits the bytes of the file into those of its samples.

        Raises:
            ValueError: the bytes do not match the index.
        """
        _require_digest(data, self.digests)
        plain = data
        if self.compression:
            plain = unpacked(_CODECS[self.compression], data, self.plain_sizes[0])
        header, ends = self.split(plain)
        if ends[-1] != len(plain):
            raise ValueError("its sample offsets are wrong")
        if _columns(json.loads(header)) != self.columns:
            raise ValueError(f"its columns differ from those in {INDEX}")
        cut_sample = cutter(plain, ends, [size for _, _, size in self.columns])

        def make_sample(row: int) -> dict[str, Any]:
            values = cut_sample(row)
            return {name: decode_value(values[at]) for name, at, decode_value in self.decoders}

        return range(self.samples), ends[-1] - ends[0], make_sample


def _require_digest(data: bytes, digests: Mapping[str, str]) -> None:
    """Checks bytes against the first digest of the index that hashlib knows, or else the first one."""
    for kind in sorted(digests, key=lambda kind: kind not in hashlib.algorithms_available)[:1]:
        is_known = kind in hashlib.algorithms_available
        state = hashlib.new(kind, usedforsecurity=False) if is_known else _xxhash(kind)
        state.update(data)
        if state.hexdigest() != digests[kind]:
            raise ValueError(f"its {kind} differs from that in {INDEX}")


def _xxhash(kind: str) -> Any:
    if not kind.startswith("xxh"):
        raise ValueError(f"digest {kind!r} is not supported")
    return getattr(extra("xxhash", "mds"), kind)()
