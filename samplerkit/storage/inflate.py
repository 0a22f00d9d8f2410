"""Decompression of gzip and zstd with limits on the size, against decompression bombs."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, final

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
        ends_early: whether the stream is only truncated.
    """

    def __init__(self, offset: int, problem: str, *, ends_early: bool = False) -> None:
        super().__init__(problem)
        self.offset = offset
        self.ends_early = ends_early


class TooLargeError(Exception):
    """A gzip or zstd stream decompresses to more bytes than allowed.

    Args:
        limit: the most bytes that are allowed.
    """

    def __init__(self, limit: int) -> None:
        super().__init__(f"unpacks to more than {limit} bytes")
        self.limit = limit


def max_in_memory(packed: int) -> int:
    """Returns the most bytes to which a field of a sample may be decompressed, since it is held in memory.

    Example:
        >>> max_in_memory(1000), max_in_memory(10_000_000)
        (268435456, 2000000000)
    """
    return max_unpacked(packed, floor=_FIELD_FLOOR)


@final
@dataclass(frozen=True)
class Packing:
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


GZIP: Final = Packing(
    # Tapes are often padded with zeros.
    partial(zlib.decompressobj, wbits=31),
    lambda member, piece: member.decompress(piece, _PIECE),
    zlib.error,
    _PIECE,
    b"\0",
)
"""gzip; zlib checks the CRC and the length of each member, and returns at most 1 MiB at a time."""


def zstd_packing(zstandard: Any) -> Packing:
    """Returns zstd as a format, for the package `zstandard`, which checks the checksums of frames.

    A block of 3 bytes decompresses to at most 128 KiB.
    """
    new = partial(zstandard.ZstdDecompressor(max_window_size=1 << 31).decompressobj)
    return Packing(new, lambda frame, piece: frame.decompress(piece), zstandard.ZstdError, 1 << 12)


def inflated(
    read: Callable[[int], bytes], max_bytes: int | None = None, packing: Packing = GZIP
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
    offset, unpacked, pending = 0, 0, b""
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
            unpacked += len(data)
            limit = max_unpacked(offset, max_bytes)
            if unpacked > limit:
                raise TooLargeError(limit)
            if data:
                yield data
        pending = unpacker.unused_data
    if not unpacker.eof:
        raise GzipError(offset, "the compressed data end early", ends_early=True)
