"""Files of lines: unpacked, where their lines are, whether one was changed, and what one of JSON becomes."""

from __future__ import annotations

import json
import os
import re
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from importlib import import_module
from itertools import chain
from typing import Any, BinaryIO, Final, Literal, final, get_args

import numpy as np

from samplerkit.errors import ArgumentValueError, DatasetError
from samplerkit.order import arguments
from samplerkit.order.draws import in_draws
from samplerkit.storage.files.packages import extra
from samplerkit.storage.inflate import GZIP, GzipError, TooLargeError, inflated, zstd_packing
from samplerkit.storage.opening import REWRITE, opened
from samplerkit.storage.threads import all_in_threads

LineKind = Literal["json", "text", "bytes"]
"""What a line becomes: its JSON value, its text, or its bytes."""

PackedBy = Literal["", "gzip", "zstd"]

# pzstd begins with a frame that is to be skipped.
_MAGIC: Final[dict[PackedBy, bytes]] = {
    "gzip": rb"\x1f\x8b",
    "zstd": rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18",
}
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_PIECE: Final = 1 << 20
_STRETCH: Final = 64 << 20
_LEAVE_OUT: Final = 'correct the line, or leave it out with bad_samples="skip"'
_LONG_NUMBER: Final = 19
"""Digits from which on an integer may be beyond 64 bits, of which orjson makes a float."""

Array = np.ndarray[Any, Any]
Found = tuple[Array, Array]
"""Of a piece of a file: where lines end in it, and the sum of the bytes before, between and behind these."""


@final
@dataclass(frozen=True, eq=False)
class Lines:
    r"""Where the lines of a file are; an empty one is no sample, and belongs to the line before it.

    Args:
        starts: where each begins in what the file unpacks to, and where the last one ends, shape
            (lines + 1,), int64.
        sums: of the bytes of each, modulo 256, shape (lines,), uint8.
        empty: of each empty line, how many others come before it, int64.
        packing: how the file is packed.

    Example:
        >>> lines = Lines.of([np.frombuffer(b'{}\r\n\n[1,\n 2]', np.uint8)])
        >>> lines.starts.tolist(), [lines.number(row) for row in range(3)]
        ([0, 5, 9, 12], [1, 3, 4])
    """

    starts: Array
    sums: Array
    empty: Array
    packing: PackedBy = ""

    @classmethod
    def of(cls, pieces: Iterable[Array], packing: PackedBy = "") -> Lines:
        """Finds the lines in what a file unpacks to, which comes in pieces."""
        size, found = 0, []
        for piece in pieces:
            found.append(_ends_in(piece, size))
            size += piece.size
        return cls.joined(found, size, packing)

    @classmethod
    def joined(cls, found: Sequence[Found], size: int, packing: PackedBy = "") -> Lines:
        """Joins what was found in the pieces of a file, whose bytes are so many."""
        ends, parts, rest = [np.zeros(1, np.int64)], [np.zeros(0, np.uint8)], np.zeros(1, np.uint8)
        for piece_ends, sums in found:
            # The line that begins behind the last end of a piece goes on in the next piece.
            sums[:1] += rest
            rest = sums[-1:]
            ends.append(piece_ends)
            parts.append(sums[:-1])
        if size > next(piece[-1] for piece in reversed(ends) if piece.size):
            ends.append(np.array([size]))
            parts.append(rest)
        starts, sums = np.concatenate(ends), np.concatenate(parts)
        # "\n", "\r\n", and a "\r" at the end of the file: no other lines of JSON are so short and add up so.
        short = np.flatnonzero(np.diff(starts) <= 2)
        length, adds_up = starts[short + 1] - starts[short], sums[short]
        is_empty = (length == 1) & ((adds_up == 10) | (adds_up == 13)) | (length == 2) & (adds_up == 23)
        empty = short[is_empty]
        if empty.size:
            kept = np.delete(np.arange(sums.size), empty)
            starts = np.append(starts[kept], size)
            sums = np.add.reduceat(sums, kept, dtype=np.uint8) if kept.size else sums[:0]
        return cls(starts, sums, empty - np.arange(empty.size), packing)

    def __len__(self) -> int:
        return self.sums.size

    def fits(self, size: int) -> bool:
        """Whether a file of so many bytes can have these lines."""
        is_whole = self.starts.size == self.sums.size + 1 and (self.packing or self.starts[-1] == size)
        return bool(is_whole) and self.packing in get_args(PackedBy)

    def number(self, row: int) -> int:
        """Returns the number of a line in its file, from 1 on, empty ones counted."""
        return row + 1 + int(np.searchsorted(self.empty, row, side="right"))

    def check(self) -> bytes:
        """Returns what changes with where lines are and what they add up to."""
        return zlib.crc32(self.sums.data, zlib.crc32(self.starts.data)).to_bytes(4)


