"""SQLite and LMDB as keyed stores: what is read is what their packages read, and damage is an error."""

from __future__ import annotations

import os
import shutil
import sqlite3
from contextlib import closing

import pytest

import samplerkit as sk
from tests.storage.formats.damage import UncheckedContract
from tests.storage.formats.lmdb_store import FILE, items
from tests.storage.refusing import assert_refused


def filled(path, rows=range(60)):
    database = sqlite3.connect(path)
    with database:
        database.execute("create table samples (id integer primary key, text, data blob)")
        database.executemany(
            "insert into samples values (?, ?, ?)",
            [(3 * row, f"row {row}", bytes([row % 256] * 90)) for row in rows],
        )
    database.close()


class TestSqlite(UncheckedContract):
    """A table with gaps between its numbers; its pages have no checksums."""

    has_files = False

    def write(self, folder):
        filled(f"{folder}/a.db")
        return [[{"id": 3 * row, "text": f"row {row}", "data": bytes([row % 256] * 90)} for row in range(60)]]

    def make(self, folder):
        return sk.SqliteDataset(f"{folder}/a.db", "samples")


def test_columns_and_a_function_of_a_row_are_taken(tmp_path):
    filled(tmp_path / "a.db", range(2000))
    with sk.SqliteDataset(
        tmp_path / "a.db", "samples", ["text"], decode=lambda row: row["text"].upper()
    ) as dataset:
        assert dataset.__getitems__(range(1999, -1, -1)) == [f"ROW {row}" for row in range(1999, -1, -1)]


WITHOUT_NUMBERS = "create table other (k text primary key) without rowid"
REFUSED = {
    "holds no table 'none', but only, got \\['samples', 'other', 'all'\\]": ("none", {}),
    "sample 0: cannot be decoded": ("samples", {"decode": lambda row: row["none"]}),
    "table 'samples' holds no column 'txt', but only": ("samples", {"columns": ["txt"]}),
    "holds a table without numbers of rows": ("other", {}),
    "holds no table 'view'": ("view", {}),
    "columns have all names of the numbers of rows": ("all", {}),
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_cannot_be_read_is_named(tmp_path, message):
    filled(tmp_path / "a.db")
    with closing(sqlite3.connect(tmp_path / "a.db")) as database:
        database.execute(WITHOUT_NUMBERS)
        database.execute("create view view as select * from samples")
        database.execute("create table 'all' (rowid, oid, _rowid_)")
    table, options = REFUSED[message]
    assert_refused(sk.SqliteDataset(tmp_path / "a.db", table, **options), message, 0)


def test_what_is_no_path_is_refused():
    for make in (sk.LmdbDataset, lambda path: sk.SqliteDataset(path, "samples")):
        with pytest.raises(sk.ArgumentTypeError, match="path: must be a string, got 3"):
            make(3)


def test_names_of_tables_and_columns_have_no_case(tmp_path):
    filled(tmp_path / "a.db")
    with sk.SqliteDataset(tmp_path / "a.db", "Samples", ["TEXT"]) as dataset:
        assert list(dataset[1].values()) == ["row 1"]


def test_a_column_may_be_called_what_sqlite_calls_the_numbers_of_rows(tmp_path):
    """They are read by another name: equal values there would make one row of two."""
    with closing(sqlite3.connect(tmp_path / "a.db")) as database, database:
        database.execute("create table samples (rowid, _ROWID_, text)")
        database.executemany("insert into samples values (1, 1, ?)", [("a",), ("b",)])
    with sk.SqliteDataset(tmp_path / "a.db", "samples", ["rowid", "text"]) as dataset:
        assert [*dataset] == [{"rowid": 1, "text": "a"}, {"rowid": 1, "text": "b"}]


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
    assert_refused(sk.SqliteDataset(tmp_path / "a.db", "samples"), "is locked by a writer; wait", 0)
    writing.close()


# LMDB

LEFT_OUT = ["__len__", "other"]


def numbered(item):
    return {"id": int(item["key"]), "value": item["value"]}


def told(dataset):
    return [(item["key"], item["value"]) for item in dataset.__getitems__(range(len(dataset)))]


class TestLmdb(UncheckedContract):
    """A store without checksums: of lies only those are found that lead somewhere."""

    has_files = False

    def write(self, folder):
        shutil.copy(FILE, folder)
        return [[numbered({"key": key, "value": value}) for key, value in items(other=False)]]

    def make(self, folder):
        return sk.LmdbDataset(folder, leave_out=LEFT_OUT, decode=numbered)


def test_both_databases_of_a_store_are_read(tmp_path):
    """By the folder and by the file."""
    shutil.copy(FILE, tmp_path)
    assert told(sk.LmdbDataset(tmp_path, leave_out=LEFT_OUT)) == items(other=False)
    with sk.LmdbDataset(tmp_path / "data.mdb", "other") as dataset:
        assert told(dataset) == items(other=True)
        assert dataset[-1] == dict(zip(("key", "value"), items(other=True)[-1], strict=True))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "holds databases by name, got 'other'; name one, or leave its name out"),
        ({"database": "none"}, r"holds no database 'none', but only, got \['other'\]"),
        ({"leave_out": [*LEFT_OUT, "x"]}, "holds no key to leave out, got b'x'"),
    ],
)
def test_what_is_not_in_the_store_is_named(given, message):
    assert_refused(sk.LmdbDataset(FILE, **given), message)


