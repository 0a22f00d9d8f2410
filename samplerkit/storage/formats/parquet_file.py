"""One Parquet file: its footer, its row groups, each read in one go, and which of their rows are wanted."""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, final

import numpy as np

from samplerkit.errors import ArgumentTypeError, ArgumentValueError, DatasetError
from samplerkit.order.typing import Ids
from samplerkit.storage.files.content import require_columns
from samplerkit.storage.files.packages import extra, guarded
from samplerkit.storage.files.stored import ByteSpan, Stored
from samplerkit.storage.missing_file import REWRITE
from samplerkit.storage.remote.attempt import NEAR
from samplerkit.storage.remote.storage import RemoteStorage
from samplerkit.storage.urls import shown

Metadata = Any
"""A footer as pyarrow has it: `pyarrow.parquet.FileMetaData`."""

_GUESS = 1 << 16
"""The end of a file that is read at once: most footers fit."""

_NO_ROWS: Final = np.zeros(0, dtype=np.int64)


@final
@dataclass(frozen=True, eq=False)
class ParquetFile:
    """A Parquet file as it was when it was looked at; the footer itself is read again in each process.

    Args:
        stored: the file.
        footer: where its footer is: offset and length.
        digest: of the footer.
        rows: of each row group.
        columns: names and types of those that are read; empty where a catalogue knows them.
        kept: of each row group the rows that are samples, None for all; empty where all are.
        keys: of its folders, which are columns of one value each.
    """

    stored: Stored
    footer: ByteSpan
    digest: bytes
    rows: tuple[int, ...]
    columns: tuple[tuple[str, str], ...] = ()
    kept: tuple[Ids | None, ...] = ()
    keys: Keys = ()

    @classmethod
    def of(cls, path: str, storage: RemoteStorage | None) -> tuple[ParquetFile, Metadata]:
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
            problem = "is no Parquet file, or was cut: it lacks the end mark"
            raise DatasetError(stored.name, problem, hint=REWRITE)
        if end[-4:] == b"PARE":
            hint = "decrypt it; what is read here is plain"
            raise DatasetError(stored.name, "has an encrypted footer", hint=hint)
        length = int.from_bytes(end[-8:-4], "little")
        footer = (stored.size - 8 - length, length)
        data = end[-8 - length : -8] if length + 8 <= guess else stored.read([footer], storage)[0]
        metadata = _parsed(stored.name, data)
        return cls(stored, footer, _digest(data), _rows(metadata), _columns(stored.name, metadata)), metadata

    @property
    def sizes(self) -> Sequence[int]:
        """How many samples each row group has."""
        if not self.kept:
            return self.rows
        return [n if kept is None else kept.size for n, kept in zip(self.rows, self.kept, strict=True)]

    def chosen(
        self,
        metadata: Metadata,
        names: Sequence[str] | None,
        condition: RowFilter | None,
        storage: RemoteStorage | None,
    ) -> ParquetFile:
        """Gives the file of which some columns are read, and the rows that meet a condition.

        Raises:
            DatasetError: it lacks a column, or cannot be read.
        """
        keys = tuple((name, str(value.type)) for name, value in self.keys)
        columns = (*(self.columns or _columns(self.stored.name, metadata)), *keys)
        there, types = [name for name, _ in columns], dict(columns)
        wanted = tuple(there) if names is None else names
        require_columns(self.stored.name, there, (*wanted, *(condition.names if condition else ())))
        if not wanted:
            raise DatasetError(self.stored.name, "has no columns")
        kept = () if condition is None else self._kept(metadata, condition, storage)
        return replace(self, columns=tuple((name, types[name]) for name in wanted), kept=kept)

    def _kept(
        self, metadata: Metadata, condition: RowFilter, storage: RemoteStorage | None
    ) -> tuple[Ids | None, ...]:
        return tuple(
            self._wanted_rows(group, metadata, condition, storage) if number else _NO_ROWS
            for group, number in enumerate(self.rows)
        )

    def _wanted_rows(
        self, group: int, metadata: Metadata, condition: RowFilter, storage: RemoteStorage | None
    ) -> Ids | None:
        self._require_columns(group, condition.names, metadata)
        keys = {name: (value.as_py(), value.as_py()) for name, value in self.keys if value.is_valid}
        if not condition.may_hold(ranges_of(metadata, group, condition.names) | keys):
            return _NO_ROWS
        table = self.read(group, condition.names, metadata, storage)
        place, hint = f"{self.stored.name}, row group {group}", "compare a column with values of its own type"
        rows = guarded(place, "filtered", partial(condition.rows, table), hint)
        return None if rows.size == self.rows[group] else rows

    def _require_columns(self, group: int, columns: Sequence[str], metadata: Metadata) -> None:
        """Requires that columns of a row group are where they can be: then pyarrow may look at them.

        Where they are damaged or encrypted, `metadata.row_group(group).column(0)` ends the process.

        Raises:
            DatasetError: they are not.
        """
        reader = _Reader(self.stored.size, metadata)
        for column in self._own(columns):  # one at a time: it fails where it asks for no bytes
            self._spans(reader, group, [column])

    def read_footer(self, storage: RemoteStorage | None) -> Metadata:
        """Reads the footer again.

        Raises:
            DatasetError: it is another one by now.
        """
        (data,) = self.stored.read([self.footer], storage)
        if _digest(data) != self.digest:
            raise DatasetError(self.stored.name, "has another footer than before", hint=REWRITE)
        metadata = _parsed(self.stored.name, data)
        if _rows(metadata) != self.rows:
            problem = "has other row groups than before"
            raise DatasetError(self.stored.name, problem, list(_rows(metadata))[:9], hint=REWRITE)
        return metadata

    def read(
        self, group: int, columns: Sequence[str], metadata: Metadata, storage: RemoteStorage | None
    ) -> Any:
        """Reads a row group into a table, in one go where its columns are together.

        Args:
            group: its number.
            columns: the columns, whole ones with all that is in them.
            metadata: the footer of the file.
            storage: reads remote files.

        Raises:
            DatasetError: it cannot be read, or is not what the footer says.
        """
        place, own = f"{self.stored.name}, row group {group}", self._own(columns)
        reader = _Reader(self.stored.size, metadata)
        spans = self._spans(reader, group, own)
        pieces = self.stored.read(spans, storage)
        starts = [start for start, _ in spans]

        def part(offset: int, length: int) -> bytes:
            number = bisect_right(starts, offset) - 1
            start = offset - starts[number]
            if number >= 0 and start + length <= len(pieces[number]):
                return pieces[number][start : start + length]
            return self.stored.read([(offset, length)], storage)[0]

        table = guarded(place, "read", lambda: reader.table(part, group, own))
        require_columns(self.stored.name, table.column_names, own)
        if table.num_rows != self.rows[group]:
            problem = f"has {table.num_rows} rows, and its footer says {self.rows[group]}"
            raise DatasetError(place, problem, hint=REWRITE)
        if len(own) == len(columns):
            return table
        for name, value in self.keys:
            table = table.append_column(name, extra("pyarrow", "parquet").repeat(value, table.num_rows))
        return table.select(list(columns))

    def _own(self, columns: Sequence[str]) -> list[str]:
        """Returns the columns that are in the file itself."""
        keys = {name for name, _ in self.keys}
        return [name for name in columns if name not in keys]

    def _spans(self, reader: _Reader, group: int, columns: Sequence[str]) -> list[ByteSpan]:
        """Finds out which parts of the file a row group is read from, without reading them.

        The metadata of columns would say so, but to ask for it may end the process, and while pyarrow reads,
        the same is an exception. It asks for the bytes of all columns before it decodes the first: given
        zeros, it fails then, and has said what it reads. Should it ask for others later, these are read too.

        Returns:
            The parts, in order; those close to one another as one.
        """
        asked: list[ByteSpan] = []

        def noted(offset: int, length: int) -> bytes:
            self.stored.require_part(offset, length)
            asked.append((offset, offset + length))
            return bytes(length)

        def planned() -> None:
            try:
                reader.table(noted, group, columns)
            except Exception:
                if not asked:
                    raise

        guarded(f"{self.stored.name}, row group {group}", "read", planned)
        joined: list[ByteSpan] = []
        for start, end in sorted(asked):
            if joined and start - joined[-1][1] <= NEAR:
                joined[-1] = joined[-1][0], max(joined[-1][1], end)
            else:
                joined.append((start, end))
        return [(start, end - start) for start, end in joined]


