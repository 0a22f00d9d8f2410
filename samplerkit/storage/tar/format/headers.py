"""Headers of tar archives: one, read strictly, in any format; and runs of plain ones, followed at once."""

from __future__ import annotations

import re
import zlib
from typing import Any, NamedTuple, final

import numpy as np

BLOCK = 512
"""Bytes of a header, and the unit in which archives are padded."""

ZERO = bytes(BLOCK)
"""Two of these blocks end an archive."""

POSIX_MAGIC = b"ustar\x0000"
GNU_MAGIC = b"ustar  \x00"
OLD_MAGIC = bytes(8)

REGULAR = frozenset({b"0", b"\0", b"7"})
DIRECTORY = b"5"
PAX_LOCAL = b"x"
PAX_GLOBAL = b"g"
GNU_LONG_NAME = b"L"
GNU_LONG_LINK = b"K"

KEYWORDS = frozenset(
    b"atime charset comment ctime gid gname hdrcharset linkpath mtime path size uid uname".split()
)
"""The keys of pax records that POSIX names."""

LONGEST_EXTENSION = 1 << 20
"""Bytes of a pax header or a long name; more is taken for damage."""

# Digits, then only padding; some old writers pad on the left.
_OCTAL = re.compile(rb" *([0-7]*)[ \0]*\Z")
_RECORD = re.compile(rb"([1-9][0-9]{0,6}) ")


SMALLEST = 16
"""Blocks of a window from which on looking at all of them at once is worth while."""

_POWERS = 8 ** np.arange(10, -1, -1, dtype=np.int64)
# No name and no size: such records change nothing of a sample.
_HARMLESS = re.compile(rb"(?:[0-9]+ (?:[acm]time|[ug]id|[ug]name|LIBARCHIVE\.creationtime)=[^\n]*\n)+")

# An octal digit is a byte 0x30 to 0x37. Eight bytes at a time, of which the last are digits or a known end.
_OF_DIGIT, _DIGIT = 0xF8F8F8F8F8F8F8F8, 0x3030303030303030
_OF_SIX_AND_END, _SIX_AND_END = 0xFFFFF8F8F8F8F8F8, 0x2000303030303030


class HeaderError(Exception):
    """A header cannot be what a writer wrote."""


class Header(NamedTuple):
    """What one header says."""

    name: bytes
    size: int
    kind: bytes


def parse(block: bytes) -> Header:
    """Reads one header.

    Args:
        block: 512 bytes.

    Raises:
        HeaderError: the checksum is wrong, or a field is not what any writer writes.

    Source: POSIX.1-2001, pax interchange format; the GNU tar manual, "Basic Tar Format".

    Example:
        >>> import tarfile
        >>> member = tarfile.TarInfo("a.txt")
        >>> member.size = 3
        >>> parse(member.tobuf(tarfile.USTAR_FORMAT))
        Header(name=b'a.txt', size=3, kind=b'0')
    """
    stored = _octal(block[148:156], "checksum")
    # The checksum is the sum of all bytes, its own eight counted as spaces.
    if _byte_sum(block[:256]) + _byte_sum(block[256:]) - sum(block[148:156]) + 8 * 32 != stored:
        raise HeaderError("the checksum is wrong")
    magic = block[257:265]
    if magic not in {POSIX_MAGIC, GNU_MAGIC, OLD_MAGIC}:
        raise HeaderError(f"unknown format {magic!r}")
    name = block[:100].split(b"\0", 1)[0]
    kind = block[156:157]
    if magic == POSIX_MAGIC and kind not in {GNU_LONG_NAME, GNU_LONG_LINK} and block[345]:
        name = block[345:500].split(b"\0", 1)[0] + b"/" + name
    return Header(name, _number(block[124:136]), kind)


