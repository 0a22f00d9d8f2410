"""Scanning of an archive from header to header."""

from __future__ import annotations

import os
import sys
from array import array
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from samplerkit.storage.tar.format.flaws import Flaw, Reason
from samplerkit.storage.tar.format.headers import (
    BLOCK,
    DIRECTORY,
    GNU_LONG_LINK,
    GNU_LONG_NAME,
    LONGEST_EXTENSION,
    PAX_GLOBAL,
    PAX_LOCAL,
    REGULAR,
    ZERO,
    Header,
    HeaderError,
    Window,
    padded,
    parse,
    pax_records,
)

Read = Callable[[int, int], bytes]
"""Reads bytes of an archive, given their number and position."""

NON_FILES: dict[bytes, tuple[Reason, str]] = {
    b"1": ("link", "a hard link"),
    b"2": ("link", "a symbolic link"),
    b"3": ("device", "a character device"),
    b"4": ("device", "a block device"),
    b"6": ("device", "a pipe"),
}
"""Flaws for the types of members that are neither files nor directories."""

EXTENSIONS = frozenset({PAX_LOCAL, PAX_GLOBAL, GNU_LONG_NAME, GNU_LONG_LINK})
"""The types of headers that describe the members after them."""

_SPARSE = b"GNU.sparse."
_MAX_DIGITS = 20
_LARGEST = 1 << 62
"""A larger size fits into no archive, and not into 64 bits."""

DENSE_WINDOW = 1 << 20
"""Bytes of a read if headers are close together. malloc reuses the memory of such windows; those of 2 MiB are
returned to the system each time, and their page faults take longer than fewer calls of numpy save."""

SPARSE_WINDOW = 4 * BLOCK
DENSE = 16 << 10
"""If headers are closer than this many bytes, the whole archive is read; otherwise only its headers."""


@dataclass
class Members:
    """The files of an archive, in their order.

    Args:
        names: the names in the archive.
        offsets: the offset of the data of each file.
        sizes: the size of the data of each file in bytes.
        bad: flaws of members that cannot be read, by their number.
        flaws: flaws of the archive as a whole.
    """

    names: list[bytes] = field(default_factory=list)
    offsets: array[int] = field(default_factory=lambda: array("q"))
    sizes: array[int] = field(default_factory=lambda: array("q"))
    bad: dict[int, tuple[Reason, str]] = field(default_factory=dict)
    flaws: list[Flaw] = field(default_factory=list)


def scan(descriptor: int, archive: str, size: int) -> Members:
    """Finds the members of an archive.

    Nothing is skipped silently: truncation, damage and members other than files are recorded as flaws. A
    damaged header ends the scan, since the position of the next header is then unknown.

    Args:
        descriptor: the descriptor of the open archive; its position is neither used nor moved.
        archive: the name of the archive in flaws.
        size: the size of the archive in bytes.
    """
    read = partial(os.pread, descriptor)
    walk = Walk(read, read, archive, size)
    while walk.step():
        pass
    walk.drop_unfinished()
    return walk.members