@final
class _Reader:
    """Reads row groups by pyarrow.

    Args:
        size: of the file, in bytes.
        metadata: its footer.
    """

    def __init__(self, size: int, metadata: Metadata) -> None:
        self._parts = _Parts(size)
        self._opened = extra("pyarrow.parquet", "parquet").ParquetFile(
            extra("pyarrow", "parquet").PythonFile(self._parts, mode="r"),
            metadata=metadata,
            page_checksum_verification=True,
            pre_buffer=False,
        )

    def table(self, part: Callable[[int, int], bytes], group: int, columns: Sequence[str]) -> Any:
        """Reads columns of a row group into a table.

        Args:
            part: gives the bytes of the file at an offset, so many.
            group: its number.
            columns: by their names.
        """
        self._parts.part = part
        table = self._opened.read_row_group(group, columns=list(columns), use_threads=False)
        table.validate()
        return table


@final
class _Parts:
    """What pyarrow reads from as from a file.

    It must not refer to what reads it: pyarrow holds it where no collection of garbage looks, so that both,
    and the bytes that were read, would stay for ever.
    """

    closed = False
    part: Callable[[int, int], bytes]

    def __init__(self, size: int) -> None:
        self._size = size
        self._at = 0

    def read(self, length: int) -> bytes:
        """Reads from its position."""
        data = self.part(self._at, length)
        self._at += len(data)
        return data

    def seek(self, offset: int, whence: int = 0) -> int:
        """Goes to a place."""
        self._at = offset + (0, self._at, self._size)[whence]
        return self._at

    def tell(self) -> int:
        """Returns its position."""
        return self._at

    def readable(self) -> bool:
        """Returns that it can be read."""
        return True

    def seekable(self) -> bool:
        """Returns that it can go anywhere."""
        return True

    def close(self) -> None:
        """Does nothing: nothing is open."""