def pax_records(data: bytes) -> dict[bytes, bytes]:
    r"""Reads the records of a pax header.

    Args:
        data: the data of a member of type `x` or `g`.

    Raises:
        HeaderError: a record is not `length key=value` and a newline.

    Example:
        >>> pax_records(b"14 path=a.jpg\n")
        {b'path': b'a.jpg'}
    """
    records = {}
    position = 0
    while position < len(data):
        match = _RECORD.match(data, position)
        end = position + int(match[1]) if match else 0
        if match is None or end > len(data) or end <= match.end() or data[end - 1 : end] != b"\n":
            raise HeaderError("a pax record is damaged")
        key, equals, value = data[match.end() : end - 1].partition(b"=")
        # Unknown ones have a vendor's name and a dot: another one is a known one that is damaged.
        if not equals or (key not in KEYWORDS and b"." not in key):
            raise HeaderError(f"a pax record has the unknown key {key!r}")
        records[key] = value
        position = end
    return records


def padded(size: int) -> int:
    """Returns the bytes that data of a size fill in an archive: whole blocks."""
    return -(-size // BLOCK) * BLOCK


def _byte_sum(data: bytes) -> int:
    """Sums up to 256 bytes: the low half of Adler-32 is the sum plus one, modulo 65521."""
    return (zlib.adler32(data) & 0xFFFF) - 1


def _octal(field: bytes, what: str) -> int:
    match = _OCTAL.match(field)
    if match is None:
        raise HeaderError(f"the {what} is no number")
    return int(match[1] or b"0", 8)


def _number(field: bytes) -> int:
    """Octal, or base 256 after a byte 0x80, in which GNU tar and others write sizes from 8 GiB on."""
    if field[0] == 0x80:
        return int.from_bytes(field[1:], "big")
    return _octal(field, "size")


@final
class Window:
    """A piece of an archive.

    A plain header is a file's, with a size and a checksum written as GNU tar, libarchive and Python write
    them; a pax header that says only when and whose a file is may stand before it. Long runs of these are
    the usual case; all others are read one by one elsewhere. `base`, where the piece begins, is a multiple
    of 512.

    Attributes:
        is_long: whether there is enough of it to look for runs.
    """

    def __init__(self, base: int, data: bytes) -> None:
        self.base = base
        self.data = data
        count = len(data) // BLOCK
        self.is_long = count >= SMALLEST
        if self.is_long:
            self._blocks = np.frombuffer(data, dtype=np.uint8, count=count * BLOCK).reshape(count, BLOCK)
            self._plain, self._next = _plain(data, self._blocks)

    def holds(self, position: int, size: int) -> bool:
        """Whether `size` bytes from a position of the archive on are in this piece."""
        return self.base <= position and position + size <= self.base + len(self.data)

    def part(self, position: int, size: int) -> bytes:
        """Returns some bytes of the archive that this piece holds."""
        return self.data[position - self.base : position - self.base + size]

    def run(self, position: int) -> tuple[list[bytes], list[int], list[int], int]:
        """Follows plain headers from a position on, as far as they go in this piece.

        Returns:
            The name, the offset of the data and the size of each member, and the position of the header
            after the last one. Nothing, where there is no plain header or its checksum is wrong.
        """
        index = (position - self.base) // BLOCK
        # Names of any letters are in pax headers: for each, all that follow would be looked at in vain.
        is_pax_here = self.part(position + 156, 1) == PAX_LOCAL
        if is_pax_here and not self._are_harmless(np.array([index]))[0]:
            return [], [], [], position
        heads = self._chain(index)
        if len(heads) < 2:
            return [], [], [], position
        found = heads[:-1]
        headers = self._blocks[found]
        # Only now, for those that were met: summing every block would cost more than all the rest.
        is_right = _sums_of(headers) == _numbers(headers[:, 148:154])
        is_pax = headers[:, 156] == ord(PAX_LOCAL)
        if is_pax.any():
            is_right[is_pax] &= self._are_harmless(found[is_pax])
        # The run ends before the first that is wrong: it is read again by itself, and named as what it is.
        count = int(np.argmin(is_right)) if not is_right.all() else len(found)
        while count and is_pax[count - 1]:
            # The header of its member was not reached.
            count -= 1
        is_member = ~is_pax[:count]
        found, headers = found[:count][is_member], headers[:count][is_member]
        offsets = (self.base + (found + 1) * BLOCK).tolist()
        sizes = _numbers(headers[:, 124:135]).tolist()
        return _names_of(headers), offsets, sizes, self.base + int(heads[count]) * BLOCK

    def _chain(self, index: int) -> np.ndarray[Any, np.dtype[np.int64]]:
        """The plain headers that follow one another from a block on, and the block behind the last one."""
        # For all blocks at once it was worked out where the next header is, if this were one. Which blocks
        # are headers only the walk tells. What lies in data and looks like one is never stepped on.
        begin = int(np.searchsorted(self._plain, index))
        heads, following = self._plain[begin:], self._next[begin:]
        if not heads.size or heads[0] != index:
            return heads[:0]
        if np.array_equal(heads[1:], following[:-1]):  # nothing looks like one, as nearly always
            return np.append(heads, following[-1])
        steps, walked = dict(zip(heads.tolist(), following.tolist(), strict=True)), [index]
        while walked[-1] in steps:
            walked.append(steps[walked[-1]])
        return np.array(walked)

    def _are_harmless(self, heads: np.ndarray[Any, Any]) -> list[bool]:
        """Whether pax headers hold nothing but times and owners, and all of each is in this piece."""
        starts = (heads + 1) * BLOCK
        ends = starts + _numbers(self._blocks[heads, 124:135])
        matches, data, size = _HARMLESS.fullmatch, self.data, len(self.data)
        return [
            end <= size and matches(data, start, end) is not None
            for start, end in zip(starts.tolist(), ends.tolist(), strict=True)
        ]


def _plain(
    data: bytes, blocks: np.ndarray[Any, np.dtype[np.uint8]]
) -> tuple[np.ndarray[Any, np.dtype[np.int64]], np.ndarray[Any, np.dtype[np.int64]]]:
    """Returns the numbers of the blocks that could be plain headers, and for each that of the next header."""

    def words(at: int) -> np.ndarray[Any, np.dtype[np.uint64]]:
        # Not a copy of the blocks: of each, eight bytes are looked at.
        return np.ndarray(len(blocks), dtype="<u8", buffer=data, offset=at, strides=(BLOCK,))

    magic, kind = words(257), blocks[:, 156]
    is_posix, is_gnu = (magic == np.frombuffer(text, dtype="<u8")[0] for text in (POSIX_MAGIC, GNU_MAGIC))
    is_candidate = ((kind == ord("0")) & (is_posix | is_gnu)) | ((kind == ord(PAX_LOCAL)) & is_posix)
    found = np.flatnonzero(is_candidate)
    is_plain = words(124)[found] & np.uint64(_OF_DIGIT) == np.uint64(_DIGIT)
    is_plain &= words(127)[found] & np.uint64(_OF_DIGIT) == np.uint64(_DIGIT)
    is_plain &= words(148)[found] & np.uint64(_OF_SIX_AND_END) == np.uint64(_SIX_AND_END)
    end = blocks[found, 135]
    found = found[is_plain & ((end == 0) | (end == ord(" ")))]
    return found, found + 1 - (-_numbers(blocks[found, 124:135]) // BLOCK)


def _sums_of(headers: np.ndarray[Any, np.dtype[np.uint8]]) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Sums the bytes of each header, those of the checksum counted as spaces."""
    # Sums of 32 bits take half the time of those of 64.
    sums: np.ndarray[Any, np.dtype[np.int64]] = headers.sum(axis=1, dtype=np.uint32).astype(np.int64)
    sums += 8 * ord(" ") - headers[:, 148:156].sum(axis=1, dtype=np.int64)
    return sums


def _numbers(digits: np.ndarray[Any, np.dtype[np.uint8]]) -> np.ndarray[Any, np.dtype[np.int64]]:
    """The numbers that rows of octal digits tell."""
    values: np.ndarray[Any, np.dtype[np.int64]] = digits.astype(np.int64) - ord("0")
    return values @ _POWERS[-digits.shape[1] :]


def _names_of(headers: np.ndarray[Any, np.dtype[np.uint8]]) -> list[bytes]:
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
