"""A walk through an archive from header to header."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import final

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
"""Gives bytes of an archive: how many, and from which position on."""

NO_FILES: dict[bytes, tuple[Reason, str]] = {
    b"1": ("link", "a hard link"),
    b"2": ("link", "a symbolic link"),
    b"3": ("device", "a character device"),
    b"4": ("device", "a block device"),
    b"6": ("device", "a pipe"),
}
"""What is wrong with the types of members that are neither files nor directories."""

EXTENSIONS = frozenset({PAX_LOCAL, PAX_GLOBAL, GNU_LONG_NAME, GNU_LONG_LINK})
"""The kinds of headers that say something of the members after them."""

_SPARSE = b"GNU.sparse."
_MOST_DIGITS = 20

DENSE_WINDOW = 1 << 19
"""Bytes that are read at once where headers are near one another: malloc keeps the memory of such windows.
Larger ones it gives back to the system each time, and page faults take a third of the walk."""

SPARSE_WINDOW = 4 * BLOCK
DENSE = 16 << 10
"""Bytes from header to header below which an archive is read whole; above, only its headers are read."""


@dataclass
class Members:
    """The files of an archive, in the order in which they stand.

    Args:
        names: as they are in the archive.
        offsets: where the data of each begins.
        sizes: bytes of data of each.
        bad: what is wrong with members that cannot be read, by their number.
        flaws: what is wrong with the archive as a whole.
    """

    names: list[bytes] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    bad: dict[int, tuple[Reason, str]] = field(default_factory=dict)
    flaws: list[Flaw] = field(default_factory=list)


def scan(descriptor: int, archive: str, size: int) -> Members:
    """Finds the members of an archive.

    Nothing is left out in silence: where the archive ends early, is damaged or holds what is no file, there
    is a flaw. A damaged header ends the walk, for nothing says where the next one is.

    Args:
        descriptor: of the open archive; its position is neither used nor moved.
        archive: the name for flaws.
        size: bytes of the archive.
    """
    read = partial(os.pread, descriptor)
    walk = Walk(read, read, archive, size)
    while walk.step():
        pass
    walk.drop_unfinished()
    return walk.found


@final
class Walk:
    """A walk from header to header, a step at a time.

    Args:
        read: gives so many bytes from a position on, and fewer only at the end of the archive.
        ahead: gives a block from a position on, and so many bytes if they are at hand.
        archive: the name for flaws.
        size: bytes of the archive, as far as that is known.

    Attributes:
        found: what was found. Members that are taken out of it do not come again.
    """

    def __init__(self, read: Read, ahead: Read, archive: str, size: int = sys.maxsize) -> None:
        self.found = Members()
        self._read = read
        self._ahead = ahead
        self._archive = archive
        self._size = size
        self._position = 0
        self._window = Window(0, b"")
        self._spacing = float(DENSE - 1)
        # What extended headers say: of all members to come, and of the one whose header must follow.
        self._global: dict[bytes, bytes] = {}
        self._local: dict[bytes, bytes] | None = None
        self._begin = 0

    def step(self) -> bool:
        """Reads a run of plain headers, or one header of any kind.

        Returns:
            Whether the walk continues: not at the end of the archive or its first damage.
        """
        self._load()
        # What an extended header says holds for headers after it, which a run does not know of.
        if self._window.is_long and self._local is None and not self._global:
            names, offsets, sizes, position = self._window.run(self._position)
            if names:
                self.found.names += names
                self.found.offsets += offsets
                self.found.sizes += sizes
                self._move(position, len(names))
                return True
        return self._one()

    def _load(self) -> None:
        if not self._window.holds(self._position, BLOCK) and self._position < self._size:
            length = DENSE_WINDOW if self._spacing < DENSE else SPARSE_WINDOW
            self._window = Window(self._position, self._ahead(length, self._position))

    def _move(self, position: int, headers: int) -> None:
        # An average over the last few dozen headers.
        weight = min(headers, 32) / 64
        spacing = (position - self._position) / headers
        self._spacing += weight * (spacing - self._spacing)
        self._position = position

    def _flaw(self, reason: Reason, detail: str, offset: int | None = None) -> bool:
        """Notes what ends the walk."""
        place = self._position if offset is None else offset
        self.found.flaws.append(Flaw(self._archive, place, reason, detail))
        return False

    def _one(self) -> bool:
        """Reads one header of any kind; returns whether the walk continues."""
        if self._local is None:
            self._begin = self._position
        block = self._window.part(self._position, BLOCK)
        if len(block) < BLOCK:
            end = min(self._size, self._position + len(block))
            return self._flaw("truncated", f"the archive ends after {end} bytes, without an end mark")
        if block == ZERO:
            return self._end()
        try:
            header = parse(block)
            return self._extension(header) if header.kind in EXTENSIONS else self._member(header)
        except HeaderError as error:
            return self._flaw("damaged header", f"{error}; the rest of the archive cannot be found")

    def _extension(self, header: Header) -> bool:
        start, size = self._position + BLOCK, header.size
        if size > LONGEST_EXTENSION:
            raise HeaderError(f"an extended header of {size} bytes")
        is_here = self._window.holds(start, size)
        data = self._window.part(start, size) if is_here else self._read(size, start)
        if len(data) < size:
            return self._flaw("truncated", "the archive ends in an extended header")
        if header.kind == PAX_GLOBAL:
            self._global.update(_used(pax_records(data)))
        else:
            self._local = self._local or {}
            if header.kind == PAX_LOCAL:
                self._local.update(_used(pax_records(data)))
            elif header.kind == GNU_LONG_NAME:
                self._local[b"path"] = data.split(b"\0", 1)[0]
        self._move(start + padded(size), 1)
        return True

    def _member(self, header: Header) -> bool:
        records = {**self._global, **self._local} if self._local else self._global
        self._local = None
        name = records.get(b"path", header.name)
        size = _size(records[b"size"]) if b"size" in records else header.size
        is_file, wrong = header.kind in REGULAR, NO_FILES.get(header.kind)
        if any(key.startswith(_SPARSE) for key in records):
            return self._flaw("unsupported member", "a sparse file", self._begin)
        if not is_file and wrong is None and header.kind != DIRECTORY:
            what = f"of type {header.kind.decode('latin-1')!r}"
            return self._flaw("unsupported member", what, self._begin)
        # Before POSIX, a directory was a file whose name ends in a slash.
        if header.kind != DIRECTORY and not (is_file and name.endswith(b"/")):
            if wrong is not None:
                self.found.bad[len(self.found.names)] = wrong
            self.found.names.append(name)
            self.found.offsets.append(self._position + BLOCK)
            self.found.sizes.append(size if is_file else 0)
        # What follows the header of a link, device or directory is the next header, whatever its size says.
        self._move(self._position + BLOCK + (padded(size) if is_file else 0), 1)
        return True

    def _end(self) -> bool:
        """Checks that two blocks of zeros, and then at most more zeros, end the archive."""
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
        """Drops the last member if the archive ends in its data."""
        found = self.found
        # A run follows what headers say and looks at no end: nothing but the last one can lie beyond it.
        if found.names and found.offsets[-1] + found.sizes[-1] > self._size:
            name, offset = found.names.pop(), found.offsets.pop()
            found.bad.pop(len(found.names), None)
            found.sizes.pop()
            shown = name.decode("utf-8", "replace")
            found.flaws = []
            self._flaw("truncated", f"the archive ends in {shown!r}", offset - BLOCK)


def _size(record: bytes) -> int:
    if not record.isdigit() or len(record) > _MOST_DIGITS:
        raise HeaderError("the size in a pax record is no number")
    return int(record)


def _used(records: dict[bytes, bytes]) -> dict[bytes, bytes]:
    """Keeps the records that say where data lie and what they are called."""
    return {
        key: value for key, value in records.items() if key in {b"path", b"size"} or key.startswith(_SPARSE)
    }