def _parsed(name: str, footer: bytes) -> Metadata:
    # A file of nothing but its footer: pyarrow looks for it at the end.
    alone = b"".join((b"PAR1", footer, len(footer).to_bytes(4, "little"), b"PAR1"))
    read, pa = extra("pyarrow.parquet", "parquet").read_metadata, extra("pyarrow", "parquet")
    metadata = guarded(name, "read", lambda: read(pa.BufferReader(alone)))
    rows = _rows(metadata)
    if min(rows, default=0) < 0:
        raise DatasetError(name, "says that a row group has rows below zero", list(rows), hint=REWRITE)
    return metadata


def _rows(metadata: Metadata) -> tuple[int, ...]:
    return tuple(metadata.row_group(number).num_rows for number in range(metadata.num_row_groups))


def _columns(name: str, metadata: Metadata) -> tuple[tuple[str, str], ...]:
    schema = guarded(name, "read", metadata.schema.to_arrow_schema)
    return tuple((field.name, str(field.type)) for field in schema)


def _digest(footer: bytes) -> bytes:
    return hashlib.blake2b(footer, digest_size=16).digest()


Condition = tuple[str, str, Any]
Bounds = tuple[Any, Any]

_COMPARISONS: Final = ("==", "=", "!=", "<", "<=", ">", ">=", "in", "not in")
_NUMBER: Final = "\0number of the row"
"""A column that is added to a table while it is filtered."""

_MAY: dict[str, Callable[[Bounds, Any], bool]] = {
    "==": lambda there, value: there[0] <= value <= there[1],
    "=": lambda there, value: there[0] <= value <= there[1],
    "<": lambda there, value: there[0] < value,
    "<=": lambda there, value: there[0] <= value,
    ">": lambda there, value: there[1] > value,
    ">=": lambda there, value: there[1] >= value,
    "in": lambda there, values: any(there[0] <= value <= there[1] for value in values),
}
"""Whether a value between the least and the most can meet a condition; of other words nothing is known.

pyarrow.dataset would say so too, but damaged statistics end the process there.
"""


@final
@dataclass(frozen=True)
class RowFilter:
    """Conditions on the values of a row, as in pyarrow: a null meets `not in`, and no other.

    Args:
        ways: lists of conditions; a row is wanted that meets all of one list.

    Example:
        >>> RowFilter.of([("year", ">=", 2020), ("lang", "in", ["en", "de"])]).names
        ('year', 'lang')
    """

    ways: tuple[tuple[Condition, ...], ...]

    @classmethod
    def of(cls, filters: Any) -> RowFilter:
        """Takes what a user gives: a list of conditions, or a list of such lists.

        Raises:
            ArgumentTypeError: it is something else.
            ArgumentValueError: a comparison is not known.
        """
        if not isinstance(filters, list | tuple) or not filters:
            hint = "as in [('year', '>=', 2020), ('lang', 'in', ['en', 'de'])]"
            raise ArgumentTypeError("filters", "must be a list of conditions", filters, hint=hint)
        is_one = all(_is_condition(entry) for entry in filters)
        return cls(tuple(tuple(map(_checked, way)) for way in ([filters] if is_one else filters)))

    @property
    def names(self) -> tuple[str, ...]:
        """The columns that are looked at."""
        return tuple(dict.fromkeys(name for way in self.ways for name, _, _ in way))

    def may_hold(self, ranges: Mapping[str, Bounds]) -> bool:
        """Returns whether a row group can hold a wanted row.

        Args:
            ranges: the least and the most of the columns whose statistics say so.
        """
        return any(all(_may(condition, ranges) for condition in way) for way in self.ways)

    def rows(self, table: Any) -> Ids:
        """Gives the wanted rows of a table, by its values.

        Raises:
            Exception: as pyarrow raises where a value cannot be compared.
        """
        numbers = extra("pyarrow", "parquet").array(np.arange(table.num_rows))
        wanted = table.append_column(_NUMBER, numbers).filter(self._expression())
        found: Ids = wanted.column(_NUMBER).to_numpy()
        return found

    def _expression(self) -> Any:
        return extra("pyarrow.parquet", "parquet").filters_to_expression([list(way) for way in self.ways])


