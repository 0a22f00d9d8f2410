"""Lines of JSON: finding them in a file, detecting changed ones, and decoding them."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Literal, get_args

import numpy as np
from pydantic_core import from_json

from samplerkit.errors import ArgumentValueError, DatasetError
from samplerkit.order import arguments
from samplerkit.order.draws import in_draws
from samplerkit.storage.files.content import entries_of
from samplerkit.storage.inflate import PackedBy, packing_of, unpacked
from samplerkit.storage.open_files import REWRITE, open_regular

LineKind = Literal["json", "text", "bytes"]
"""How a line is decoded: as its JSON value, its text, or its bytes."""

_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_LEAVE_OUT: Final = 'correct the line, or leave it out with bad_samples="skip"'

Array = np.ndarray[Any, Any]

PlaceOf = Callable[[int], str]
"""Returns the name of a line in error messages."""

LineEnds = tuple[Array, Array, int]
"""The offsets of the line ends in a piece of a file, the sums of the bytes of its lines, and its end."""


@dataclass(frozen=True, eq=False)
class Lines:
    r"""The offsets of the lines of a file; an empty line is not a sample and belongs to the line before it.

    Args:
        starts: the offset of each line in the uncompressed file, and the end of the last one, shape
            (lines + 1,), int64.
        sums: the sum of the bytes of each line, modulo 256, shape (lines,), uint8.
        empty: for each empty line, the number of non-empty lines before it, int64.
        packing: the file's compression.

    Example:
        >>> lines = Lines.of(line_ends([b'{}\r\n\n[1,\n 2]']))
        >>> lines.starts.tolist(), [lines.number(row) for row in range(3)]
        ([0, 5, 9, 12], [1, 3, 4])
    """

    starts: Array
    sums: Array
    empty: Array
    packing: PackedBy = ""

    @classmethod
    def of(cls, pieces: Iterable[LineEnds], packing: PackedBy = "") -> Lines:
        """Joins the lines found in all pieces of a file, in their order."""
        size, ends, totals, rest = 0, [np.zeros(1, np.int64)], [np.zeros(1, np.uint8)], np.zeros(1, np.uint8)
        for piece_ends, sums, end in pieces:
            size = end
            # Running totals, since a line may begin in one piece and end in another.
            running = np.cumsum(sums, dtype=np.uint8) + rest
            ends.append(piece_ends)
            totals.append(running[: piece_ends.size])
            rest = running[-1:]
        starts, sums = np.concatenate(ends), np.concatenate(totals)
        if size > starts[-1]:  # the last line has no end
            starts, sums = np.append(starts, size), np.append(sums, rest)
        # "\n", "\r\n", and a "\r" at the end of the file: no other lines of JSON have these lengths and sums.
        short = np.flatnonzero(np.diff(starts) <= 2)
        length, total = starts[short + 1] - starts[short], sums[short + 1] - sums[short]
        is_empty = (length == 1) & ((total == 10) | (total == 13)) | (length == 2) & (total == 23)
        empty = short[is_empty]
        if empty.size:
            starts, sums = np.delete(starts, empty), np.delete(sums, empty)
        return cls(starts, np.diff(sums), empty - np.arange(empty.size), packing)

    def __len__(self) -> int:
        return self.sums.size

    def fits(self, size: int) -> bool:
        """Whether a file of `size` bytes can have these lines."""
        is_complete = self.starts.size == self.sums.size + 1 and (self.packing or self.starts[-1] == size)
        return bool(is_complete) and self.packing in get_args(PackedBy)

    def number(self, row: int) -> int:
        """Returns the number of a line in its file, counted from 1 and including empty lines."""
        return row + 1 + int(np.searchsorted(self.empty, row, side="right"))

    def check(self) -> bytes:
        """Returns a checksum of the offsets and byte sums of the lines."""
        return zlib.crc32(self.sums.data, zlib.crc32(self.starts.data)).to_bytes(4)


def line_ends(pieces: Iterable[bytes]) -> Iterator[LineEnds]:
    """Finds the line ends in consecutive pieces of a file, none of them empty."""
    at = 0
    for piece in pieces:
        data = np.frombuffer(piece, np.uint8)
        ends = np.flatnonzero(data == ord("\n")) + 1
        sums = np.add.reduceat(data, np.append(0, ends[: np.searchsorted(ends, data.size)]), dtype=np.uint8)
        yield ends + at, sums, at + data.size
        at += data.size


def lines_of(path: str, max_bytes: int | None = None) -> Lines:
    """Reads a file and finds its lines.

    Args:
        path: the path of a local file.
        max_bytes: the largest uncompressed size in bytes, as for `inflated`.

    Raises:
        DatasetError: a compressed file is damaged or exceeds `max_bytes`.
    """
    with open_regular(path) as file:
        packing = packing_of(file)
    return Lines.of(line_ends(unpacked(path, max_bytes)), packing)


def require_sums(lines: Sequence[bytes], sums: Array, place_of: PlaceOf) -> None:
    """Checks that lines are those that were found; none of them is empty.

    Args:
        lines: their bytes, with the line ends.
        sums: the sums of their bytes, modulo 256, when they were found.
        place_of: returns the name of a line in error messages.

    Raises:
        DatasetError: the bytes of a line have another sum.
    """
    if not lines:
        return
    sizes = np.fromiter(map(len, lines), np.int64, len(lines))
    data = np.frombuffer(b"".join(lines), np.uint8)
    wrong = np.flatnonzero(np.add.reduceat(data, np.cumsum(sizes) - sizes, dtype=np.uint8) != sums)
    if wrong.size:
        raise DatasetError(place_of(int(wrong[0])), "was changed since it was indexed", hint=REWRITE)


@dataclass(frozen=True)
class LineDecoder:
    """Decodes lines into samples.

    Args:
        decode: what a sample is: the JSON value, the text or the bytes of a line; or the user's function of
            the JSON value.
        columns: the fields to select from each JSON object, which it must have; None for all.

    Raises:
        ArgumentTypeError: `decode` is none of these.
        ArgumentValueError: the kind is unknown, or columns are given for another kind than JSON.
    """

    decode: LineKind | Callable[[Any], Any] = "json"
    columns: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if not callable(self.decode):
            arguments.choice("decode", self.decode, get_args(LineKind))
            if self.columns is not None and self.decode != "json":
                problem = f"are for JSON, not for decode={self.decode!r}"
                raise ArgumentValueError("columns", problem, list(self.columns))

    def samples(self, lines: Sequence[bytes], place_of: PlaceOf) -> list[Any]:
        """Decodes all lines, each in its own draw.

        Raises:
            DatasetError: as in `at`.
        """
        if self.decode == "json":
            try:  # without a draw, since no function of the user's runs
                values = [*map(from_json, lines)]
                return values if self.columns is None else [*map(self._select, values)]
            except (ValueError, TypeError):
                pass  # decoding one at a time finds the line, and whether Python's own parser reads it
        places = range(len(lines))
        return in_draws(partial(self.at, lines, place_of), places, places, len(lines))

    def at(self, lines: Sequence[bytes], place_of: PlaceOf, number: int) -> Any:
        """Decodes one of some lines.

        Raises:
            DatasetError: the line is not JSON, not UTF-8 or not an object with these fields, or `decode`
                fails.
        """
        try:
            value = self._value(lines[number])
            return self.decode(value) if callable(self.decode) else value
        except json.JSONDecodeError as error:
            problem = f"is not JSON ({error.msg}, column {error.colno})"
            raise DatasetError(place_of(number), problem, hint=_LEAVE_OUT) from error
        except Exception as error:
            problem = f"cannot be read ({type(error).__name__}: {error})"
            raise DatasetError(place_of(number), problem, hint=_LEAVE_OUT) from error

    def _value(self, line: bytes) -> Any:
        if not callable(self.decode) and self.decode != "json":
            # In concatenated files, other lines than the first may also begin with a byte order mark.
            content = line.rstrip(b"\r\n").removeprefix(_BYTE_ORDER_MARK)
            return content if self.decode == "bytes" else content.decode()
        try:
            value = from_json(line)
        except ValueError:  # Python's own parser may read what this one refuses, such as lone surrogates
            value = json.loads(line.decode("utf-8-sig"))
        return self._select(value)

    def _select(self, value: Any) -> Any:
        return value if self.columns is None else entries_of(value, self.columns)
