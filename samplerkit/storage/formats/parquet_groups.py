"""The row groups of several Parquet files: how they are looked at, and how one is read."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from threading import Lock
from types import MappingProxyType
from typing import Protocol, TypeVar, final

import numpy as np

from samplerkit.errors import DatasetError
from samplerkit.order.typing import Ids
from samplerkit.storage.catalogue.known import DIGEST_BYTES, FileCatalogue
from samplerkit.storage.formats.arrow_rows import ArrowContent
from samplerkit.storage.formats.parquet_file import Footer, ParquetFile
from samplerkit.storage.formats.parquet_filter import RowFilter, ranges_of
from samplerkit.storage.formats.stored import Stored, guarded
from samplerkit.storage.remote.storage import RemoteStorage
from samplerkit.storage.urls import is_remote, shown

Item_co = TypeVar("Item_co", covariant=True)

FOOTERS = 64
"""Footers that a process keeps: of files with many columns they are large."""


class Items(Protocol[Item_co]):
    """Things by number: all of them at hand, or each put together when it is asked for."""

    def __getitem__(self, number: int, /) -> Item_co: ...


@final
@dataclass(frozen=True)
class RowGroups:
    """The row groups of all files.

    Args:
        files: the files.
        columns: that are read.
        places: of each row group, its file, its number in it, and the rows that are kept; None for all.
        digests: of the footers of all files, one behind another.
    """

    files: Items[ParquetFile]
    columns: tuple[str, ...]
    places: Items[tuple[int, int, Ids | None]]
    digests: bytes

    def only(self, name: str) -> RowGroups:
        """Gives the same row groups, of which one column is read."""
        return replace(self, columns=(name,))


@final
@dataclass(frozen=True, eq=False)
class LookedAt:
    """What was seen of one file: perhaps its footer, its columns, and of each row group the rows to keep."""

    file: ParquetFile
    footer: Footer | None
    schema: tuple[tuple[str, str], ...]
    kept: tuple[Ids | None, ...]


@final
class Footers:
    """The footers of the files that were read last, for all threads of a process.

    Args:
        known: those that this process has read already, by the number of the file.
    """

    def __init__(self, known: Mapping[int, Footer] = MappingProxyType({})) -> None:
        self._lock = Lock()
        self._known: OrderedDict[int, Footer] = OrderedDict(known)
        self._reading: dict[int, Lock] = {}

    def of(self, number: int, file: ParquetFile, storage: RemoteStorage | None) -> Footer:
        """Gives the footer of a file, read now if it is not known."""
        with self._lock:
            if number in self._known:
                return self._kept(number)
            reading = self._reading.setdefault(number, Lock())
        # Threads that read row groups of a new file ahead all want its footer: one of them reads it.
        with reading:
            with self._lock:
                if number in self._known:
                    return self._kept(number)
            found = file.read_footer(storage)
            with self._lock:
                self._known[number] = found
                self._reading.pop(number, None)
                while len(self._known) > FOOTERS:
                    self._known.popitem(last=False)
        return found

    def _kept(self, number: int) -> Footer:
        self._known.move_to_end(number)
        return self._known[number]


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
    known: FileCatalogue | None = None,
) -> LookedAt:
    """Looks at one of several files.

    Args:
        files: their paths.
        columns: that are to be read; None for all.
        wanted: chooses rows; None for all.
        storage: reads what lies elsewhere.
        number: of the file.
        known: what a catalogue tells of them, if there is one.

    Raises:
        DatasetError: it cannot be read, or lacks a column.
    """
    if known is None:
        file, footer = ParquetFile.of(files[number], storage)
    else:
        file = KnownFiles(known, storage)[number]
        footer = file.read_footer(storage)
    schema = guarded(file.stored.name, "read", footer.metadata.schema.to_arrow_schema)
    named = columns if columns is not None else tuple(schema.names)
    _require_columns(file.stored.name, schema.names, (*named, *(wanted.names if wanted else ())))
    if not named:
        raise DatasetError(file.stored.name, "has no columns")
    types = tuple((name, str(schema.field(name).type)) for name in named)
    kept = tuple(_kept(file, footer, group, wanted, storage) for group in range(len(file.rows)))
    return LookedAt(file, footer if number < FOOTERS else None, types, kept)


def known_groups(
    known: FileCatalogue, columns: tuple[str, ...] | None, storage: RemoteStorage | None
) -> tuple[RowGroups, Ids]:
    """Gives the row groups that a catalogue tells; no file is opened.

    Returns:
        The row groups that hold rows, and how many each of them holds.

    Raises:
        DatasetError: there is no such column.
    """
    there = [name for name, _ in known.columns]
    named = columns if columns is not None else tuple(there)
    _require_columns(shown(known.path(0)), there, named)
    numbers = np.flatnonzero(known.samples)
    groups = RowGroups(KnownFiles(known, storage), named, _KnownPlaces(known.starts, numbers), known.digests)
    return groups, known.samples[numbers]


@final
class KnownFiles:
    """The files of a catalogue; what is known of one is put together when it is asked for.

    Args:
        known: the catalogue.
        storage: is told the version of each that lies elsewhere.
    """

    def __init__(self, known: FileCatalogue, storage: RemoteStorage | None) -> None:
        self._known = known
        self._starts = known.starts
        self._storage = storage

    def __getitem__(self, number: int) -> ParquetFile:
        known, path = self._known, self._known.path(number)
        size, length = int(known.sizes[number]), int(known.footers[number])
        is_here = not is_remote(path)
        if not is_here:
            known.require(number, self._storage)
        changed_ns = int(known.versions[number]) if is_here else 0
        rows = known.samples[self._starts[number] : self._starts[number + 1]].tolist()
        digest = known.digests[number * DIGEST_BYTES : (number + 1) * DIGEST_BYTES]
        return ParquetFile(Stored(path, size, changed_ns), (size - 8 - length, length), digest, tuple(rows))


@final
class _KnownPlaces:
    """Where the row groups of a catalogue lie that hold rows: as in `RowGroups`."""

    def __init__(self, starts: Ids, numbers: Ids) -> None:
        self._starts = starts
        self._numbers = numbers

    def __getitem__(self, number: int) -> tuple[int, int, Ids | None]:
        among_all = int(self._numbers[number])
        file = int(np.searchsorted(self._starts, among_all, side="right")) - 1
        return file, among_all - int(self._starts[file]), None


def _require_columns(name: str, there: Sequence[str], wanted: Sequence[str]) -> None:
    for column in wanted:
        if there.count(column) != 1:
            problem = f"holds {there.count(column) or 'no'} columns {column!r}, but only"
            raise DatasetError(name, problem, list(there))


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
    place, mend = f"{file.stored.name}, row group {group}", "compare a column with values of its own type"
    rows = guarded(place, "filtered", partial(wanted.rows, table), mend)
    return None if rows.size == file.rows[group] else rows
