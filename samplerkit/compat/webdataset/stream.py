"""Samples of a tar archive that comes as a stream: read once, and as strictly as a file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NoReturn, Protocol, final

from samplerkit.errors import DatasetError
from samplerkit.storage.inflate import GzipError, TooLargeError, inflated
from samplerkit.storage.tar.format.flaws import Reason
from samplerkit.storage.tar.format.headers import BLOCK, ZERO, HeaderError, padded, parse
from samplerkit.storage.tar.format.samples import RESERVED, is_meta, is_unsafe, split_name
from samplerkit.storage.tar.format.scan import EXTENSIONS, Extensions, Member, extension_size
from samplerkit.storage.tar.index.archive import GZIP, OTHERS

_PIECE = 1 << 20
_MOST_AT_ONCE = 1 << 24
_HINT = "look at what the command writes, or fetch or make the archive again"


class ByteStream(Protocol):
    """What is read."""

    def read(self, size: int) -> bytes:
        """Reads bytes: fewer than asked for only at the end."""

    def require_success(self) -> None:
        """Says whether the end of the stream was meant; raises if not."""


def samples_of(stream: ByteStream, url: str) -> Iterator[dict[str, Any]]:
    """Yields the samples of an archive, in the order in which they stand.

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
        parts = None if is_meta(name) else split_name(name)
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

    def __init__(self, stream: ByteStream, url: str) -> None:
        self._stream = stream
        self._url = url
        self._position = 0
        self._begin = 0
        self._extensions = Extensions()

    def __iter__(self) -> Iterator[tuple[bytes, bytes]]:
        """Yields the name and the data of each file."""
        while True:
            if not self._extensions.are_pending:
                self._begin = self._position
            block = self._exactly(BLOCK, "the archive ends without an end mark")
            if block == ZERO:
                self._end()
                return
            try:
                header = parse(block)
                if header.kind in EXTENSIONS:
                    size = extension_size(header)
                    data = self._padded(size, "the archive ends in an extended header")
                    self._extensions.add(header, data)
                    continue
                member = self._extensions.member(header)
            except HeaderError as error:
                self.refuse("damaged header", str(error))
            self._check(member)
            data = self._padded(member.size, f"the archive ends in {_text(member.name)!r}")
            if not member.is_directory:
                yield member.name, data

    def refuse(self, reason: Reason, detail: str) -> NoReturn:
        """Raises the error for the header at hand."""
        problem = f"{reason} at byte {self._begin}: {detail}"
        raise DatasetError(self._url, problem, hint=_HINT)

    def _check(self, member: Member) -> None:
        if member.wrong is not None:
            self.refuse(member.wrong[0], f"{_text(member.name)!r} is {member.wrong[1]}")
        if not member.is_directory and is_unsafe(member.name):
            self.refuse("unsafe name", repr(_text(member.name)))

    def _end(self) -> None:
        """Checks that two blocks of zeros, and then at most more zeros, end the archive."""
        if self._extensions.are_pending:
            self.refuse("damaged header", "an extended header without a member")
        if self._exactly(BLOCK, "half of the end mark is missing") != ZERO:
            self.refuse("damaged header", "one block of zeros in the middle of the archive")
        while padding := self._stream.read(_PIECE):
            if padding.strip(b"\0"):
                self._begin = self._position + len(padding) - len(padding.lstrip(b"\0"))
                self.refuse("data after the end", "another archive may be appended")
            self._position += len(padding)

    def _padded(self, size: int, problem: str) -> bytes:
        data = self._exactly(size, problem)
        self._exactly(padded(size) - size, problem)
        return data

    def _exactly(self, size: int, problem: str) -> bytes:
        pieces: list[bytes] = []
        missing = size
        # A header may claim any size: memory is taken for what has arrived.
        while missing and (piece := self._stream.read(min(missing, _MOST_AT_ONCE))):
            pieces.append(piece)
            missing -= len(piece)
        self._position += size - missing
        if missing:
            # Why it ends early says more than where.
            self._stream.require_success()
            self.refuse("truncated", problem)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)


@final
class _Begun:
    """A stream whose first bytes were looked at."""

    def __init__(self, first: bytes, stream: ByteStream) -> None:
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

    def __init__(self, stream: ByteStream, url: str) -> None:
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
        try:
            yield from inflated(self._stream.read)
        except GzipError as error:
            if error.ends_early:
                self._stream.require_success()
            problem = f"damaged gzip at byte {error.offset}: {error}"
            raise DatasetError(self._url, problem, hint=_HINT) from error
        except TooLargeError as error:
            problem = f"{error}, 200 times what was read of it or 1 GiB"
            raise DatasetError(self._url, problem, hint="unpack it in the command if you trust it") from error


def _plain(stream: ByteStream, url: str) -> ByteStream:
    first = stream.read(8)
    for magic, name in OTHERS.items():
        if first.startswith(magic):
            problem = f"is compressed by {name}, which is not supported"
            raise DatasetError(url, problem, hint="unpack it in the command, or pack it with gzip")
    begun = _Begun(first, stream)
    return _Inflated(begun, url) if first.startswith(GZIP) else begun


def _text(name: bytes) -> str:
    return name.decode("utf-8", "replace")
