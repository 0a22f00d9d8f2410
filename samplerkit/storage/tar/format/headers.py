"""Headers of tar archives: strict parsing of one of any format, and vectorized parsing of plain ones."""

import re
import zlib
from typing import Any, NamedTuple

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


Bytes = np.ndarray[Any, np.dtype[np.uint8]]
Numbers = np.ndarray[Any, np.dtype[np.int64]]

SMALLEST = 16
"""The least blocks of a window for which vectorized parsing pays off."""

_POWERS = 8 ** np.arange(10, -1, -1, dtype=np.int64)
# Records without a name or a size do not affect samples.
_HARMLESS = re.compile(rb"(?:[0-9]+ (?:[acm]time|[ug]id|[ug]name|LIBARCHIVE\.creationtime)=[^\n]*\n)+")

_POSIX_WORD, _GNU_WORD = (np.frombuffer(text, dtype="<u8")[0] for text in (POSIX_MAGIC, GNU_MAGIC))

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


class Window:
    """A part of an archive, in which runs of plain headers are found by vectorized parsing.

    A plain header is the header of a regular file whose size and checksum have the format of GNU tar,
    libarchive and Python, or a pax header with only times and owners. Long runs of these are the usual case;
    all other headers are parsed one by one by `parse`.

    Args:
        base: the offset of the part in the archive, a multiple of 512.
        data: its bytes.

    Attributes:
        has_runs: whether it is long enough to look for runs, and has a header.
    """

    def __init__(self, base: int, data: bytes) -> None:
        self.base = base
        self.data = data
        self.has_runs = False
        count = len(data) // BLOCK
        if count < SMALLEST:
            return
        blocks = np.frombuffer(data, dtype=np.uint8, count=count * BLOCK).reshape(count, BLOCK)
        magic = _words(blocks, 257)
        heads = np.flatnonzero((magic == _POSIX_WORD) | (magic == _GNU_WORD))
        if not heads.size:
            return
        headers = blocks[heads]
        is_plain = _are_plain(headers)
        sizes = _numbers(headers[:, 124:135])
        for row in np.flatnonzero(is_plain & (headers[:, 156] == ord(PAX_LOCAL))).tolist():
            is_plain[row] = self._is_harmless((int(heads[row]) + 1) * BLOCK, int(sizes[row]))
        rows = np.flatnonzero(is_plain)
        following = heads[rows] + 1 - (-sizes[rows] // BLOCK)
        # Data may look like a header, for instance in an archive within the archive.
        is_header = heads[rows] >= np.append(0, np.maximum.accumulate(following)[:-1])
        # Of each plain header: its row, its block, and the block of the next header.
        self._rows, self._next = rows[is_header], following[is_header]
        self._heads = heads[self._rows]
        self._headers, self._sizes = headers, sizes
        self._is_pax = headers[self._rows, 156] == ord(PAX_LOCAL)
        self._ends = np.append(np.flatnonzero(self._next[:-1] != self._heads[1:]) + 1, self._heads.size)
        self.has_runs = True

    def holds(self, position: int, size: int) -> bool:
        """Returns whether `size` bytes at a position of the archive are in this window."""
        return self.base <= position and position + size <= self.base + len(self.data)

    def part(self, position: int, size: int) -> bytes:
        """Returns bytes at a position of the archive that are in this window."""
        return self.data[position - self.base : position - self.base + size]

    def run(self, position: int) -> tuple[list[bytes], Numbers, Numbers, int]:
        """Finds the run of plain headers that starts at a position, as far as it goes in this window.

        Returns:
            The names, the offsets of the data and the sizes of the members, and the position of the header
            after the last one. No names if there is no plain header.
        """
        index = (position - self.base) // BLOCK
        begin = int(np.searchsorted(self._heads, index))
        is_plain = begin < self._heads.size and self._heads[begin] == index
        end = int(self._ends[np.searchsorted(self._ends, begin, side="right")]) if is_plain else begin
        while end > begin and self._is_pax[end - 1]:  # the header that it describes is not in the run
            end -= 1
        if end == begin:
            return [], self._sizes[:0], self._sizes[:0], position
        members = begin + np.flatnonzero(~self._is_pax[begin:end])
        rows, offsets = self._rows[members], self.base + (self._heads[members] + 1) * BLOCK
        position = self.base + int(self._next[end - 1]) * BLOCK
        return _names_of(self._headers, rows), offsets, self._sizes[rows], position

    def _is_harmless(self, start: int, size: int) -> bool:
        """Returns whether a pax header has only times and owners, and is completely in this window."""
        end = start + size
        return end <= len(self.data) and _HARMLESS.fullmatch(self.data, start, end) is not None


def _words(blocks: Bytes, at: int) -> np.ndarray[Any, np.dtype[np.uint64]]:
    """Returns a view of eight bytes of each block."""
    return np.ndarray(len(blocks), dtype="<u8", buffer=blocks, offset=at, strides=(BLOCK,))


def _are_plain(headers: Bytes) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Returns which headers are plain; of pax headers, the records must be checked too."""
    kind, end = headers[:, 156], headers[:, 135]
    is_pax = (kind == ord(PAX_LOCAL)) & (_words(headers, 257) == _POSIX_WORD)
    is_plain: np.ndarray[Any, np.dtype[np.bool_]] = (kind == ord("0")) | is_pax
    for at, mask, word in (
        (124, _DIGIT_MASK, _DIGIT),
        (127, _DIGIT_MASK, _DIGIT),
        (148, _SIX_AND_END_MASK, _SIX_AND_END),
    ):
        is_plain &= _words(headers, at) & np.uint64(mask) == np.uint64(word)
    is_plain &= (end == 0) | (end == ord(" "))
    is_plain &= _sums_of(headers) == _numbers(headers[:, 148:154])
    return is_plain


def _sums_of(headers: Bytes) -> Numbers:
    """Sums the bytes of each header, with those of the checksum counted as spaces."""
    # 16 bits hold the sum of half a header, and are faster than 64.
    halves = headers.reshape(len(headers), 2, BLOCK // 2).sum(axis=2, dtype=np.uint16)
    sums: Numbers = halves.sum(axis=1, dtype=np.int64)
    sums += 8 * ord(" ") - headers[:, 148:156].sum(axis=1, dtype=np.int64)
    return sums


def _numbers(digits: Bytes) -> Numbers:
    """Converts rows of octal digits to integers."""
    values: Numbers = digits.astype(np.int64) - ord("0")
    return values @ _POWERS[-digits.shape[1] :]


def _names_of(headers: Bytes, rows: Numbers) -> list[bytes]:
    """Returns the names in some of the given plain headers."""
    names: list[bytes] = headers[rows, :100].view("S100").ravel().tolist()
    if b"".join(names).find(b"\0") >= 0:
        # Bytes after the terminating zero do not belong to a name.
        names = [name.split(b"\0", 1)[0] for name in names]
    # The POSIX format stores the start of long names in a prefix field; the GNU format has times there.
    for number in np.flatnonzero((headers[rows, 345] != 0) & (headers[rows, 262] == 0)).tolist():
        prefix = headers[rows[number], 345:500].tobytes().split(b"\0", 1)[0]
        names[number] = prefix + b"/" + names[number]
    return names
