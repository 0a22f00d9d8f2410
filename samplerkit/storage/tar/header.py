"""One header of a tar archive, read strictly: ustar, GNU and the old format, and pax records."""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass

from samplerkit.storage.tar.flaws import Reason

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
LINKS = {b"1": "a hard link", b"2": "a symbolic link"}
DEVICES = {b"3": "a character device", b"4": "a block device", b"6": "a pipe"}

KEYWORDS = frozenset(
    b"atime charset comment ctime gid gname hdrcharset linkpath mtime path size uid uname".split()
)
"""The keys of pax records that POSIX names."""

LONGEST_EXTENSION = 1 << 20
"""Bytes of a pax header or a long name; more is taken for damage."""

# Digits, then only padding; some old writers pad on the left.
_OCTAL = re.compile(rb" *([0-7]*)[ \0]*\Z")
_RECORD = re.compile(rb"([1-9][0-9]{0,6}) ")


class HeaderError(Exception):
    """A header cannot be what a writer wrote."""


@dataclass(frozen=True, slots=True)
class Header:
    """What one header says.

    Args:
        name: the name of the member, as bytes.
        size: bytes of its data.
        kind: the type flag, one byte.
    """

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


def trouble(kind: bytes) -> tuple[Reason, str] | None:
    """Says what is wrong with a type of member, and None for files and directories.

    Example:
        >>> trouble(b"2"), trouble(b"0")
        (('link', 'a symbolic link'), None)
    """
    if kind in REGULAR or kind == DIRECTORY:
        return None
    if kind in LINKS:
        return "link", LINKS[kind]
    if kind in DEVICES:
        return "device", DEVICES[kind]
    return "unsupported member", f"of type {kind.decode('latin-1')!r}"


def padded(size: int) -> int:
    """Gives the bytes that data of a size fill in an archive: whole blocks."""
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