def test_a_store_that_was_written_to_is_an_error_even_where_times_say_nothing(tmp_path):
    """Each change has a number; as many bytes, and a time that was set back, do not hide it."""
    shutil.copy(FILE, tmp_path)
    path = tmp_path / "data.mdb"
    before = path.stat()
    with sk.LmdbDataset(path, "other") as dataset:
        dataset[0]
        page = 4096
        data = bytearray(path.read_bytes())
        changes = [int.from_bytes(data[at + 144 : at + 152], "little") for at in (0, page)]
        older = changes.index(min(changes)) * page
        data[older + 144 : older + 152] = (max(changes) + 1).to_bytes(8, "little")
        path.write_bytes(data)
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        with pytest.raises(sk.DatasetError, match="was changed while it was read"):
            dataset[0]


def test_keys_are_in_the_order_of_their_database_and_a_store_that_is_open_here_says_so(tmp_path):
    lmdb = pytest.importorskip("lmdb", reason="lmdb is not installed: it writes the stores")
    keys = [number.to_bytes(4, "little") for number in (1, 255, 256, 65_536)]
    with lmdb.open(str(tmp_path), max_dbs=2) as store, store.begin(write=True) as writing:
        for name, kind in ((b"reversed", {"reverse_key": True}), (b"integers", {"integerkey": True})):
            base = store.open_db(name, writing, **kind)
            for key in keys[::-1]:
                writing.put(key, key * 900, db=base)  # longer than a page
        assert_refused(
            sk.LmdbDataset(tmp_path, "integers"), "is open in this process; close it, or read it in another"
        )
    for name in ("integers", "reversed"):
        with sk.LmdbDataset(tmp_path, name) as dataset:
            assert told(dataset) == [(key, key * 900) for key in keys]


def test_a_store_that_another_thread_closes_before_it_is_read_is_opened_again(tmp_path, monkeypatch):
    filled(tmp_path / "a.db")
    with sk.SqliteDataset(tmp_path / "a.db", "samples") as dataset:
        process = dataset._processes.current()
        original, opened = process.open, []

        def open_and_close(*arguments):
            opened.append(original(*arguments))
            if len(opened) == 1:
                dataset.close()
            return opened[-1]

        monkeypatch.setattr(process, "open", open_and_close)
        assert dataset[1]["text"] == "row 1"
        assert len(opened) == 2


def test_several_values_of_a_key_are_refused(tmp_path):
    lmdb = pytest.importorskip("lmdb", reason="lmdb is not installed: it writes the store")
    with lmdb.open(str(tmp_path), max_dbs=1) as store, store.begin(write=True) as writing:
        base = store.open_db(b"several", writing, dupsort=True)
        writing.put(b"key", b"one", db=base)
    assert_refused(sk.LmdbDataset(tmp_path, "several"), "keys that have several values")
