"""A dataset over a SQLite table, read by rowid."""

import json
import os
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, final

import numpy as np

from samplerkit.errors import DatasetError
from samplerkit.order import arguments
from samplerkit.order.typing import Ids
from samplerkit.storage.files.content import names_of
from samplerkit.storage.files.stored import CHANGED, Stored
from samplerkit.storage.formats.keyed import KeyedDataset, OpenStore
from samplerkit.storage.open_files import REWRITE


@final
class SqliteDataset(KeyedDataset):
    """Samples in a SQLite table: a sample is a row as a dict, with random access by rowid.

    Each process opens the database once, read-only. Rows are in the order of their rowids.

    Args:
        path: the path of the database.
        table: the name of the table, which must have rowids (not `WITHOUT ROWID`).
        columns: the columns to read; None for all.
        decode: makes a sample from the dict of a row; None to return the dict itself.

    Raises:
        ArgumentTypeError: an argument has the wrong type.
        ArgumentValueError: a name is empty.
        DatasetError: later, there is no such table or column, or the file cannot be read or was changed.

    Example:
        >>> import tempfile
        >>> path = os.path.join(tempfile.mkdtemp(), "a.db")
        >>> with sqlite3.connect(path) as database:
        ...     _ = database.execute("create table rows (id integer primary key, text)")
        ...     _ = database.executemany("insert into rows values (?, ?)", [(2, "two"), (7, "seven")])
        >>> database.close()
        >>> with SqliteDataset(path, "rows") as dataset:
        ...     len(dataset), dataset[1]
        (2, {'id': 7, 'text': 'seven'})
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        table: str,
        columns: Sequence[str] | None = None,
        *,
        decode: Callable[[dict[str, Any]], Any] | None = None,
    ) -> None:
        super().__init__(path, decode)
        self._table = arguments.word("table", table)
        self._columns = names_of(columns)

    def _open(self, stored: Stored) -> OpenStore:
        table = _quoted(self._table)
        # With the table, since SQLite takes a quoted name that it does not know for a string.
        columns = (f"{table}.{_quoted(name)}" for name in self._columns or ())
        return _Table(stored, self._table, ", ".join(columns) or "*")


class _Table(OpenStore):
    """A table that is open in one process."""

    def __init__(self, stored: Stored, table: str, columns: str) -> None:
        self._stored = stored
        self._database = _connect(stored)
        number, rows = _row_number(self._database, table), f"from {_quoted(table)}"
        self._key_query = f"select {number} {rows} order by {number}"
        # Numbers as JSON, since older versions of SQLite allow 999 parameters.
        keys = "(select value from json_each(?))"
        self._query = f"select {number}, {columns} {rows} where {number} in {keys}"
        self._version = self._data_version()

    def keys(self) -> Ids:
        """Reads the numbers of all rows."""
        rows = self._database.execute(self._key_query)
        return np.fromiter((row[0] for row in rows), dtype=np.int64)

    def read(self, keys: Ids, ids: Ids) -> list[Any]:
        """Reads rows."""
        chosen = keys[ids].tolist()
        rows = self._database.execute(self._query, [json.dumps(chosen)])
        names = [entry[0] for entry in rows.description][1:]
        rows_by_key = {row[0]: dict(zip(names, row[1:], strict=True)) for row in rows}
        self._stored.require_same()
        # A write-ahead log does not change the file itself, but the database's own counter.
        if self._data_version() != self._version:
            raise DatasetError(self._stored.path, "was changed while it was read", hint=CHANGED)
        return [rows_by_key[key] for key in chosen]

    def _data_version(self) -> Any:
        """Returns a number that changes when another connection changes the database."""
        return self._database.execute("pragma data_version").fetchone()

    def close(self, *, waits: bool = True) -> None:
        """Closes the database."""
        self._database.close()


def _row_number(database: sqlite3.Connection, table: str) -> str:
    """Returns a name of the rowid that no column has: the column would be read instead."""
    columns = database.execute("select lower(name) from pragma_table_xinfo(?)", (table,))
    unused = {"rowid", "oid", "_rowid_"}.difference(name for (name,) in columns)
    if not unused:
        raise ValueError("its columns use all names of the rowid")
    return max(unused)


def _connect(stored: Stored) -> sqlite3.Connection:
    path, size = stored.path, stored.size
    (header,) = stored.read([(0, min(100, size))])
    # SQLite reads the missing part of a truncated page as zeros. Old versions do not store the page count.
    page, pages = int.from_bytes(header[16:18]), int.from_bytes(header[28:32])
    has_page_count = pages and header[24:28] == header[92:96]
    is_complete = not has_page_count or size == pages * (65536 if page == 1 else page)
    if not header.startswith(b"SQLite format 3\0") or not is_complete:
        raise DatasetError(path, "is not a SQLite database, or was truncated", f"{size} bytes", hint=REWRITE)
    # Used by any thread that holds the lock of the dataset.
    return sqlite3.connect(f"{Path(path).absolute().as_uri()}?mode=ro", uri=True, check_same_thread=False)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
