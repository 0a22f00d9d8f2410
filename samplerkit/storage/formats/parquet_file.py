"""One Parquet file: its footer, read once and known again, and its row groups, each read in one go."""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

from samplerkit.errors import DatasetError
from samplerkit.storage.formats.extras import extra
from samplerkit.storage.formats.stored import ANEW, ByteSpan, Stored, guarded
from samplerkit.storage.formats.thrift import Compact
from samplerkit.storage.remote.storage import RemoteStorage

_GUESS = 1 << 16
"""The end of a file that is read at once: most footers fit."""

_GAP = 1 << 20
"""Columns that lie closer are read as one part."""

_SLACK = 100
"""Old writers told the size of a dictionary without its header: so much more is read."""


@final
@dataclass(frozen=True)
class ParquetFile:
    """A Parquet file as it was when it was looked at; the footer itself is read again in each process.

    Args:
        stored: the file.
        footer: where its footer lies: offset and length.
        digest: of the footer.
        rows: of each row group.
    """

    stored: Stored
    footer: ByteSpan
    digest: bytes
    rows: tuple[int, ...]

    @classmethod
    def of(cls, path: str, storage: RemoteStorage | None) -> tuple[ParquetFile, Footer]:
        """Looks at a file.

        Returns:
            The file, and its footer.

        Raises:
            DatasetError: it cannot be read, or is no Parquet file.
        """
        stored = Stored.of(path, storage)
        guess = min(stored.size, _GUESS)
        (end,) = stored.read([(stored.size - guess, guess)], storage)
        if len(end) < 12 or end[-4:] not in {b"PAR1", b"PARE"}:
            raise DatasetError(
                stored.name, "is no Parquet file, or was cut: it lacks the end mark", mend=ANEW
            )
        if end[-4:] == b"PARE":
            mend = "decrypt it; what is read here is plain"
            raise DatasetError(stored.name, "has an encrypted footer", mend=mend)
        length = int.from_bytes(end[-8:-4], "little")
        footer = (stored.size - 8 - length, length)
        data = end[-8 - length : -8] if length + 8 <= guess else stored.read([footer], storage)[0]
        known = Footer.of(stored, data)
        if sum(known.rows) != known.metadata.num_rows or any(count < 0 for count in known.rows):
            problem = f"says {known.metadata.num_rows} rows, and its row groups have others"
            raise DatasetError(stored.name, problem, list(known.rows), mend=ANEW)
        return cls(stored, footer, _digest(data), known.rows), known

    def read_footer(self, storage: RemoteStorage | None) -> Footer:
        """Reads the footer again.

        Raises:
            DatasetError: it is another one by now.
        """
        (data,) = self.stored.read([self.footer], storage)
        if _digest(data) != self.digest:
            raise DatasetError(self.stored.name, "has another footer than before", mend=ANEW)
        found = Footer.of(self.stored, data)
        if found.rows != self.rows:
            problem = "has other row groups than were told"
            raise DatasetError(self.stored.name, problem, list(found.rows)[:9], mend=ANEW)
        return found

    def read(self, group: int, columns: Sequence[str], footer: Footer, storage: RemoteStorage | None) -> Any:
        """Reads a row group into a table, in one go where its columns lie together.

        Args:
            group: its number.
            columns: the columns, whole ones with all that is in them.
            footer: of the file.
            storage: reads what lies elsewhere.

        Raises:
            DatasetError: it cannot be read, or is not what the footer says.
        """
        place = f"{self.stored.name}, row group {group}"
        spans = _spans(self.stored.name, self.footer[0], footer.places[group], columns)
        pieces = _Pieces(self.stored, spans, self.stored.read(spans, storage))

        def parsed() -> Any:
            source = extra("pyarrow", "parquet").PythonFile(pieces, mode="r")
            parquet = extra("pyarrow.parquet", "parquet")
            opened = parquet.ParquetFile(
                source, metadata=footer.metadata, page_checksum_verification=True, pre_buffer=False
            )
            table = opened.read_row_group(group, columns=list(columns), use_threads=False)
            table.validate()
            return table

        table = guarded(place, "read", parsed)
        if table.num_rows != self.rows[group]:
            problem = f"has {table.num_rows} rows, and its footer says {self.rows[group]}"
            raise DatasetError(place, problem, mend=ANEW)
        return table


