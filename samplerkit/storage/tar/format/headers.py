"""Headers of tar archives: strict parsing of one of any format, and vectorized parsing of plain ones."""

from __future__ import annotations

import re
import zlib
from typing import Any, NamedTuple, final

import numpy as np

from samplerkit.errors import DatasetError

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
"""The keys of pax records that POSIX defines."""

LONGEST_EXTENSION = 1 << 20
"""The most bytes of a pax header or a long name; a longer one counts as damage."""

# Digits, then only padding; some old programs pad on the left.
_OCTAL = re.compile(rb" *([0-7]*)[ \0]*\Z")
_RECORD = re.compile(rb"([1-9][0-9]{0,6}) ")


SMALLEST = 16
"""The least blocks of a window for which vectorized parsing pays off."""

_POWERS = 8 ** np.arange(10, -1, -1, dtype=np.int64)
# Records without a name or a size do not affect samples.
_HARMLESS = re.compile(rb"(?:[0-9]+ (?:[acm]time|[ug]id|[ug]name|LIBARCHIVE\.creationtime)=[^\n]*\n)+")

# An octal digit is a byte 0x30 to 0x37. Eight bytes are tested at a time: all digits, or six and a known end.
_DIGIT_MASK, _DIGIT = 0xF8F8F8F8F8F8F8F8, 0x3030303030303030
_SIX_AND_END_MASK, _SIX_AND_END = 0xFFFFF8F8F8F8F8F8, 0x2000303030303030


_GZIP = b"\x1f\x8b"
_UNSUPPORTED = {b"BZh": "bzip2", b"\xfd7zXZ": "xz", b"\x28\xb5\x2f\xfd": "zstandard"}
"""Unsupported compressions, which are distinguished from damage by their first bytes."""


class HeaderError(Exception):
    """A header is damaged or of an unknown format."""


class Header(NamedTuple):
    """The content of one header."""

    name: bytes
    size: int
    kind: bytes


def is_gzip(start: bytes, url: str) -> bool:
    """Returns whether an archive is compressed by gzip.

    Args:
        start: its first eight bytes or more.
        url: its name in errors.

    Raises:
        DatasetError: the archive is compressed in another way.
    """
    for magic, name in _UNSUPPORTED.items():
        if start.startswith(magic):
            hint = "unpack it, or pack it with gzip"
            raise DatasetError(url, f"is compressed by {name}, which is not supported", hint=hint)
    return start.startswith(_GZIP)