class Walk:
    """A scan from header to header, one step at a time.

    Args:
        read: reads a number of bytes at a position; returns fewer only at the end of the archive.
        ahead: reads at least a block at a position, and up to a number of bytes if they are available.
        archive: the name of the archive in flaws.
        size: the size of the archive in bytes, if known.

    Attributes:
        members: the members found so far. The caller may remove members; they are not found again.
    """

    def __init__(self, read: Read, ahead: Read, archive: str, size: int = sys.maxsize) -> None:
        self.members = Members()
        self._read = read
        self._ahead = ahead
        self._archive = archive
        self._size = size
        self._position = 0
        self._window = Window(0, b"")
        self._spacing = float(DENSE - 1)
        # The records of extended headers: for all later members, and for the next one.
        self._global: dict[bytes, bytes] = {}
        self._local: dict[bytes, bytes] | None = None
        self._begin = 0

    def step(self) -> bool:
        """Parses a run of plain headers, or one header of any kind.

        Returns:
            Whether the scan continues: False at the end of the archive or at damage.
        """
        self._load()
        # Records of extended headers apply to later headers, but `Window.run` ignores them.
        if self._window.has_runs and self._local is None and not self._global:
            names, offsets, sizes, position = self._window.run(self._position)
            if names:
                self.members.names += names
                self.members.offsets.frombytes(offsets.tobytes())
                self.members.sizes.frombytes(sizes.tobytes())
                self._move(position, len(names))
                return True
        return self._parse_one()

    def _load(self) -> None:
        if not self._window.holds(self._position, BLOCK) and self._position < self._size:
            length = DENSE_WINDOW if self._spacing < DENSE else SPARSE_WINDOW
            self._window = Window(self._position, self._ahead(length, self._position))

    def _move(self, position: int, headers: int) -> None:
        # A moving average over the last few dozen headers.
        weight = min(headers, 32) / 64
        spacing = (position - self._position) / headers
        self._spacing += weight * (spacing - self._spacing)
        self._position = position

    def _flaw(self, reason: Reason, detail: str, offset: int | None = None) -> bool:
        """Records the flaw that ends the scan."""
        place = self._position if offset is None else offset
        self.members.flaws.append(Flaw(self._archive, place, reason, detail))
        return False

    def _parse_one(self) -> bool:
        """Parses one header of any kind; returns whether the scan continues."""
        if self._local is None:
            self._begin = self._position
        block = self._window.part(self._position, BLOCK)
        if len(block) < BLOCK:
            end = min(self._size, self._position + len(block))
            return self._flaw("truncated", f"the archive ends after {end} bytes, without an end mark")
        if block == ZERO:
            return self._check_end()
        try:
            header = parse(block)
            return self._extension(header) if header.kind in EXTENSIONS else self._member(header)
        except HeaderError as error:
            return self._flaw("damaged header", f"{error}; the rest of the archive cannot be found")

    def _extension(self, header: Header) -> bool:
        start, size = self._position + BLOCK, header.size
        if size > LONGEST_EXTENSION:
            raise HeaderError(f"an extended header of {size} bytes")
        is_loaded = self._window.holds(start, size)
        data = self._window.part(start, size) if is_loaded else self._read(size, start)
        if len(data) < size:
            return self._flaw("truncated", "the archive ends in an extended header")
        if header.kind == PAX_GLOBAL:
            self._global.update(_relevant(pax_records(data)))
        else:
            self._local = self._local or {}
            if header.kind == PAX_LOCAL:
                self._local.update(_relevant(pax_records(data)))
            elif header.kind == GNU_LONG_NAME:
                self._local[b"path"] = data.split(b"\0", 1)[0]
        self._move(start + padded(size), 1)
        return True

    def _member(self, header: Header) -> bool:
        records = {**self._global, **self._local} if self._local else self._global
        self._local = None
        name = records.get(b"path", header.name)
        size = _size(records[b"size"]) if b"size" in records else header.size
        is_file, wrong = header.kind in REGULAR, NON_FILES.get(header.kind)
        if any(key.startswith(_SPARSE) for key in records):
            return self._flaw("unsupported member", "a sparse file", self._begin)
        if not is_file and wrong is None and header.kind != DIRECTORY:
            kind = f"of type {header.kind.decode('latin-1')!r}"
            return self._flaw("unsupported member", kind, self._begin)
        # Before POSIX, a directory was stored as a file whose name ends in a slash.
        if header.kind != DIRECTORY and not (is_file and name.endswith(b"/")):
            if wrong is not None:
                self.members.bad[len(self.members.names)] = wrong
            self.members.names.append(name)
            self.members.offsets.append(self._position + BLOCK)
            self.members.sizes.append(min(size, _LARGEST) if is_file else 0)
        # Links, devices and directories have no data, whatever their size field says.
        self._move(self._position + BLOCK + (padded(size) if is_file else 0), 1)
        return True

    def _check_end(self) -> bool:
        """Checks that the archive ends in two blocks of zeros, followed by nothing but zeros."""
        if self._local is not None:
            return self._flaw("damaged header", "an extended header without a member")
        second = self._read(BLOCK, self._position + BLOCK)
        if len(second) < BLOCK:
            return self._flaw("truncated", "half of the end mark is missing")
        if second != ZERO:
            return self._flaw("damaged header", "one block of zeros in the middle of the archive")
        position = self._position + 2 * BLOCK
        while padding := self._read(DENSE_WINDOW, position):
            rest = padding.lstrip(b"\0")
            if rest:
                place = position + len(padding) - len(rest)
                return self._flaw("data after the end", "another archive may be appended", place)
            position += len(padding)
        return False

    def drop_unfinished(self) -> None:
        """Drops the last member if the archive ends within its data."""
        members = self.members
        # `Window.run` does not check the end of the archive, beyond which only the last member can extend.
        if members.names and members.offsets[-1] + members.sizes[-1] > self._size:
            name, offset = members.names.pop(), members.offsets.pop()
            members.bad.pop(len(members.names), None)
            members.sizes.pop()
            shown = name.decode("utf-8", "replace")
            members.flaws = []
            self._flaw("truncated", f"the archive ends in {shown!r}", offset - BLOCK)


def _size(record: bytes) -> int:
    if not record.isdigit() or len(record) > _MAX_DIGITS:
        raise HeaderError("the size in a pax record is not a number")
    return int(record)


def _relevant(records: dict[bytes, bytes]) -> dict[bytes, bytes]:
    """Returns the records about the names and positions of data."""
    return {
        key: value for key, value in records.items() if key in {b"path", b"size"} or key.startswith(_SPARSE)
    }
