"""What is packed by gzip or zstd, unpacked within limits: more than these is made to fill memory or disks."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, final

RATIO = 200
"""How many times as large as what is packed may be what it unpacks to, unless a limit is said,"""

FLOOR = 1 << 30
"""and the bytes that it may be in any case: zeros alone shrink a thousandfold, and no data do."""


def most_unpacked(packed: int, said: int | None = None, floor: int = FLOOR) -> int:
    """Returns the bytes that something may unpack to.

    Args:
        packed: its bytes.
        said: a limit that the user says.
        floor: what it may be in any case.

    Example:
        >>> most_unpacked(1000), most_unpacked(10_000_000), most_unpacked(10_000_000, 5)
        (1073741824, 2000000000, 5)
    """
    return max(floor, RATIO * packed) if said is None else said


_PIECE = 1 << 20

_FIELD_FLOOR = 1 << 28


class GzipError(Exception):
    """A gzip or zstd stream is damaged or ends early.

    Args:
        offset: the byte at which that was found.
        problem: what is wrong there.
        ends_early: whether nothing is wrong but that there is no more.
    """

    def __init__(self, offset: int, problem: str, *, ends_early: bool = False) -> None:
        super().__init__(problem)
        self.offset = offset
        self.ends_early = ends_early


class TooLargeError(Exception):
    """A gzip or zstd stream unpacks to more than it may.

    Args:
        limit: the most bytes that it may.
    """

    def __init__(self, limit: int) -> None:
        super().__init__(f"unpacks to more than {limit} bytes")
        self.limit = limit


def most_in_memory(packed: int) -> int:
    """Returns the bytes that a field of a sample may unpack to: it is unpacked into memory.

    Example:
        >>> most_in_memory(1000), most_in_memory(10_000_000)
        (268435456, 2000000000)
    """
    return most_unpacked(packed, floor=_FIELD_FLOOR)


@final
@dataclass(frozen=True)
class Packing:
    """How a stream is packed: by members one after another, each of which says where it ends.

    Args:
        new: makes what unpacks one member, as zlib's `decompressobj`.
        unpack: gives what some bytes unpack to, by what `new` made.
        error: what that raises.
        at_once: bytes that are unpacked at once, so that what comes out fits into memory.
        padding: what may be between two members.
    """

    new: Callable[[], Any]
    unpack: Callable[[Any, bytes], bytes]
    error: type[Exception]
    at_once: int
    padding: bytes = b""


GZIP: Final = Packing(
    # Padding of zeros is usual on tapes.
    partial(zlib.decompressobj, wbits=31),
    lambda member, piece: member.decompress(piece, _PIECE),
    zlib.error,
    _PIECE,
    b"\0",
)
"""Members of gzip; zlib compares the CRC and the length of each, and gives 1 MiB at most at a time."""


def zstd_packing(zstandard: Any) -> Packing:
    """Returns how frames of zstd are unpacked, by the package `zstandard`, which compares their checksums.

    A block of 3 bytes unpacks to 128 KiB at most.
    """
    new = partial(zstandard.ZstdDecompressor(max_window_size=1 << 31).decompressobj)
    return Packing(new, lambda frame, piece: frame.decompress(piece), zstandard.ZstdError, 1 << 12)


def inflated(
    read: Callable[[int], bytes], most: int | None = None, packing: Packing = GZIP
) -> Iterator[bytes]:
    """Unpacks all members of a stream.

    Args:
        read: gives some bytes of the stream, at most so many, and none at its end.
        most: the bytes that it may unpack to; None for 200 times what is read, or 1 GiB if that is more.
        packing: how it is packed.

    Yields:
        The content, in pieces, none of them empty; of gzip at most 1 MiB each.

    Raises:
        GzipError: the stream is damaged or ends early.
        TooLargeError: it unpacks to more than it may.

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
            # Anything but padding is the next member.
            whole, piece = len(piece), piece.lstrip(packing.padding)
            offset += whole - len(piece)
            if not piece:
                continue
            unpacker = packing.new()
        while piece:
            try:
                data = packing.unpack(unpacker, piece)
            except packing.error as error:
                raise GzipError(offset, str(error)) from error
            # At the end of a member zlib keeps the tail that it had before: only one of the two is left.
            left = unpacker.unused_data if unpacker.eof else unpacker.unconsumed_tail
            offset += len(piece) - len(left)
            piece = b"" if unpacker.eof else left
            unpacked += len(data)
            limit = most_unpacked(offset, most)
            if unpacked > limit:
                raise TooLargeError(limit)
            if data:
                yield data
        pending = unpacker.unused_data
    if not unpacker.eof:
        raise GzipError(offset, "the compressed data end early", ends_early=True)
