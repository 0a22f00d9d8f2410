"""Shards that are written by commands: running the commands without a shell, and reading their archives.

Commands run only if the user allows them. An archive is read sequentially, as strictly as a file.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import shlex
import signal
import subprocess
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Any

from samplerkit.compat.webdataset.handlers import continues, of_shard
from samplerkit.compat.webdataset.reading import SamplePipeline, WorkerSlot
from samplerkit.errors import ArgumentValueError, DatasetError
from samplerkit.samplers.shuffled import DistributedSampler
from samplerkit.storage.inflate import GzipError, TooLargeError, inflated
from samplerkit.storage.tar.format.flaws import Flaw, Reason
from samplerkit.storage.tar.format.headers import BLOCK, is_gzip, padded
from samplerkit.storage.tar.format.samples import RESERVED, is_meta, is_unsafe, split_name
from samplerkit.storage.tar.format.scan import Walk
from samplerkit.storage.urls import shown

PIPE = "pipe:"


@dataclass(frozen=True)
class Command:
    """A program and its arguments.

    Args:
        arguments: the program and its arguments.
        shown: the name in errors and samples: the program and its URLs, without possible secrets.
    """

    arguments: tuple[str, ...] = field(repr=False)
    shown: str


def parse_command(url: str) -> Command:
    """Parses a command.

    Args:
        url: `pipe:` and a command, with quotes and backslashes as in a shell. Variables of a shell are text
            that the program receives.

    Raises:
        ArgumentValueError: there is no command, it sets a variable, or an argument is an operator of a shell.

    Example:
        >>> parse_command("pipe:curl -s 'http://host/x.tar?token=5f3a'").shown
        'curl ... http://host/x.tar'
    """
    try:
        words = shlex.shlex(url.removeprefix(PIPE), posix=True, punctuation_chars="|<>")  # as in 2>/dev/null
        words.whitespace_split, words.commenters = True, ""
        arguments = tuple(words)
    except ValueError as error:
        raise ArgumentValueError("urls", f"has a command with wrong quotes ({error})") from None
    if not arguments or "=" in arguments[0].split("/", maxsplit=1)[0]:
        hint = "for variables write env NAME=VALUE PROGRAM"
        raise ArgumentValueError("urls", "has no program after pipe:", hint=hint)
    for operator in (each for each in arguments if each and not each.strip("|&;<>")):
        # A program would take it, and the next command, for names of files, after those that exist.
        raise ArgumentValueError("urls", "needs a shell for an operator", operator, hint="use a script")
    return Command(arguments, " ".join([arguments[0], *_shown(arguments[1:])]))


def _shown(arguments: Iterable[str]) -> list[str]:
    """Returns the arguments that may be logged, and dots for the others, which may be secrets."""
    result: list[str] = []
    for argument in arguments:
        if "://" in argument and argument.split("://", maxsplit=1)[0].isalnum():
            result.append(shown(argument))
        elif os.path.isfile(argument):  # noqa: PTH113  # Path raises if an argument is too long for a name
            result.append(argument)
        elif result[-1:] != ["..."]:
            result.append("...")
    return result


_BUFFER = 1 << 20

_LONGEST_POLL = 2**31 - 1
"""The longest timeout of `poll`, in milliseconds: 24 days."""


def output(command: Command, timeout: float) -> Generator[bytes, None, None]:
    """Runs a command and yields its output as it arrives; closing the generator ends the command.

    Args:
        command: the command to run.
        timeout: how long to wait for the next byte, and for the command to end, in seconds.

    Raises:
        DatasetError: the program does not exist, it fails, or it sends nothing for `timeout` seconds.
    """
    place, received = f"pipe:{command.shown}", 0

    def stalled(state: str) -> DatasetError:
        problem = f"the command {state} for {timeout:g} s, after {received} bytes"
        return DatasetError(place, problem, hint="use a longer command_timeout")

    try:
        process = subprocess.Popen(  # noqa: S603  # an argument list that the user allowed
            command.arguments,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,  # it is ended together with the processes that it started
        )
    except OSError as error:
        raise DatasetError(place, f"cannot be started ({error.strerror})", hint="check the PATH") from None
    pipe: Any = process.stdout
    try:
        with contextlib.suppress(OSError, AttributeError):
            fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _BUFFER)
        poll = select.poll()
        poll.register(pipe, select.POLLIN)
        while True:
            if not poll.poll(min(timeout * 1000, _LONGEST_POLL)):
                raise stalled("has sent nothing")
            piece = os.read(pipe.fileno(), _BUFFER)
            if not piece:
                break
            received += len(piece)
            yield piece
        try:
            code = process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise stalled("has closed its output and does not end") from None
        if code:
            how = f"exit status {code}" if code > 0 else f"ended by signal {-code}"
            problem = f"the command failed after {received} bytes ({how})"
            raise DatasetError(place, problem, hint="run it by hand to see why")
    finally:
        pipe.close()
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


_HINT = "look at what the command writes, or fetch or make the archive again"


def samples_of(pieces: Iterator[bytes], url: str) -> Iterator[dict[str, Any]]:
    """Yields the samples of an archive, in the order in which they were written.

    A sample is yielded when the next one begins; the last one, when the archive has ended properly.

    Args:
        pieces: the archive, plain or gzip, in pieces of any size; raises an error if the command fails.
        url: the name of the archive, for `__url__` and errors.

    Raises:
        DatasetError: the archive is truncated, damaged, or has entries that a `TarDataset` refuses.
    """
    sample: dict[str, Any] = {}
    key, seen = b"", set[bytes]()
    for begin, name, data in _files(_Stream(_unpacked(pieces, url)), url):
        parts = None if is_meta(name) else split_name(name)
        if parts is None:
            continue
        if not sample or parts[0] != key:
            if sample:
                yield sample
            key = parts[0]
            if key in seen:
                raise _flaw(url, begin, "duplicate key", f"{_decoded(key)!r} is in two places of the shard")
            seen.add(key)
            sample = {"__key__": key.decode("utf-8", "surrogateescape"), "__url__": url}
        field = parts[1].decode("utf-8", "surrogateescape").lower()
        if field in sample:
            reason: Reason = "reserved field" if field in RESERVED else "duplicate field"
            raise _flaw(url, begin, reason, f"{field!r} of {_decoded(key)!r}")
        sample[field] = data
    if sample:
        yield sample


def _files(stream: _Stream, url: str) -> Iterator[tuple[int, bytes, bytes]]:
    """Yields the offset of the header, the name and the data of each file of an archive."""
    walk, has_more = Walk(stream.read, stream.ahead, url), True
    members = walk.members
    while has_more:
        has_more = walk.step()
        for number, name in enumerate(members.names):
            begin, size = members.offsets[number] - BLOCK, members.sizes[number]
            if number in members.bad:
                reason, why = members.bad[number]
                raise _flaw(url, begin, reason, f"{_decoded(name)!r} is {why}")
            if is_unsafe(name):
                raise _flaw(url, begin, "unsafe name", repr(_decoded(name)))
            data = stream.read(size, begin + BLOCK)
            if len(data) < size or not stream.reaches(begin + BLOCK + padded(size) - 1):
                raise _flaw(url, begin, "truncated", f"the archive ends in {_decoded(name)!r}")
            yield begin, name, data
        for column in (members.names, members.offsets, members.sizes):
            del column[:]
        for flaw in members.flaws:
            raise _flaw(url, flaw.offset, flaw.reason, flaw.detail)


def _flaw(url: str, begin: int, reason: Reason, detail: str) -> DatasetError:
    return DatasetError(url, Flaw(url, begin, reason, detail).problem, hint=_HINT)


class _Stream:
    """The bytes of an archive as they arrive: read in ascending order, and freed after they are passed."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._piece = memoryview(b"")
        self._begin = 0

    def read(self, length: int, position: int) -> bytes:
        """Waits for `length` bytes; returns fewer only at the end of the stream."""
        # A header may claim any size: memory is allocated only for bytes that have arrived.
        views: list[memoryview] = []
        end = position + length
        while position < end and self.reaches(position):
            views.append(self._piece[position - self._begin : end - self._begin])
            position += len(views[-1])
        return b"".join(views)

    def ahead(self, length: int, position: int) -> bytes:
        """Waits for one block, and returns up to `length` of the bytes that have arrived with it."""
        if self.reaches(position) and position + BLOCK > self._begin + len(self._piece):
            block = self.read(BLOCK, position)
            self._piece = memoryview(block + self._piece[position + BLOCK - self._begin :])
            self._begin = position
        return bytes(self._piece[position - self._begin : position - self._begin + length])

    def reaches(self, position: int) -> bool:
        """Waits for the piece that holds a position; returns whether it exists."""
        while position >= self._begin + len(self._piece):
            self._begin += len(self._piece)
            self._piece = memoryview(next(self._pieces, b""))
            if not self._piece:
                return False
        return True


