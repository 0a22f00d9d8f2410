"""Samples of tar archives that commands write: each read once, from front to back, as strictly as a file."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any, NoReturn, final

from samplerkit.compat.webdataset.commands import Command, output
from samplerkit.compat.webdataset.handlers import Handler, goes_on, of_shard
from samplerkit.compat.webdataset.split import Seat, Shuffling
from samplerkit.compat.webdataset.stages import in_buffer
from samplerkit.errors import DatasetError
from samplerkit.storage.inflate import GzipError, TooLargeError, inflated
from samplerkit.storage.tar.format.flaws import Reason
from samplerkit.storage.tar.format.headers import BLOCK, ZERO, HeaderError, padded, parse
from samplerkit.storage.tar.format.samples import RESERVED, is_meta, is_unsafe, split_name
from samplerkit.storage.tar.format.scan import EXTENSIONS, Extensions, extension_size
from samplerkit.storage.tar.index.archive import GZIP, OTHERS

_HINT = "look at what the command writes, or fetch or make the archive again"


def samples_of(pieces: Iterator[bytes], url: str) -> Iterator[dict[str, Any]]:
    """Yields the samples of an archive, in the order in which they are written.

    A sample is given when the one after it begins; the last one, when the archive has ended as it should.

    Args:
        pieces: the archive, plain or gzip, in pieces of any size. Where it ends early, they raise why.
        url: its name, for `__url__` and errors.

    Raises:
        DatasetError: the archive is truncated, damaged, or has what a `TarDataset` refuses.
    """
    sample: dict[str, Any] | None = None
    key, seen = b"", set()
    archive = _Archive(_unpacked(pieces, url), url)
    for name, data in archive.files():
        parts = None if is_meta(name) else split_name(name)
        if parts is None:
            continue
        if sample is None or parts[0] != key:
            if sample is not None:
                yield sample
            key = parts[0]
            if key in seen:
                archive.refuse("duplicate key", f"{_text(key)!r} is in two places of the shard")
            seen.add(key)
            sample = {"__key__": key.decode("utf-8", "surrogateescape"), "__url__": url}
        field = parts[1].decode("utf-8", "surrogateescape").lower()
        if field in sample:
            reason: Reason = "reserved field" if field in RESERVED else "duplicate field"
            archive.refuse(reason, f"{field!r} of {_text(key)!r}")
        sample[field] = data
    if sample is not None:
        yield sample


@final
class _Archive:
    """A plain archive, read from front to back."""

    def __init__(self, pieces: Iterator[bytes], url: str) -> None:
        self._pieces = pieces
        self._rest = memoryview(b"")
        self._url = url
        self._position = 0
        self._begin = 0

    def files(self) -> Iterator[tuple[bytes, bytes]]:
        """Yields the name and the data of each file."""
        extensions = Extensions()
        while True:
            if not extensions.are_pending:
                self._begin = self._position
            block = self._exactly(BLOCK, "the archive ends without an end mark")
            if block == ZERO:
                break
            try:
                header = parse(block)
                if header.kind in EXTENSIONS:
                    data = self._padded(extension_size(header), "the archive ends in an extended header")
                    extensions.add(header, data)
                    continue
                member = extensions.member(header)
            except HeaderError as error:
                self.refuse("damaged header", str(error))
            if member.wrong is not None:
                self.refuse(member.wrong[0], f"{_text(member.name)!r} is {member.wrong[1]}")
            if not member.is_directory and is_unsafe(member.name):
                self.refuse("unsafe name", repr(_text(member.name)))
            data = self._padded(member.size, f"the archive ends in {_text(member.name)!r}")
            if not member.is_directory:
                yield member.name, data
        if extensions.are_pending:
            self.refuse("damaged header", "an extended header without a member")
        self._end()

    def refuse(self, reason: Reason, detail: str) -> NoReturn:
        """Raises the error for the header at hand."""
        problem = f"{reason} at byte {self._begin}: {detail}"
        raise DatasetError(self._url, problem, hint=_HINT)

    def _end(self) -> None:
        """Checks that two blocks of zeros, and then at most more zeros, end the archive."""
        if self._exactly(BLOCK, "half of the end mark is missing") != ZERO:
            self.refuse("damaged header", "one block of zeros in the middle of the archive")
        for padding in chain([bytes(self._rest)], self._pieces):
            if padding.strip(b"\0"):
                self._begin = self._position + len(padding) - len(padding.lstrip(b"\0"))
                self.refuse("data after the end", "another archive may be appended")
            self._position += len(padding)

    def _padded(self, size: int, problem: str) -> bytes:
        data = self._exactly(size, problem)
        self._exactly(padded(size) - size, problem)
        return data

    def _exactly(self, size: int, problem: str) -> bytes:
        """Reads so many bytes. A header may claim any size: memory is taken for what has arrived."""
        taken: list[memoryview] = []
        missing = size
        while missing:
            if not self._rest:
                piece = next(self._pieces, None)
                if piece is None:
                    self.refuse("truncated", problem)
                self._rest = memoryview(piece)
            taken.append(self._rest[:missing])
            self._rest = self._rest[missing:]
            missing -= len(taken[-1])
        self._position += size
        return b"".join(taken)


def _unpacked(pieces: Iterator[bytes], url: str) -> Iterator[bytes]:
    """Yields the plain archive: what is packed by gzip is unpacked, and other compressions are refused."""
    first = b""
    while len(first) < BLOCK and (piece := next(pieces, b"")):
        first += piece
    for magic, name in OTHERS.items():
        if first.startswith(magic):
            problem = f"is compressed by {name}, which is not supported"
            raise DatasetError(url, problem, hint="unpack it in the command, or pack it with gzip")
    pieces = chain([first], pieces)
    if not first.startswith(GZIP):
        yield from pieces
        return
    try:
        # zlib compares the CRC and the length of each gzip member.
        yield from inflated(lambda _: next(pieces, b""))
    except GzipError as error:
        problem = f"damaged gzip at byte {error.offset}: {error}"
        raise DatasetError(url, problem, hint=_HINT) from error
    except TooLargeError as error:
        problem = f"{error}, 200 times what was read of it or 1 GiB"
        raise DatasetError(url, problem, hint="unpack it in the command if you trust it") from error


def _text(name: bytes) -> str:
    return name.decode("utf-8", "replace")


ROLE = "stream"
"""The role in the keys of the window."""


@final
@dataclass(frozen=True)
class Piped:
    """Shards that commands write.

    Where there are as many shards as workers of all ranks, or more, each worker runs its own commands. Where
    there are fewer, several workers run one command, and each takes every so many samples of it.

    Args:
        commands: one a shard.
        timeout: how long to wait for the next byte of one, in seconds.
        handler: what is asked when a command or its archive fails; the rest of its shard is then left out.
    """

    commands: tuple[Command, ...]
    timeout: float
    handler: Handler | None

    def samples(self, seat: Seat, epoch: int, shuffling: Shuffling) -> Generator[dict[str, Any], None, None]:
        """Returns the samples that one worker reads in an epoch."""
        samples = self._in_order(seat, epoch, shuffling)
        if not shuffling.window:
            return samples
        return in_buffer(shuffling.window, samples, shuffling.draws(seat.number, epoch, ROLE)(0))

    def _in_order(
        self, seat: Seat, epoch: int, shuffling: Shuffling
    ) -> Generator[dict[str, Any], None, None]:
        shards = list(shuffling.of_shards(len(self.commands), epoch))
        # Those that share a shard: seats own, own + shards, ...; where there are as many shards, one alone.
        turn, own = divmod(seat.number, len(shards))
        sharing = len(range(own, seat.count, len(shards)))
        for shard in shards[own :: seat.count]:
            try:
                with closing(output(self.commands[shard], self.timeout)) as pieces:
                    samples = samples_of(pieces, f"pipe:{self.commands[shard].shown}")
                    yield from islice(samples, turn, None, sharing)
            except DatasetError as error:
                if not goes_on(self.handler, of_shard(error)):
                    return