@final
class _Pieces:
    """Some parts of a file, in memory, read as if they were the whole file.

    Args:
        stored: the file.
        spans: the parts, in order.
        data: of each part.
    """

    closed = False

    def __init__(self, stored: Stored, spans: Sequence[ByteSpan], data: Sequence[bytes]) -> None:
        self._stored = stored
        self._starts = [offset for offset, _ in spans]
        self._data = data
        self._at = 0

    def read(self, length: int = -1) -> bytes:
        """Reads from where it stands."""
        number = bisect_right(self._starts, self._at) - 1
        start = self._at - self._starts[number] if number >= 0 else 0
        if length < 0 or number < 0 or start + length > len(self._data[number]):
            problem = f"says that data lies at {self._at}, where there is none of its columns"
            raise DatasetError(self._stored.name, problem, mend=ANEW)
        self._at += length
        return self._data[number][start : start + length]

    def seek(self, offset: int, whence: int = 0) -> int:
        """Goes to a place."""
        self._at = offset + (0, self._at, self._stored.size)[whence]
        return self._at

    def tell(self) -> int:
        """Tells where it stands."""
        return self._at

    def readable(self) -> bool:
        """Tells that it can be read."""
        return True

    def seekable(self) -> bool:
        """Tells that it can go anywhere."""
        return True

    def close(self) -> None:
        """Does nothing: nothing is open."""


@final
@dataclass(frozen=True, eq=False)
class Footer:
    """What a footer says.

    Args:
        metadata: as pyarrow has it.
        rows: of each row group.
        places: of each row group, where each column lies: its path, its first byte, and where it ends.
    """

    metadata: Any
    rows: tuple[int, ...]
    places: tuple[tuple[tuple[str, int, int], ...], ...]

    @classmethod
    def of(cls, stored: Stored, data: bytes) -> Footer:
        """Understands a footer.

        Columns are looked up in our own reading of it: pyarrow ends the process where it finds one that
        cannot be, unless it is reading its data.

        Raises:
            DatasetError: it makes no sense.
        """
        parquet, pa = extra("pyarrow.parquet", "parquet"), extra("pyarrow", "parquet")
        # A file of nothing but its footer: pyarrow looks for it at the end.
        alone = b"".join((b"PAR1", data, len(data).to_bytes(4, "little"), b"PAR1"))
        metadata = guarded(stored.name, "read", lambda: parquet.read_metadata(pa.BufferReader(alone)))
        groups = guarded(stored.name, "read", lambda: _groups(Compact(data).struct()))
        return cls(metadata, tuple(rows for rows, _ in groups), tuple(places for _, places in groups))


def _groups(footer: dict[int, Any]) -> list[tuple[int, tuple[tuple[str, int, int], ...]]]:
    """Gives the rows of each row group, and where its columns lie.

    Raises:
        ValueError: a row group lacks a column, or one is encrypted.
        LookupError: something else is missing.
    """
    leaves = sum(not element.get(5) for element in footer[2][1:])
    found = []
    for group in footer.get(4, ()):
        if len(group[1]) != leaves:
            raise ValueError(f"a row group of {len(group[1])} columns, where the schema has {leaves}")
        if any(column.keys() & {8, 9} for column in group[1]):
            raise ValueError("a column that is encrypted")
        found.append((group[3], tuple(_place(column[3]) for column in group[1])))
    return found


def _place(column: dict[int, Any]) -> tuple[str, int, int]:
    # Data pages, and the dictionary before them where there is one.
    start = min(place for place in (column[9], column.get(11)) if place)
    return b".".join(column[3]).decode(), start, start + column[7]


def _spans(
    name: str, end_of_data: int, places: Sequence[tuple[str, int, int]], columns: Sequence[str]
) -> list[ByteSpan]:
    """Gives what is to be read of a row group: columns that lie close to one another as one part.

    Raises:
        DatasetError: a column lies outside of the data.
    """
    found = []
    for path, start, end in places:
        # The name of a column may hold dots.
        if not any(path == column or path.startswith(f"{column}.") for column in columns):
            continue
        if not 4 <= start <= end <= end_of_data:
            raise DatasetError(name, f"says that column {path!r} lies outside of it", (start, end), mend=ANEW)
        found.append((start, min(end + _SLACK, end_of_data)))
    joined: list[list[int]] = []
    for start, end in sorted(found):
        if joined and start - joined[-1][1] <= _GAP:
            joined[-1][1] = max(joined[-1][1], end)
        else:
            joined.append([start, end])
    return [(start, end - start) for start, end in joined]


def _digest(footer: bytes) -> bytes:
    return hashlib.blake2b(footer, digest_size=16).digest()
