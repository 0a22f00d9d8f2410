"""One shard of MosaicML's MDS: what the index says of it, and how it is read and held against that."""

from __future__ import annotations

import bz2
import hashlib
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, final

import numpy as np

from samplerkit.errors import DatasetError
from samplerkit.storage.formats.extras import extra
from samplerkit.storage.formats.folder import require_inside
from samplerkit.storage.formats.mds_values import Decoder, UnsafeEncodingError, decoder
from samplerkit.storage.formats.stored import ANEW, guarded

_CODECS: Final = {"zstd": "zstd", "br": "brotli", "snappy": "snappy"}
"""Compressions that pyarrow unpacks, by what MDS calls them."""


@final
@dataclass(frozen=True)
class ShardFile:
    """A file that the index names.

    Args:
        name: below the folder.
        size: in bytes.
        hashes: its digests in hex, by what they are called.
    """

    name: str
    size: int
    hashes: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> ShardFile:
        """Takes what the index says.

        Raises:
            ValueError: it leads out of the folder.
        """
        name, size, hashes = told["basename"], told["bytes"], told["hashes"]
        require_inside(name)
        if type(size) is not int or size < 0:
            raise ValueError(f"{name!r} of {size!r} bytes")
        return cls(name, size, tuple((str(kind), str(digest)) for kind, digest in hashes.items()))

    def require_digest(self, place: str, data: bytes) -> None:
        """Holds bytes against the first digest of the index that Python computes, or else the first one.

        Raises:
            DatasetError: they are others, or nothing computes the digest.
        """
        known = [(kind, digest) for kind, digest in self.hashes if kind in hashlib.algorithms_available]
        for kind, wanted in (known or list(self.hashes))[:1]:
            state = hashlib.new(kind, usedforsecurity=False) if known else _xxhash(place, kind)
            state.update(data)
            if state.hexdigest() != wanted:
                raise DatasetError(place, f"does not fit its {kind} in index.json", mend=ANEW)


@final
@dataclass(frozen=True)
class MdsColumns:
    """What all samples of a dataset hold.

    Args:
        names: of the columns.
        encodings: of each.
        sizes: the bytes of each value, None where that differs.
    """

    names: tuple[str, ...]
    encodings: tuple[str, ...]
    sizes: tuple[int | None, ...]

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> MdsColumns:
        """Takes what the index, or a shard, says."""
        names, encodings = tuple(told["column_names"]), tuple(told["column_encodings"])
        sizes = tuple(size or None for size in told["column_sizes"])
        if not len(names) == len(encodings) == len(sizes) or len(set(names)) < len(names):
            raise ValueError("columns of which some lack a name, an encoding or a size, or have one name")
        return cls(names, encodings, sizes)

    def decoders(self, place: str, chosen: Sequence[str]) -> dict[str, Decoder]:
        """Gives what reads the values of some columns.

        Raises:
            DatasetError: there is no such column, or its encoding is not safe.
        """
        found = {}
        for name in chosen:
            if name not in self.names:
                raise DatasetError(place, f"holds no column {name!r}, but only", list(self.names))
            encoding = self.encodings[self.names.index(name)]
            try:
                found[name] = decoder(encoding)
            except UnsafeEncodingError as error:
                mend = "name the other columns, or write it anew with another encoding"
                problem = f"column {name!r} is pickled, which is never loaded"
                raise DatasetError(place, problem, encoding, mend=mend) from error
            except ValueError as error:
                raise DatasetError(place, f"column {name!r} cannot be read: {error}") from error
        return found

    def cut(self, sample: bytes) -> dict[str, bytes]:
        """Cuts the bytes of a sample into those of its values.

        Raises:
            ValueError: they are more or fewer than they say.
        """
        told = sum(size is None for size in self.sizes)
        sizes = iter(np.frombuffer(sample, "<u4", told).tolist())
        at, found = 4 * told, {}
        for name, fixed in zip(self.names, self.sizes, strict=True):
            size = next(sizes) if fixed is None else fixed
            found[name] = sample[at : at + size]
            at += size
        if at != len(sample):
            raise ValueError(f"its values take {at} bytes, and there are {len(sample)}")
        return found


@final
@dataclass(frozen=True)
class MdsShard:
    """A shard, as the index tells of it.

    Args:
        raw: the shard as it is.
        packed: the shard when it is compressed; None where it never was.
        compression: how, without the level.
        samples: how many it has.
        columns: what they hold.
    """

    raw: ShardFile
    packed: ShardFile | None
    compression: str
    samples: int
    columns: MdsColumns

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> MdsShard:
        """Takes what the index says.

        Raises:
            ValueError: it is of another version or format, or cannot be.
            LookupError: something is missing.
        """
        if (told["version"], told["format"]) != (2, "mds"):
            raise ValueError(f"a shard of format {told['format']!r}, version {told['version']!r}")
        compression = str(told["compression"] or "").partition(":")[0]
        if compression not in {"", "gz", "bz2", *_CODECS}:
            raise ValueError(f"compression {compression!r}, which is not known")
        packed = told["zip_data"]
        if (packed is not None) != bool(compression):
            raise ValueError("a compression without a compressed file, or one without the other")
        samples = told["samples"]
        if type(samples) is not int or samples < 0:
            raise ValueError(f"{samples!r} samples")
        files = ShardFile.of(told["raw_data"]), ShardFile.of(packed) if packed else None
        return cls(*files, compression, samples, MdsColumns.of(told))

    def understood(self, place: str, data: bytes, *, is_packed: bool) -> list[bytes]:
        """Takes a shard that was read apart.

        Args:
            place: what errors call it.
            data: the bytes of the file.
            is_packed: whether it is the compressed one.

        Returns:
            The bytes of each sample.

        Raises:
            DatasetError: it is not what the index says.
        """
        file = self.packed if is_packed and self.packed else self.raw
        file.require_digest(place, data)

        def parsed() -> list[bytes]:
            raw = _unpacked(self.compression, data, self.raw.size) if is_packed else data
            if len(raw) != self.raw.size:
                raise ValueError(f"it has {len(raw)} bytes, and index.json says {self.raw.size}")
            (count,) = np.frombuffer(raw, "<u4", 1).tolist()
            if count != self.samples:
                raise ValueError(f"it has {count} samples, and index.json says {self.samples}")
            ends = np.frombuffer(raw, "<u4", count + 1, 4).tolist()
            head = 4 + 4 * len(ends)
            if ends != sorted(ends) or ends[0] < head or ends[-1] != len(raw):
                raise ValueError("its samples do not lie where it says")
            if MdsColumns.of(json.loads(raw[head : ends[0]])) != self.columns:
                raise ValueError("it has other columns than index.json says")
            return [raw[start:end] for start, end in pairwise(ends)]

        return guarded(place, "read", parsed)


def _unpacked(compression: str, data: bytes, size: int) -> bytes:
    """Unpacks a shard, to so many bytes and one more at most."""
    if compression in _CODECS:
        codec = extra("pyarrow", "mds").Codec(_CODECS[compression])
        return bytes(codec.decompress(data, size, asbytes=True))
    unpacker: Any = bz2.BZ2Decompressor() if compression == "bz2" else zlib.decompressobj(31)
    found: bytes = unpacker.decompress(data, size + 1)
    if not unpacker.eof or unpacker.unused_data:
        raise ValueError("it does not end where its compression does")
    return found


def _xxhash(place: str, kind: str) -> Any:
    make = getattr(extra("xxhash", "mds"), kind, None) if kind.startswith("xxh") else None
    if make is None:
        raise DatasetError(place, "has a digest that is not known", kind)
    return make()