def _unpacked(pieces: Iterator[bytes], url: str) -> Iterator[bytes]:
    """Yields the uncompressed archive: gzip is decompressed, other compressions are refused."""
    first = b""
    while len(first) < BLOCK and (piece := next(pieces, b"")):
        first += piece
    pieces = chain([first], pieces)
    if not is_gzip(first, url):
        yield from pieces
        return
    try:
        # zlib checks the CRC and the length of each gzip member.
        yield from inflated(lambda _: next(pieces, b""))
    except GzipError as error:
        raise _flaw(url, error.offset, "damaged gzip", str(error)) from error
    except TooLargeError as error:
        problem = f"{error}, 200 times its compressed size or 1 GiB"
        raise DatasetError(url, problem, hint="unpack it in the command if you trust it") from error


def _decoded(name: bytes) -> str:
    return name.decode("utf-8", "replace")


@dataclass(frozen=True)
class Piped:
    """Shards that are written by commands.

    If there are at least as many shards as workers of all ranks, each worker runs its own commands. If there
    are fewer, several workers run the same command, and take its samples in turn.

    Args:
        commands: one command per shard.
        timeout: how long to wait for the next byte of a command, in seconds.
    """

    commands: tuple[Command, ...]
    timeout: float = field(repr=False)

    def __call__(self, pipeline: SamplePipeline, slot: WorkerSlot, epoch: int) -> Generator[Any, None, None]:
        """Yields the samples that one worker reads in an epoch."""
        sampler = DistributedSampler(1, 0, shuffle=pipeline.shuffles_shards, seed=pipeline.seed)
        shards = list(sampler.order(len(self.commands), epoch))
        # Slots own, own + shards, ... share a shard; if there are at least as many shards, a slot is alone.
        turn, own = divmod(slot.number, len(shards))
        sharing = len(range(own, slot.count, len(shards)))
        for shard in shards[own :: slot.count]:
            try:
                with contextlib.closing(output(self.commands[shard], self.timeout)) as pieces:
                    samples = samples_of(pieces, f"pipe:{self.commands[shard].shown}")
                    yield from islice(samples, turn, None, sharing)
            except DatasetError as error:
                if not continues(pipeline.handler, of_shard(error)):
                    return