def lines_of(path: str, size: int, most: int | None = None) -> Lines:
    """Goes through a file.

    Args:
        path: of a local file.
        size: its bytes.
        most: bytes that it may unpack to, as for `inflated`.

    Raises:
        DatasetError: it is packed, and damaged, or unpacks to more than it may; or it changes.
    """
    with opened(path) as file:
        if packing := _packing(file):
            return Lines.of((np.frombuffer(piece, np.uint8) for piece in unpacked(path, most)), packing)
        number, cores = -(-size // _STRETCH), len(os.sched_getaffinity(0))
        look = partial(_stretch, file.fileno(), path, size)
        found = [look(0)] if number == 1 else all_in_threads(look, number, cores, "samplerkit-lines")
        return Lines.joined([*chain.from_iterable(found)], size)


def unpacked(path: str, most: int | None = None) -> Iterator[bytes]:
    """Reads a file piece by piece, unpacked if gzip or zstd has packed it.

    Raises:
        DatasetError: it is packed, and damaged, or unpacks to more than it may.
    """
    with opened(path) as file:
        packing = _packing(file)
        if not packing:
            yield from iter(partial(file.read, _PIECE), b"")
            return
        how = zstd_packing(extra("zstandard", "jsonl")) if packing == "zstd" else GZIP
        try:
            yield from inflated(file.read, most, how)
        except TooLargeError as error:
            hint = "if you trust it, say max_unpacked_bytes"
            raise DatasetError(path, f"{error} (max_unpacked_bytes)", hint=hint) from error
        except GzipError as error:
            raise DatasetError(path, f"cannot be unpacked ({error})", hint=REWRITE) from error


@final
@dataclass(frozen=True, eq=False)
class LinesRead:
    """Lines that were read together.

    Args:
        lines: their bytes, with their ends.
        place_of: gives what an error calls each.
        exact: those with numbers so long that orjson might make floats of them.
    """

    lines: Sequence[bytes]
    place_of: Callable[[int], str]
    exact: Collection[int]

    @classmethod
    def of(
        cls, lines: Sequence[bytes], place_of: Callable[[int], str], sums: Array | None = None
    ) -> LinesRead:
        """Takes lines.

        Args:
            lines: none of them empty.
            place_of: gives what an error calls each.
            sums: of their bytes when their file was gone through, modulo 256; None if that is not known.

        Raises:
            DatasetError: one adds up to something else.
        """
        data = np.frombuffer(b"".join(lines), np.uint8)
        sizes = np.fromiter(map(len, lines), np.int64, len(lines))
        begins = np.cumsum(sizes) - sizes
        if sums is not None and begins.size:
            wrong = np.flatnonzero(np.add.reduceat(data, begins, dtype=np.uint8) != sums)
            if wrong.size:
                raise DatasetError(place_of(int(wrong[0])), "is not the line that it was", hint=REWRITE)
        long = np.searchsorted(begins, long_numbers(data), side="right") - 1
        return cls(lines, place_of, frozenset(long.tolist()))


@final
@dataclass(frozen=True)
class LineDecoder:
    """What a line becomes.

    Args:
        kind: its JSON value, its text or its bytes.
        columns: the fields to hand out of a JSON object, which each must have; None for all there are.
        decode: what the user makes of that; None for the same.
    """

    kind: LineKind = "json"
    columns: tuple[str, ...] | None = None
    decode: Callable[[Any], Any] | None = None

    @classmethod
    def of(cls, decode: Any, columns: tuple[str, ...] | None) -> LineDecoder:
        """Takes what a user says: a kind, or a function of a JSON value.

        Raises:
            ArgumentTypeError: neither.
            ArgumentValueError: no such kind, or columns of what is not JSON.
        """
        is_function = callable(decode)
        kind: LineKind = "json" if is_function else decode
        arguments.choice("decode", kind, get_args(LineKind))
        if columns is not None and kind != "json":
            raise ArgumentValueError("columns", f"are of JSON, and not of decode={kind!r}", list(columns))
        return cls(kind, columns, decode if is_function else None)

    def samples(self, read: LinesRead) -> list[Any]:
        """Makes a sample of each line, in its draw.

        Raises:
            DatasetError: as of `at`.
        """
        places, fast = range(len(read.lines)), _orjson()
        if fast is not None and self.kind == "json" and self.decode is None:
            try:  # without a draw, since nothing of the user's runs
                values = [*map(fast.loads, read.lines)]
                for number in read.exact:
                    values[number] = _value_of(read.lines[number], is_exact=True)
                return values if self.columns is None else [*map(self._chosen, values)]
            except ValueError:
                pass  # one by one it shows which line it is, and whether Python's own parser reads it
        return in_draws(partial(self.at, read), places, places, len(places))

    def at(self, read: LinesRead, number: int) -> Any:
        """Makes a sample of a line.

        Raises:
            DatasetError: it is no JSON, no UTF-8 or no object with these fields, or `decode` fails.
        """
        try:
            return self._sample(read.lines[number], is_exact=number in read.exact)
        except json.JSONDecodeError as error:
            problem = f"is no JSON ({error.msg}, column {error.colno})"
            raise DatasetError(read.place_of(number), problem, hint=_LEAVE_OUT) from error
        except Exception as error:
            problem = f"cannot be read ({type(error).__name__}: {error})"
            raise DatasetError(read.place_of(number), problem, hint=_LEAVE_OUT) from error

    def _sample(self, line: bytes, *, is_exact: bool) -> Any:
        if self.kind == "json":
            found = self._chosen(_value_of(line, is_exact=is_exact))
        else:
            # Of files that were joined, more than the first line may begin with it.
            content = line.rstrip(b"\r\n").removeprefix(_BYTE_ORDER_MARK)
            found = content if self.kind == "bytes" else content.decode()
        return found if self.decode is None else self.decode(found)

    def _chosen(self, value: Any) -> Any:
        if self.columns is None:
            return value
        if not isinstance(value, dict):
            raise ValueError(  # noqa: TRY004  # of the data, not of an argument
                f"no object with fields, but {type(value).__name__}"
            )
        missing = next((name for name in self.columns if name not in value), None)
        if missing is not None:
            raise ValueError(f"no field {missing!r}, but {sorted(value)}")
        return {name: value[name] for name in self.columns}


def long_numbers(data: Array) -> Array:
    """Finds integers that may be beyond 64 bits: orjson makes floats of these.

    Args:
        data: bytes of lines, shape (n,), uint8.

    Returns:
        Places within runs of 19 digits.

    Example:
        >>> long_numbers(np.frombuffer(b"[1234567890123456789, 123456789012345678]", np.uint8)).tolist()
        [1]
    """
    # Such a run has four digits at every fourth byte.
    some = _is_digit(data[::4])
    if not (some[:-3] & some[1:-2] & some[2:-1] & some[3:]).any():
        return np.zeros(0, np.int64)
    is_run = _is_digit(data)
    for more in (1, 2, 4, 8, _LONG_NUMBER - 16):
        is_run = is_run[:-more] & is_run[more:]
    return np.flatnonzero(is_run)


def _is_digit(data: Array) -> Array:
    return data - np.uint8(48) < 10


@cache
def _orjson() -> Any:
    try:
        return import_module("orjson")
    except ImportError:
        return None


def _value_of(line: bytes, *, is_exact: bool) -> Any:
    fast = None if is_exact else _orjson()
    if fast is not None:
        try:  # no `suppress`, which takes as long as a short line
            return fast.loads(line)
        except ValueError:
            pass  # what orjson refuses, as NaN and half of a surrogate pair, Python's own parser may read
    return json.loads(line.decode("utf-8-sig"))


def _packing(file: BinaryIO) -> PackedBy:
    start = os.pread(file.fileno(), 4, 0)
    return next((packing for packing, magic in _MAGIC.items() if re.match(magic, start)), "")


def _stretch(descriptor: int, path: str, size: int, number: int) -> list[Found]:
    """Finds the ends of lines in a part of a file; a file that is mapped would be a signal if it shrinks."""
    found, buffer = [], np.empty(_PIECE, np.uint8)
    for at in range(number * _STRETCH, min(size, (number + 1) * _STRETCH), _PIECE):
        piece = buffer[: min(_PIECE, size - at)]
        if os.preadv(descriptor, [piece.data], at) != piece.size:
            raise DatasetError(path, "was cut while it was read", hint=REWRITE)
        found.append(_ends_in(piece, at))
    return found


def _ends_in(piece: Array, at: int) -> Found:
    ends = np.flatnonzero(piece == ord("\n")) + 1
    sums = np.zeros(ends.size + 1, np.uint8)
    begins = np.concatenate([np.zeros(1, np.int64), ends[: np.searchsorted(ends, piece.size)]])
    sums[: begins.size] = np.add.reduceat(piece, begins, dtype=np.uint8)
    return ends + at, sums
