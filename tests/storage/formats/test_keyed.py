"""SQLite as a keyed store: any sample at any time, in the order of GLOBAL."""

from __future__ import annotations

import sqlite3

import pytest

import samplerkit as sk
from samplerkit.testing import DatasetContract


def filled(path, rows=range(12)):
    database = sqlite3.connect(path)
    with database:
        database.execute("create table samples (id integer primary key, text, data blob)")
        database.executemany(
            "insert into samples values (?, ?, ?)",
            [(3 * row, f"row {row}", bytes([row % 256] * 90)) for row in rows],
        )
    database.close()


class TestSqlite(DatasetContract):
    """A table with gaps between its numbers; its pages have no checksums."""

    has_files = False

    def write(self, folder):
        filled(f"{folder}/a.db")
        return [[{"id": 3 * row, "text": f"row {row}", "data": bytes([row % 256] * 90)} for row in range(12)]]

    def make(self, folder):
        return sk.SqliteDataset(f"{folder}/a.db", "samples")

    def lies(self, whole):
        return super().lies(whole)[:2]


def test_columns_and_a_function_of_a_row_are_taken(tmp_path):
    filled(tmp_path / "a.db", range(2000))
    with sk.SqliteDataset(tmp_path / "a.db", "samples", ["text"], decode=_upper) as dataset:
        assert dataset.__getitems__(range(1999, -1, -1)) == [f"ROW {row}" for row in range(1999, -1, -1)]


def _upper(row):
    return row["text"].upper()


@pytest.mark.parametrize(
    "message", ["holds no table 'other', but only, got \\['samples'\\]", "sample 0: cannot be decoded"]
)
def test_what_cannot_be_read_is_named(tmp_path, message):
    filled(tmp_path / "a.db")
    given = {"table": "other"} if "table" in message else {"table": "samples", "decode": _fails}
    with (
        sk.SqliteDataset(tmp_path / "a.db", **given) as dataset,
        pytest.raises(sk.DatasetError, match=message),
    ):
        dataset[0]


def _fails(_row):
    raise ValueError("no")


def test_a_column_that_is_not_there_is_an_error_and_not_its_name(tmp_path):
    """SQLite takes a quoted name that it does not know for a text."""
    filled(tmp_path / "a.db")
    with sk.SqliteDataset(tmp_path / "a.db", "Samples", ["TEXT"]) as dataset:
        assert list(dataset[1].values()) == ["row 1"]
    with (
        sk.SqliteDataset(tmp_path / "a.db", "samples", ["txt"]) as dataset,
        pytest.raises(sk.DatasetError, match="table 'samples' holds no column 'txt', but only"),
    ):
        dataset[0]


@pytest.mark.parametrize(
    ("made", "message"),
    [
        ("create table other (k text primary key) without rowid", "holds a table without numbers of rows"),
        ("create view other as select * from samples", "holds no table 'other'"),
    ],
)
def test_what_has_no_numbers_of_rows_is_refused(tmp_path, made, message):
    filled(tmp_path / "a.db")
    database = sqlite3.connect(tmp_path / "a.db")
    database.execute(made)
    database.close()
    with (
        sk.SqliteDataset(tmp_path / "a.db", "other") as dataset,
        pytest.raises(sk.DatasetError, match=message),
    ):
        len(dataset)


@pytest.mark.parametrize("mode", ["delete", "wal"])
def test_a_database_that_is_written_to_while_it_is_open_is_an_error(tmp_path, mode):
    """Into the file, which has another time then; or into a log beside it, which changes no time of it."""
    filled(tmp_path / "a.db")
    writing = sqlite3.connect(tmp_path / "a.db")
    writing.execute(f"pragma journal_mode={mode}")
    with sk.SqliteDataset(tmp_path / "a.db", "samples") as dataset:
        assert dataset[1]["text"] == "row 1"
        with writing:
            writing.execute("update samples set text = 'other' where id = 3")
        with pytest.raises(sk.DatasetError, match="was changed"):
            dataset[1]
    writing.close()


def test_a_database_that_is_locked_is_an_error_that_says_so(tmp_path, monkeypatch):
    filled(tmp_path / "a.db")
    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *given, **more: connect(*given, **more, timeout=0))
    writing = sqlite3.connect(tmp_path / "a.db")
    writing.execute("begin exclusive")
    with (
        sk.SqliteDataset(tmp_path / "a.db", "samples") as dataset,
        pytest.raises(sk.DatasetError, match="is locked by a writer; wait"),
    ):
        dataset[0]
    writing.close()
