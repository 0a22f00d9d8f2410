"""A piece of an archive in memory, in which runs of plain headers are followed at once."""

from __future__ import annotations

import re
from typing import Any, final

import numpy as np

from samplerkit.storage.tar.header import BLOCK, GNU_MAGIC, PAX_LOCAL, POSIX_MAGIC

SMALLEST = 16
"""Blocks of a window from which on looking at all of them at once is worth while."""

Array = np.ndarray[Any, np.dtype[Any]]

_WORDS = BLOCK // 8
_EVEN = np.uint64(0x00FF00FF00FF00FF)
_EIGHT = np.uint64(8)
_POWERS = 8 ** np.arange(10, -1, -1, dtype=np.int64)
_DIGITS = np.r_[124:135, 148:154]
# No name and no size: such records change nothing of a sample.
_HARMLESS = re.compile(rb"(?:[0-9]+ (?:[acm]time|[ug]id|[ug]name|LIBARCHIVE\.creationtime)=[^\n]*\n)+")
_CHECKSUM_POWERS = 8 ** np.arange(5, -1, -1, dtype=np.int64)


@final
class Window:
    """A piece of an archive.

    A plain header is a file's, with a size and a checksum written as GNU tar, libarchive and Python write
    them; a pax header that says only when and whose a file is may stand before it. Long runs of these are
    the usual case; all others are read one by one elsewhere.

    Args:
        base: where the piece begins in the archive; a multiple of 512.
        data: its bytes.
    """

    def __init__(self, base: int, data: bytes) -> None:
        self.base = base
        self.data = data
        count = len(data) // BLOCK
        self._blocks = np.frombuffer(data, dtype=np.uint8, count=count * BLOCK).reshape(count, BLOCK)
        self._next = _steps(self._blocks) if count >= SMALLEST else []

    def holds(self, position: int, size: int) -> bool:
        """Whether `size` bytes from a position of the archive on are in this piece."""
        return self.base <= position and position + size <= self.base + len(self.data)

    def part(self, position: int, size: int) -> bytes:
        """Gives some bytes of the archive that this piece holds."""
        return self.data[position - self.base : position - self.base + size]

    def run(self, position: int) -> tuple[list[bytes], list[int], list[int], int]:
        """Follows plain headers from a position on, as far as they go in this piece.

        Returns:
            The name, the offset of the data and the size of each member, and the position of the header
            after the last one. Nothing, where there is no plain header or its checksum is wrong.
        """
        index = (position - self.base) // BLOCK
        heads = []
        steps = self._next
        while index < len(steps) and steps[index] > 0:
            heads.append(index)
            index += steps[index]
        if not heads:
            return [], [], [], position
        heads.append(index)
        found = np.array(heads[:-1])
        headers = self._blocks[found]
        is_right = sums_of(headers) == checksums_of(headers)
        is_pax = headers[:, 156] == ord(PAX_LOCAL)
        if is_pax.any():
            is_right[is_pax] &= self._are_harmless(found[is_pax])
        count = int(np.argmin(is_right)) if not is_right.all() else len(found)
        while count and is_pax[count - 1]:
            # The header of its member was not reached.
            count -= 1
        is_member = ~is_pax[:count]
        found, headers = found[:count][is_member], headers[:count][is_member]
        offsets = (self.base + (found + 1) * BLOCK).tolist()
        return names_of(headers), offsets, sizes_of(headers).tolist(), self.base + heads[count] * BLOCK

    def _are_harmless(self, heads: Array) -> list[bool]:
        """Whether pax headers hold nothing but times and owners, and all of each is in this piece."""
        starts = (heads + 1) * BLOCK
        ends = starts + sizes_of(self._blocks[heads])
        matches, data, size = _HARMLESS.fullmatch, self.data, len(self.data)
        return [
            end <= size and matches(data, start, end) is not None
            for start, end in zip(starts.tolist(), ends.tolist(), strict=True)
        ]


def _steps(blocks: np.ndarray[Any, np.dtype[np.uint8]]) -> list[int]:
    """Gives, for each block that could be a plain header, how many blocks on the next header is; else 0."""
    magic = np.ascontiguousarray(blocks[:, 257:265]).view("<u8").ravel()
    is_posix, is_gnu = (magic == np.frombuffer(text, dtype="<u8")[0] for text in (POSIX_MAGIC, GNU_MAGIC))
    kind = blocks[:, 156]
    is_candidate = ((kind == ord("0")) & (is_posix | is_gnu)) | ((kind == ord(PAX_LOCAL)) & is_posix)
    candidates = np.flatnonzero(is_candidate)
    heads = blocks[candidates]
    numbers = heads[:, _DIGITS]
    is_plain = ((numbers >= ord("0")) & (numbers < ord("8"))).all(axis=1)
    is_plain &= (heads[:, 135] == 0) | (heads[:, 135] == ord(" "))
    is_plain &= (heads[:, 154] == 0) & (heads[:, 155] == ord(" "))
    steps = np.zeros(len(blocks), dtype=np.int64)
    steps[candidates[is_plain]] = 1 + -(-sizes_of(heads[is_plain]) // BLOCK)
    plain: list[int] = steps.tolist()
    return plain


def sizes_of(headers: np.ndarray[Any, np.dtype[np.uint8]]) -> np.ndarray[Any, np.dtype[np.int64]]:
    """The sizes that plain headers tell."""
    digits: np.ndarray[Any, np.dtype[np.int64]] = headers[:, 124:135].astype(np.int64) - ord("0")
    return digits @ _POWERS


def checksums_of(headers: np.ndarray[Any, np.dtype[np.uint8]]) -> np.ndarray[Any, np.dtype[np.int64]]:
    """The checksums that plain headers tell."""
    digits: np.ndarray[Any, np.dtype[np.int64]] = headers[:, 148:154].astype(np.int64) - ord("0")
    return digits @ _CHECKSUM_POWERS


def sums_of(headers: np.ndarray[Any, np.dtype[np.uint8]]) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Sums the bytes of each header, those of the checksum counted as spaces."""
    words = headers.view("<u8").reshape(-1, _WORDS)
    # Eight bytes at a time: four lanes of 16 bits hold sums of up to 128 bytes without overflow.
    lanes = ((words & _EVEN) + ((words >> _EIGHT) & _EVEN)).sum(axis=1, dtype=np.uint64)
    total = lanes.view("<u2").reshape(-1, 4).sum(axis=1, dtype=np.int64)
    sums: np.ndarray[Any, np.dtype[np.int64]] = (
        total - headers[:, 148:156].sum(axis=1, dtype=np.int64) + 8 * ord(" ")
    )
    return sums


def names_of(headers: np.ndarray[Any, np.dtype[np.uint8]]) -> list[bytes]:
    """The names that plain headers tell."""
    names: list[bytes] = np.ascontiguousarray(headers[:, :100]).view("S100").ravel().tolist()
    if b"".join(names).find(b"\0") >= 0:
        # What stands behind the end of a name does not belong to it.
        names = [name.split(b"\0", 1)[0] for name in names]
    # In POSIX's format a long name has a part of its own in front; in GNU's, times stand there.
    for number in np.flatnonzero((headers[:, 345] != 0) & (headers[:, 262] == 0)).tolist():
        prefix = headers[number, 345:500].tobytes().split(b"\0", 1)[0]
        names[number] = prefix + b"/" + names[number]
    return names
