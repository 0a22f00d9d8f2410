"""Decompression of gzip and zstd with limits on the size, against decompression bombs."""

import os
import re
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, BinaryIO, Final, Literal

from samplerkit.errors import DatasetError
from samplerkit.storage.files.packages import extra
from samplerkit.storage.open_files import REWRITE, open_regular

RATIO = 200
"""By default, the largest allowed ratio of decompressed to compressed bytes."""

FLOOR = 1 << 30
"""Decompressed bytes that are allowed at any ratio: only constant data shrink a thousandfold, as zeros do."""


def max_unpacked(packed: int, given: int | None = None, floor: int = FLOOR) -> int:
    """Returns the most bytes to which data may be decompressed.

    Args:
        packed: the compressed bytes.
        given: a limit set by the user; None for the default.
        floor: bytes that are allowed at any ratio.

    Example:
        >>> max_unpacked(1000), max_unpacked(10_000_000), max_unpacked(10_000_000, 5)
        (1073741824, 2000000000, 5)
    """
    return max(floor, RATIO * packed) if given is None else given


_PIECE = 1 << 20

_FIELD_FLOOR = 1 << 28


class GzipError(Exception):
    """A gzip or zstd stream is damaged or ends early.

    Args:
        offset: the byte at which the problem was found.
        problem: what is wrong there.
    """

    def __init__(self, offset: int, problem: str) -> None:
        super().__init__(problem)
        self.offset = offset


class TooLargeError(Exception):
    """A gzip or zstd stream decompresses to more bytes than allowed.

    Args:
        limit: the most bytes that are allowed.
    """

    def __init__(self, limit: int) -> None:
        super().__init__(f"unpacks to more than {limit} bytes")


def max_in_memory(packed: int) -> int:
    """Returns the most bytes to which a field of a sample may be decompressed, since it is held in memory.

    Example:
        >>> max_in_memory(1000), max_in_memory(10_000_000)
        (268435456, 2000000000)
    """
    return max_unpacked(packed, floor=_FIELD_FLOOR)


@dataclass(frozen=True)
class _Packing:
    """A compression format: consecutive members, each of which marks its own end.

    Args:
        new: makes the decompressor of one member, such as zlib's `decompressobj`.
        unpack: decompresses some bytes with such a decompressor.
        error: the exception that `unpack` raises.
        at_once: compressed bytes of a call of `unpack`, so that the result fits into memory.
        padding: bytes that are allowed between two members.
    """

    new: Callable[[], Any]
    unpack: Callable[[Any, bytes], bytes]
    error: type[Exception]
    at_once: int
    padding: bytes = b""


_GZIP: Final = _Packing(
    # Tapes are often padded with zeros.
    partial(zlib.decompressobj, wbits=31),
    lambda member, piece: member.decompress(piece, _PIECE),
    zlib.error,
    _PIECE,
    b"\0",
)
"""gzip; zlib checks the CRC and the length of each member, and returns at most 1 MiB at a time."""


def _zstd() -> _Packing:
    """Returns zstd as a format, by the package `zstandard`, which checks the checksums of frames.

    A block of 3 bytes decompresses to at most 128 KiB.
    """
    zstandard = extra("zstandard", "jsonl")
    new = partial(zstandard.ZstdDecompressor(max_window_size=1 << 31).decompressobj)
    return _Packing(new, lambda frame, piece: frame.decompress(piece), zstandard.ZstdError, 1 << 12)


def inflated(
    read: Callable[[int], bytes], max_bytes: int | None = None, packing: _Packing = _GZIP
) -> Iterator[bytes]:
    """Decompresses all members of a stream.

    Args:
        read: returns at most the given number of bytes of the stream, and none at its end.
        max_bytes: the most decompressed bytes; None for 200 times the bytes read, or 1 GiB if that is more.
        packing: the compression format.

    Yields:
        The content in non-empty pieces; for gzip of at most 1 MiB each.

    Raises:
        GzipError: the stream is damaged or ends early.
        TooLargeError: the stream decompresses to more bytes than allowed.

    Example:
        >>> import gzip, io
        >>> b"".join(inflated(io.BytesIO(gzip.compress(b"one ") + gzip.compress(b"two")).read))
        b'one two'
    """
    unpacker = packing.new()
    offset, size, pending = 0, 0, b""
    while piece := pending or read(packing.at_once):
        pending = b""
        if unpacker.eof:
            # Anything other than padding is the next member.
            length, piece = len(piece), piece.lstrip(packing.padding)
            offset += length - len(piece)
            if not piece:
                continue
            unpacker = packing.new()
        while piece:
            try:
                data = packing.unpack(unpacker, piece)
            except packing.error as error:
                raise GzipError(offset, str(error)) from error
            # At the end of a member zlib keeps its old `unconsumed_tail`: only one of the two is valid.
            rest = unpacker.unused_data if unpacker.eof else unpacker.unconsumed_tail
            offset += len(piece) - len(rest)
            piece = b"" if unpacker.eof else rest
            size += len(data)
            limit = max_unpacked(offset, max_bytes)
            if size > limit:
                raise TooLargeError(limit)
            if data:
                yield data
        pending = unpacker.unused_data
    if not unpacker.eof:
        raise GzipError(offset, "the compressed data end early")


PackedBy = Literal["", "gzip", "zstd"]

# Files written by pzstd begin with a skippable frame.
_MAGIC: Final[dict[PackedBy, bytes]] = {
    "gzip": rb"\x1f\x8b",
    "zstd": rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18",
}


def packing_of(file: BinaryIO) -> PackedBy:
    """Returns the compression of a file, by its first bytes."""
    start = os.pread(file.fileno(), 4, 0)
    return next((packing for packing, magic in _MAGIC.items() if re.match(magic, start)), "")


def unpacked(path: str, max_bytes: int | None = None) -> Iterator[bytes]:
    """Reads a file piece by piece, and decompresses gzip and zstd.

    Raises:
        DatasetError: a compressed file is damaged or exceeds `max_bytes`.
    """
    with open_regular(path) as file:
        packing = packing_of(file)
        if not packing:
            yield from iter(partial(file.read, _PIECE), b"")
            return
        try:
            yield from inflated(file.read, max_bytes, _zstd() if packing == "zstd" else _GZIP)
        except TooLargeError as error:
            hint = "if you trust it, set max_unpacked_bytes"
            raise DatasetError(path, f"{error} (max_unpacked_bytes)", hint=hint) from error
        except GzipError as error:
            raise DatasetError(path, f"cannot be unpacked ({error})", hint=REWRITE) from error
