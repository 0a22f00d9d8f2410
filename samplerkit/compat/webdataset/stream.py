"""Samples of a tar archive that comes as a stream: read once, and as strictly as a file."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from typing import Any, NoReturn, Protocol, final

from samplerkit.errors import DatasetError
from samplerkit.storage.tar.archive import GZIP, OTHERS
from samplerkit.storage.tar.flaws import Reason
from samplerkit.storage.tar.header import (
    BLOCK,
    DIRECTORY,
    GNU_LONG_LINK,
    GNU_LONG_NAME,
    LONGEST_EXTENSION,
    PAX_GLOBAL,
    PAX_LOCAL,
    REGULAR,
    Header,
    HeaderError,
    padded,
    parse,
    pax_records,
    trouble,
)
from samplerkit.storage.tar.samples import RESERVED, is_unsafe, split_name

_ZERO = bytes(BLOCK)
_PIECE = 1 << 20
_META = re.compile(rb"__[^/]*__(?:/|\Z)")
_MEND = "look at what the command writes, or fetch or make the archive anew"


class Stream(Protocol):
    """What is read."""

    def read(self, size: int) -> bytes:
        """Reads bytes: fewer than asked for only at the end."""

    def require_success(self) -> None:
        """Says whether the end of the stream was meant; raises if not."""


def samples_of(stream: Stream, url: str) -> Iterator[dict[str, Any]]:
    """Gives the samples of an archive, in the order in which they stand.

    A sample is given when the one after it begins; the last one, when the archive has ended as it should.

    Args:
        stream: the archive, plain or gzip.
        url: its name, for `__url__` and errors.

    Raises:
        DatasetError: the archive is truncated, damaged, or has what a `TarDataset` refuses.
    """
    sample: dict[str, Any] | None = None
    key, seen = b"", set()
    members = _Members(_plain(stream, url), url)
    for name, data in members:
        parts = None if _META.match(name) else split_name(name)
        if parts is None:
            continue
        if sample is None or parts[0] != key:
            if sample is not None:
                yield sample
            key = parts[0]
            if key in seen:
                members.refuse("duplicate key", f"{_text(key)!r} stands in two places of the shard")
            seen.add(key)
            sample = {"__key__": key.decode("utf-8", "surrogateescape"), "__url__": url}
        field = parts[1].decode("utf-8", "surrogateescape").lower()
        if field in sample:
            reason: Reason = "reserved field" if field in RESERVED else "duplicate field"
            members.refuse(reason, f"{field!r} of {_text(key)!r}")
        sample[field] = data
    stream.require_success()
    if sample is not None:
        yield sample


@final
class _Members:
    """The files of an archive."""

    def __init__(self, stream: Stream, url: str) -> None:
        self._stream = stream
        self._url = url
        self._position = 0
        self._begin = 0
        self._global: dict[bytes, bytes] = {}
        self._local: dict[bytes, bytes] = {}
        self._long_name: bytes | None = None
        self._is_extended = False

    def __iter__(self) -> Iterator[tuple[bytes, bytes]]:
        """Gives the name and the data of each file."""
        while True:
            if not self._is_extended:
                self._begin = self._position
            block = self._exactly(BLOCK, "the archive ends without an end mark")
            if block == _ZERO:
                self._end()
                return
            try:
                header = parse(block)
                if header.kind in {PAX_LOCAL, PAX_GLOBAL, GNU_LONG_NAME, GNU_LONG_LINK}:
                    self._extension(header)
                    continue
                name, size = self._named(header)
            except HeaderError as error:
                self.refuse("damaged header", str(error))
            self._is_extended, self._local, self._long_name = False, {}, None
            # Before POSIX, a directory was a file whose name ends in a slash.
            if header.kind == DIRECTORY:
                continue
            data = self._exactly(size, f"the archive ends in {_text(name)!r}")
            self._exactly(padded(size) - size, f"the archive ends in {_text(name)!r}")
            if not name.endswith(b"/"):
                yield name, data

    def refuse(self, reason: Reason, detail: str) -> NoReturn:
        """Raises the error for the header at hand."""
        problem = f"{reason} at byte {self._begin}: {detail}"
        raise DatasetError(self._url, problem, mend=_MEND)

    def _named(self, header: Header) -> tuple[bytes, int]:
        records = {**self._global, **self._local}
        name = self._long_name if self._long_name is not None else records.get(b"path", header.name)
        size = header.size
        if b"size" in records:
            if not records[b"size"].isdigit():
                raise HeaderError("the size in a pax record is no number")
            size = int(records[b"size"])
        wrong = trouble(header.kind)
        if any(key.startswith(b"GNU.sparse.") for key in records):
            wrong = ("unsupported member", "a sparse file")
        if wrong is not None:
            self.refuse(wrong[0], f"{_text(name)!r} is {wrong[1]}")
        is_directory = header.kind == DIRECTORY or (header.kind in REGULAR and name.endswith(b"/"))
        if not is_directory and is_unsafe(name):
            self.refuse("unsafe name", repr(_text(name)))
        return name, size

    def _extension(self, header: Header) -> None:
        if header.size > LONGEST_EXTENSION:
            raise HeaderError(f"an extended header of {header.size} bytes")
        data = self._exactly(padded(header.size), "the archive ends in an extended header")[: header.size]
        if header.kind == PAX_LOCAL:
            self._local.update(pax_records(data))
        elif header.kind == PAX_GLOBAL:
            self._global.update(pax_records(data))
        elif header.kind == GNU_LONG_NAME:
            self._long_name = data.split(b"\0", 1)[0]
        self._is_extended = self._is_extended or header.kind != PAX_GLOBAL

    def _end(self) -> None:
        """Checks that two blocks of zeros, and then at most more zeros, end the archive."""
        if self._is_extended:
            self.refuse("damaged header", "an extended header without a member")
        if self._exactly(BLOCK, "half of the end mark is missing") != _ZERO:
            self.refuse("damaged header", "one block of zeros in the middle of the archive")
        while padding := self._stream.read(_PIECE):
            if padding.strip(b"\0"):
                self._begin = self._position + len(padding) - len(padding.lstrip(b"\0"))
                self.refuse("data after the end", "another archive may be appended")
            self._position += len(padding)

    def _exactly(self, size: int, problem: str) -> bytes:
        data = self._stream.read(size) if size else b""
        self._position += len(data)
        if len(data) < size:
            # Why it ends early says more than where.
            self._stream.require_success()
            self.refuse("truncated", problem)
        return data


@final
class _Begun:
    """A stream whose first bytes were looked at."""

    def __init__(self, first: bytes, stream: Stream) -> None:
        self._first = first
        self._stream = stream
        self.require_success = stream.require_success

    def read(self, size: int) -> bytes:
        """Reads bytes."""
        if not self._first:
            return self._stream.read(size)
        data, self._first = self._first[:size], self._first[size:]
        return data + self._stream.read(size - len(data)) if len(data) < size else data


@final
class _Inflated:
    """The content of a gzip stream; zlib compares the CRC and the length of each of its members."""

    def __init__(self, stream: Stream, url: str) -> None:
        self._stream = stream
        self._url = url
        self._pieces = self._inflate()
        self._rest = b""
        self.require_success = stream.require_success

    def read(self, size: int) -> bytes:
        """Reads bytes."""
        pieces, have = [self._rest], len(self._rest)
        while have < size:
            piece = next(self._pieces, b"")
            if not piece:
                break
            pieces.append(piece)
            have += len(piece)
        data = b"".join(pieces)
        self._rest = data[size:]
        return data[:size]

    def _inflate(self) -> Iterator[bytes]:
        offset, unpacker, pending = 0, zlib.decompressobj(wbits=31), b""
        while piece := pending or self._stream.read(_PIECE):
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
                    self._refuse(offset, str(error))
                offset += len(piece) - len(unpacker.unconsumed_tail) - len(unpacker.unused_data)
                piece = unpacker.unconsumed_tail
                if data:
                    yield data
            pending = unpacker.unused_data
        if not unpacker.eof:
            self._stream.require_success()
            self._refuse(offset, "the compressed data end early")

    def _refuse(self, offset: int, problem: str) -> NoReturn:
        raise DatasetError(self._url, f"damaged gzip at byte {offset}: {problem}", mend=_MEND)


def _plain(stream: Stream, url: str) -> Stream:
    first = stream.read(8)
    for magic, name in OTHERS.items():
        if first.startswith(magic):
            problem = f"is compressed by {name}, which is not supported"
            raise DatasetError(url, problem, mend="unpack it in the command, or pack it with gzip")
    begun = _Begun(first, stream)
    return _Inflated(begun, url) if first.startswith(GZIP) else begun


def _text(name: bytes) -> str:
    return name.decode("utf-8", "replace")