def parse(block: bytes) -> Header:
    """Parses one header.

    Args:
        block: 512 bytes.

    Raises:
        HeaderError: the checksum is wrong, or a field is invalid.

    Source: POSIX.1-2001, pax interchange format; the GNU tar manual, "Basic Tar Format".

    Example:
        >>> import tarfile
        >>> member = tarfile.TarInfo("a.txt")
        >>> member.size = 3
        >>> parse(member.tobuf(tarfile.USTAR_FORMAT))
        Header(name=b'a.txt', size=3, kind=b'0')
    """
    stored = _octal(block[148:156], "checksum")
    # The checksum is the sum of all bytes, with its own eight bytes counted as spaces.
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
    r"""Parses the records of a pax header.

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
        # Vendors' keys contain a dot; any other unknown key is a damaged known one.
        if not equals or (key not in KEYWORDS and b"." not in key):
            raise HeaderError(f"a pax record has the unknown key {key!r}")
        records[key] = value
        position = end
    return records


def padded(size: int) -> int:
    """Returns a size rounded up to whole blocks."""
    return -(-size // BLOCK) * BLOCK


def _byte_sum(data: bytes) -> int:
    """Sums up to 256 bytes: the low half of Adler-32 is the sum plus one, modulo 65521."""
    return (zlib.adler32(data) & 0xFFFF) - 1


def _octal(field: bytes, name: str) -> int:
    match = _OCTAL.match(field)
    if match is None:
        raise HeaderError(f"the {name} is not a number")
    return int(match[1] or b"0", 8)


def _number(field: bytes) -> int:
    """Parses a size: octal, or base 256 after a byte 0x80, which GNU tar and others write from 8 GiB on."""
    if field[0] == 0x80:
        return int.from_bytes(field[1:], "big")
    return _octal(field, "size")


@final
class Window:
    """A part of an archive, in which runs of plain headers are found by vectorized parsing.

    A plain header is the header of a regular file whose size and checksum have the format of GNU tar,
    libarchive and Python; it may follow a pax header with only times and owners. Long runs of these are the
    usual case; all other headers are parsed one by one by `parse`.

    Args:
        base: the offset of the part in the archive, a multiple of 512.
        data: its bytes.

    Attributes:
        is_long: whether it is long enough to look for runs.
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
        """Returns whether `size` bytes at a position of the archive are in this window."""
        return self.base <= position and position + size <= self.base + len(self.data)

    def part(self, position: int, size: int) -> bytes:
        """Returns bytes at a position of the archive that are in this window."""
        return self.data[position - self.base : position - self.base + size]

    def run(self, position: int) -> tuple[list[bytes], list[int], list[int], int]:
        """Follows a run of plain headers that starts at a position, as far as it goes in this window.

        Returns:
            The names, the offsets of the data and the sizes of the members, and the position of the header
            after the last one. Empty lists if there is no plain header or its checksum is wrong.
        """
        index = (position - self.base) // BLOCK
        # Non-ASCII names are in pax headers: for each of these, following a run would be wasted work.
        starts_with_pax = self.part(position + 156, 1) == PAX_LOCAL
        if starts_with_pax and not self._are_harmless(np.array([index]))[0]:
            return [], [], [], position
        heads = self._chain(index)
        if not heads.size:
            return [], [], [], position
        indices = heads[:-1]
        headers = self._blocks[indices]
        # Only for the headers of the run: summing every block would cost more than everything else.
        is_valid = _sums_of(headers) == _numbers(headers[:, 148:154])
        is_pax = headers[:, 156] == ord(PAX_LOCAL)
        if is_pax.any():
            is_valid[is_pax] &= self._are_harmless(indices[is_pax])
        # The run ends before the first wrong header, which `parse` reads again and reports.
        count = int(np.argmin(is_valid)) if not is_valid.all() else len(indices)
        while count and is_pax[count - 1]:
            # The header that follows this pax header is not in the run.
            count -= 1
        is_member = ~is_pax[:count]
        indices, headers = indices[:count][is_member], headers[:count][is_member]
        offsets = (self.base + (indices + 1) * BLOCK).tolist()
        sizes = _numbers(headers[:, 124:135]).tolist()
        return _names_of(headers), offsets, sizes, self.base + int(heads[count]) * BLOCK

    def _chain(self, index: int) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Returns the blocks of consecutive plain headers from a block on, and the block after these."""
        # `_next` has for each candidate the block of the next header. Which candidates are headers is only
        # known by following them from `index`; data that look like a header are skipped that way.
        begin = int(np.searchsorted(self._plain, index))
        heads, following = self._plain[begin:], self._next[begin:]
        if not heads.size or heads[0] != index:
            return heads[:0]
        if np.array_equal(heads[1:], following[:-1]):  # no data look like a header, the usual case
            return np.append(heads, following[-1])
        steps, chain = dict(zip(heads.tolist(), following.tolist(), strict=True)), [index]
        while chain[-1] in steps:
            chain.append(steps[chain[-1]])
        return np.array(chain)

    def _are_harmless(self, heads: np.ndarray[Any, Any]) -> list[bool]:
        """Returns which pax headers have only times and owners, and are completely in this window."""
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
    """Returns the blocks that may be plain headers, and for each the block of the next header."""

    def words(at: int) -> np.ndarray[Any, np.dtype[np.uint64]]:
        # A view of eight bytes of each block.
        return np.ndarray(len(blocks), dtype="<u8", buffer=data, offset=at, strides=(BLOCK,))

    magic, kind = words(257), blocks[:, 156]
    is_posix, is_gnu = (magic == np.frombuffer(text, dtype="<u8")[0] for text in (POSIX_MAGIC, GNU_MAGIC))
    is_candidate = ((kind == ord("0")) & (is_posix | is_gnu)) | ((kind == ord(PAX_LOCAL)) & is_posix)
    indices = np.flatnonzero(is_candidate)
    is_plain = words(124)[indices] & np.uint64(_DIGIT_MASK) == np.uint64(_DIGIT)
    is_plain &= words(127)[indices] & np.uint64(_DIGIT_MASK) == np.uint64(_DIGIT)
    is_plain &= words(148)[indices] & np.uint64(_SIX_AND_END_MASK) == np.uint64(_SIX_AND_END)
    end = blocks[indices, 135]
    indices = indices[is_plain & ((end == 0) | (end == ord(" ")))]
    return indices, indices + 1 - (-_numbers(blocks[indices, 124:135]) // BLOCK)


def _sums_of(headers: np.ndarray[Any, np.dtype[np.uint8]]) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Sums the bytes of each header, with those of the checksum counted as spaces."""
    # 32-bit sums take half the time of 64-bit sums.
    sums: np.ndarray[Any, np.dtype[np.int64]] = headers.sum(axis=1, dtype=np.uint32).astype(np.int64)
    sums += 8 * ord(" ") - headers[:, 148:156].sum(axis=1, dtype=np.int64)
    return sums


def _numbers(digits: np.ndarray[Any, np.dtype[np.uint8]]) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Converts rows of octal digits to integers."""
    values: np.ndarray[Any, np.dtype[np.int64]] = digits.astype(np.int64) - ord("0")
    return values @ _POWERS[-digits.shape[1] :]


def _names_of(headers: np.ndarray[Any, np.dtype[np.uint8]]) -> list[bytes]:
    """Returns the names in plain headers."""
    names: list[bytes] = np.ascontiguousarray(headers[:, :100]).view("S100").ravel().tolist()
    if b"".join(names).find(b"\0") >= 0:
        # Bytes after the terminating zero do not belong to a name.
        names = [name.split(b"\0", 1)[0] for name in names]
    # The POSIX format stores the start of long names in a prefix field; the GNU format has times there.
    for number in np.flatnonzero((headers[:, 345] != 0) & (headers[:, 262] == 0)).tolist():
        prefix = headers[number, 345:500].tobytes().split(b"\0", 1)[0]
        names[number] = prefix + b"/" + names[number]
    return names
