"""The content of a gzip stream."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator

_PIECE = 1 << 20


class GzipError(Exception):
    """A gzip stream is damaged or ends early.

    Args:
        offset: the byte at which that was found.
        problem: what is wrong there.
        ends_early: whether nothing is wrong but that there is no more.
    """

    def __init__(self, offset: int, problem: str, *, ends_early: bool = False) -> None:
        super().__init__(problem)
        self.offset = offset
        self.ends_early = ends_early


def inflated(read: Callable[[int], bytes]) -> Iterator[bytes]:
    """Unpacks all gzip members of a stream; zlib compares the CRC and the length of each.

    Args:
        read: gives some bytes of the stream, at most so many, and none at its end.

    Yields:
        The content, in pieces of at most 1 MiB, none of them empty.

    Raises:
        GzipError: the stream is damaged or ends early.

    Example:
        >>> import gzip, io
        >>> b"".join(inflated(io.BytesIO(gzip.compress(b"one ") + gzip.compress(b"two")).read))
        b'one two'
    """
    unpacker = zlib.decompressobj(wbits=31)
    offset, pending = 0, b""
    while piece := pending or read(_PIECE):
        pending = b""
        if unpacker.eof:
            # Padding of zeros is usual on tapes; anything else is the next member.
            whole, piece = len(piece), piece.lstrip(b"\0")
            offset += whole - len(piece)
            if not piece:
                continue
            unpacker = zlib.decompressobj(wbits=31)
        while piece:
            try:
                data = unpacker.decompress(piece, _PIECE)
            except zlib.error as error:
                raise GzipError(offset, str(error)) from error
            offset += len(piece) - len(unpacker.unconsumed_tail) - len(unpacker.unused_data)
            piece = unpacker.unconsumed_tail
            if data:
                yield data
        pending = unpacker.unused_data
    if not unpacker.eof:
        raise GzipError(offset, "the compressed data end early", ends_early=True)
