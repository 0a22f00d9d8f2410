"""The row groups of several Parquet files: how they are looked at, and how one is read."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from threading import Lock
from typing import final

import numpy as np

from samplerkit.errors import DatasetError
from samplerkit.order.typing import Ids
from samplerkit.storage.formats.arrow_rows import ArrowContent
from samplerkit.storage.formats.parquet_file import Footer, ParquetFile
from samplerkit.storage.formats.parquet_filter import RowFilter, ranges_of
from samplerkit.storage.formats.stored import guarded
from samplerkit.storage.remote.storage import RemoteStorage

_FOOTERS = 64
"""Footers that a process keeps: of files with many columns they are large."""


@final
@dataclass(frozen=True)
class RowGroups:
    """The row groups of all files.

    Args:
        files: the files.
        columns: that are read.
        places: of each row group, its file, its number in it, and the rows that are kept; None for all.
        rows: how many samples each has.
    """

    files: tuple[ParquetFile, ...]
    columns: tuple[str, ...]
    places: tuple[tuple[int, int, Ids | None], ...]
    rows: tuple[int, ...]

    def only(self, name: str) -> RowGroups:
        """Gives the same row groups, of which one column is read."""
        return replace(self, columns=(name,))


@final
@dataclass(frozen=True, eq=False)
class LookedAt:
    """What was seen of one file: with its columns, and the rows of each row group that are kept."""

    file: ParquetFile
    schema: tuple[tuple[str, str], ...]
    kept: tuple[Ids | None, ...]


@final
class Footers:
    """The footers of the files that were read last, for all threads of a process."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._known: OrderedDict[int, Footer] = OrderedDict()

    def of(self, number: int, file: ParquetFile, storage: RemoteStorage | None) -> Footer:
        """Gives the footer of a file, read now if it is not known."""
        with self._lock:
            if number in self._known:
                self._known.move_to_end(number)
                return self._known[number]
        found = file.read_footer(storage)
        with self._lock:
            self._known[number] = found
            while len(self._known) > _FOOTERS:
                self._known.popitem(last=False)
        return found


def read_group(
    groups: RowGroups, storage: RemoteStorage | None, footers: Footers, number: int
) -> ArrowContent:
    """Reads a row group, by its number among all.

    Raises:
        DatasetError: it cannot be read, or lacks a column.
    """
    at, group, kept = groups.places[number]
    file = groups.files[at]
    table = file.read(group, groups.columns, footers.of(at, file, storage), storage)
    missing = [name for name in groups.columns if name not in table.column_names]
    place = f"{file.stored.name}, row group {group}"
    if missing:
        raise DatasetError(file.stored.name, f"holds no column {missing[0]!r}, but only", table.column_names)
    return ArrowContent(place, guarded(place, "read", table.combine_chunks), kept)


def looked_at(
    files: Sequence[str],
    columns: tuple[str, ...] | None,
    wanted: RowFilter | None,
    storage: RemoteStorage | None,
    number: int,
) -> LookedAt:
    """Looks at one of several files.

    Args:
        files: their paths.
        columns: that are to be read; None for all.
        wanted: chooses rows; None for all.
        storage: reads what lies elsewhere.
        number: of the file.

    Raises:
        DatasetError: it cannot be read, or lacks a column.
    """
    file, footer = ParquetFile.of(files[number], storage)
    schema = guarded(file.stored.name, "read", footer.metadata.schema.to_arrow_schema)
    named = columns if columns is not None else tuple(schema.names)
    for name in (*named, *(wanted.names if wanted else ())):
        if schema.names.count(name) != 1:
            problem = f"holds {schema.names.count(name) or 'no'} columns {name!r}, but only"
            raise DatasetError(file.stored.name, problem, schema.names)
    if not named:
        raise DatasetError(file.stored.name, "has no columns")
    types = tuple((name, str(schema.field(name).type)) for name in named)
    kept = tuple(_kept(file, footer, group, wanted, storage) for group in range(len(file.rows)))
    return LookedAt(file, types, kept)


def _kept(
    file: ParquetFile, footer: Footer, group: int, wanted: RowFilter | None, storage: RemoteStorage | None
) -> Ids | None:
    """Gives the rows of a row group that are samples; None for all."""
    if not file.rows[group]:
        return np.zeros(0, dtype=np.int64)
    if wanted is None:
        return None
    if not wanted.may_hold(ranges_of(footer.metadata.row_group(group), wanted.names)):
        return np.zeros(0, dtype=np.int64)
    table = file.read(group, wanted.names, footer, storage)
    rows = guarded(f"{file.stored.name}, row group {group}", "filtered", partial(wanted.rows, table))
    return None if rows.size == file.rows[group] else rows
