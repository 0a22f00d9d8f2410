"""A walk through an archive from header to header."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import final

from samplerkit.storage.tar.flaws import Flaw, Reason
from samplerkit.storage.tar.header import BLOCK, ZERO, Header, HeaderError, padded, parse
from samplerkit.storage.tar.member import EXTENSIONS, Extensions, extension_size
from samplerkit.storage.tar.window import Window

DENSE_WINDOW = 1 << 21
SPARSE_WINDOW = 4 * BLOCK
DENSE = 16 << 10
"""Bytes from header to header below which an archive is read whole; above, only its headers are read."""


@dataclass
class Members:
    """The files of an archive, in the order in which they stand.

    Args:
        names: as they stand in the archive.
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
    is a flaw. A damaged header ends the walk, for nothing tells where the next one is.

    Args:
        descriptor: of the open archive; its position is neither used nor moved.
        archive: the name for flaws.
        size: bytes of the archive.
    """
    return _Walk(descriptor, archive, size).members()


@final
class _Walk:
    def __init__(self, descriptor: int, archive: str, size: int) -> None:
        self._descriptor = descriptor
        self._archive = archive
        self._size = size
        self._position = 0
        self._window = Window(0, b"")
        self._found = Members()
        self._spacing = float(DENSE - 1)
        self._extensions = Extensions()
        self._begin = 0

    def members(self) -> Members:
        """Walks to the end of the archive or to its first damage."""
        is_going = True
        while is_going:
            self._load()
            if self._is_plain():
                names, offsets, sizes, position = self._window.run(self._position)
                if names:
                    self._found.names += names
                    self._found.offsets += offsets
                    self._found.sizes += sizes
                    self._move(position, len(names))
                    continue
            is_going = self._one()
        self._check_last()
        return self._found

    def _is_plain(self) -> bool:
        return not (self._extensions.are_pending or self._extensions.are_global)

    def _load(self) -> None:
        if not self._window.holds(self._position, BLOCK) and self._position < self._size:
            length = DENSE_WINDOW if self._spacing < DENSE else SPARSE_WINDOW
            self._window = Window(self._position, os.pread(self._descriptor, length, self._position))

    def _move(self, position: int, headers: int) -> None:
        # An average over the last few dozen headers.
        weight = min(headers, 32) / 64
        spacing = (position - self._position) / headers
        self._spacing += weight * (spacing - self._spacing)
        self._position = position

    def _flaw(self, reason: Reason, detail: str, offset: int | None = None) -> bool:
        """Notes what ends the walk."""
        place = self._position if offset is None else offset
        self._found.flaws.append(Flaw(self._archive, place, reason, detail))
        return False

    def _one(self) -> bool:
        """Reads one header of any kind; tells whether the walk goes on."""
        if not self._extensions.are_pending:
            self._begin = self._position
        if self._position + BLOCK > self._size:
            return self._flaw("truncated", f"the archive ends after {self._size} bytes, without an end mark")
        block = self._window.part(self._position, BLOCK)
        if len(block) < BLOCK:
            return self._flaw("truncated", "the archive became shorter while it was read")
        if block == ZERO:
            return self._end()
        try:
            header = parse(block)
            return self._extension(header) if header.kind in EXTENSIONS else self._member(header)
        except HeaderError as error:
            return self._flaw("damaged header", f"{error}; the rest of the archive cannot be found")

    def _extension(self, header: Header) -> bool:
        start, size = self._position + BLOCK, extension_size(header)
        if start + size > self._size:
            return self._flaw("truncated", "the archive ends in an extended header")
        if self._window.holds(start, size):
            data = self._window.part(start, size)
        else:
            data = os.pread(self._descriptor, size, start)
        self._extensions.add(header, data)
        self._move(start + padded(size), 1)
        return True

    def _member(self, header: Header) -> bool:
        member = self._extensions.member(header)
        if member.wrong is not None and member.wrong[0] == "unsupported member":
            return self._flaw(*member.wrong, offset=self._begin)
        if not member.is_directory:
            if member.wrong is not None:
                self._found.bad[len(self._found.names)] = member.wrong
            self._found.names.append(member.name)
            self._found.offsets.append(self._position + BLOCK)
            self._found.sizes.append(member.size)
        self._move(self._position + BLOCK + padded(member.size), 1)
        return True

    def _end(self) -> bool:
        """Checks that two blocks of zeros, and then at most more zeros, end the archive."""
        if self._extensions.are_pending:
            return self._flaw("damaged header", "an extended header without a member")
        second = os.pread(self._descriptor, BLOCK, self._position + BLOCK)
        if len(second) < BLOCK:
            return self._flaw("truncated", "half of the end mark is missing")
        if second != ZERO:
            return self._flaw("damaged header", "one block of zeros in the middle of the archive")
        position = self._position + 2 * BLOCK
        while padding := os.pread(self._descriptor, DENSE_WINDOW, position):
            rest = padding.lstrip(b"\0")
            if rest:
                place = position + len(padding) - len(rest)
                return self._flaw("data after the end", "another archive may be appended", place)
            position += len(padding)
        return False

    def _check_last(self) -> None:
        """Drops the last member if the archive ends in its data."""
        found = self._found
        if found.names and found.offsets[-1] + found.sizes[-1] > self._size:
            name, offset = found.names.pop(), found.offsets.pop()
            found.bad.pop(len(found.names), None)
            found.sizes.pop()
            shown = name.decode("utf-8", "replace")
            found.flaws = []
            self._flaw("truncated", f"the archive ends in {shown!r}", offset - BLOCK)
