"""Samples in a table of SQLite, by the number of their row."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, final

import numpy as np

from samplerkit.errors import DatasetError
from samplerkit.order import arguments
from samplerkit.order.typing import Ids
from samplerkit.storage.ahead.stats import FileStats
from samplerkit.storage.files.paths import opened
from samplerkit.storage.formats.arrow_rows import names_of
from samplerkit.storage.formats.keyed import KeyedDataset, OpenStore
from samplerkit.storage.formats.stored import ANEW, guarded

_AT_ONCE = 500
"""Rows of one query: older versions allow 999 values."""


@final
class SqliteDataset(KeyedDataset):
    """Samples in a table of SQLite: a sample is a dict of a row, read by its number at random.

    The database is opened for reading only, once a process. Rows are in the order of their numbers.

    Args:
        path: of the database.
        table: the table; one with numbers of rows, not `WITHOUT ROWID`.
        columns: the columns to read; None for all.
        decode: makes a sample of the dict of a row; None for the dict itself.

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
        super().__init__(arguments.text("path", os.fspath(path)), decode)
        self._table = arguments.word("table", table)
        self._columns = names_of(columns)

    def _file(self) -> str:
        return self.path

    def _found(self) -> Ids:
        def found() -> Ids:
            database = _connected(self.path)
            try:
                rows = database.execute(f"select rowid from {_quoted(self._table)} order by rowid")  # noqa: S608  # quoted
                return np.fromiter((row[0] for row in rows), dtype=np.int64)
            finally:
                database.close()

        return guarded(self.path, "read", found)

    def _opened(self, keys: Any, stats: FileStats) -> OpenStore:
        columns = "*" if self._columns is None else ", ".join(map(_quoted, self._columns))
        query = f"select rowid, {columns} from {_quoted(self._table)} where rowid in "  # noqa: S608  # quoted
        return _Table(self.path, query, keys, stats)


@final
class _Table(OpenStore):
    """A table that is open in one process."""

    def __init__(self, path: str, query: str, keys: Ids, stats: FileStats) -> None:
        super().__init__(stats)
        self._path, self._query, self._keys = path, query, keys
        self._database = guarded(path, "read", lambda: _connected(path))

    def read(self, ids: Ids) -> list[Any]:
        """Reads rows."""
        return guarded(self._path, "read", lambda: self._read(self._keys[ids].tolist()))

    def _read(self, keys: list[int]) -> list[Any]:
        found: dict[int, dict[str, Any]] = {}
        for start in range(0, len(keys), _AT_ONCE):
            some = keys[start : start + _AT_ONCE]
            cursor = self._database.execute(f"{self._query}({', '.join('?' * len(some))})", some)
            names = [entry[0] for entry in cursor.description][1:]
            found.update((row[0], dict(zip(names, row[1:], strict=True))) for row in cursor)
        missing = next((key for key in keys if key not in found), None)
        if missing is not None:
            raise DatasetError(self._path, "has no such row any more", missing)
        return [found[key] for key in keys]

    def close(self) -> None:
        """Closes it."""
        self._database.close()


def _connected(path: str) -> sqlite3.Connection:
    with opened(path) as file:
        header, size = file.read(100), os.fstat(file.fileno()).st_size
    # SQLite takes what was cut off a page for zeros. Old versions do not tell the number of pages.
    page, pages = int.from_bytes(header[16:18]), int.from_bytes(header[28:32])
    is_told = pages and header[24:28] == header[92:96]
    is_whole = not is_told or size == pages * (65536 if page == 1 else page)
    if not header.startswith(b"SQLite format 3\0") or not is_whole:
        raise DatasetError(path, "is no whole database of SQLite", f"{size} bytes", mend=ANEW)
    # Whichever thread holds the lock of the dataset uses it.
    return sqlite3.connect(f"{Path(path).absolute().as_uri()}?mode=ro", uri=True, check_same_thread=False)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