def ranges_of(metadata: Any, group: int, names: Sequence[str]) -> dict[str, Bounds]:
    """Gives the least and the most of columns of a row group, where its statistics know.

    Args:
        metadata: the footer, as pyarrow has it.
        group: the number of the row group.
        names: of the columns, which are known to be sound.
    """
    found = {}
    for number in range(metadata.num_columns):
        described = metadata.schema.column(number)
        if described.path not in names:
            continue
        column = metadata.row_group(group).column(number)
        # Statistics of another type than the column's would end the process.
        if column.physical_type == described.physical_type and column.is_stats_set:
            with suppress(Exception):  # of what Python cannot hold, such as a date behind its last year
                if column.statistics.has_min_max:
                    found[described.path] = (column.statistics.min, column.statistics.max)
    return found


def _is_condition(entry: Any) -> bool:
    return isinstance(entry, list | tuple) and len(entry) == 3 and isinstance(entry[1], str)


def _checked(entry: Any) -> Condition:
    if not _is_condition(entry) or not isinstance(entry[0], str):
        raise ArgumentTypeError("filters", "holds what is no condition (column, comparison, value)", entry)
    name, word, value = entry
    if word not in _COMPARISONS:
        hint = f"known: {', '.join(_COMPARISONS)}"
        raise ArgumentValueError("filters", "holds a comparison that is not known", word, hint=hint)
    if word in {"in", "not in"}:
        if isinstance(value, str | bytes) or not hasattr(value, "__iter__"):
            raise ArgumentTypeError("filters", f"must have a list of values after {word!r}", value)
        value = tuple(value)
    return name, word, value


def _may(condition: Condition, ranges: Mapping[str, Bounds]) -> bool:
    name, word, value = condition
    if name not in ranges or word not in _MAY:
        return True
    try:
        return _MAY[word](ranges[name], value)
    except TypeError:  # values say what is wrong with it
        return True


Keys = tuple[tuple[str, Any], ...]
"""Names and values, as scalars of Arrow's."""


def folder_keys(paths: Sequence[str]) -> list[Keys]:
    """Reads the keys of each file by pyarrow; those of one name have one type: int32, or else string.

    Args:
        paths: of the files, or their URLs.

    Raises:
        DatasetError: pyarrow is not installed, a file has no keys, or others than the first one.

    Example:
        >>> keys = folder_keys(["/data/year=2024/lang=en/0.parquet", "/data/year=7/lang=a%20b/0.parquet"])
        >>> [[(name, value.as_py()) for name, value in each] for each in keys]
        [[('year', 2024), ('lang', 'en')], [('year', 7), ('lang', 'a b')]]
    """
    arrow, dataset = extra("pyarrow", "parquet"), extra("pyarrow.dataset", "parquet")
    places = [shown(path) for path in paths]
    folders = places[0].split("/")[:-1]
    names = list(dict.fromkeys(folder.partition("=")[0] for folder in folders if "=" in folder))
    schema = arrow.schema([(name, arrow.string()) for name in names])
    partitioning = dataset.HivePartitioning(schema)
    found = []
    for place in places:
        keys = dataset.get_partition_keys(partitioning.parse(place))
        if not names or keys.keys() != set(names) or place.count("=") != places[0].count("="):
            others = "has other keys in the names of its folders than the first file"
            problem = others if names else "has no keys in the names of its folders"
            hint = "name files whose folders are called key=value alike, or leave partitioning out"
            raise DatasetError(place, problem, names, hint=hint)
        found.append(keys)
    columns = {name: _typed(arrow, [keys[name] for keys in found]) for name in names}
    return [tuple((name, columns[name][at]) for name in names) for at in range(len(found))]


def _typed(arrow: Any, texts: list[str | None]) -> Any:
    column = arrow.array(texts, arrow.string())
    try:
        return column.cast(arrow.int32())
    except arrow.ArrowInvalid:
        return column
