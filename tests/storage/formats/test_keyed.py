"""SQLite and LMDB as keyed stores: what is read is what their packages read, and damage is an error."""

import os
import shutil
import sqlite3
from contextlib import closing
from dataclasses import replace

import pytest

import samplerkit as sk
from tests.storage.checks import assert_refused
from tests.storage.formats.damage import UncheckedContract, outcome_in_a_fork
from tests.storage.formats.lmdb_store import FILE, items


def write_database(path, rows=range(60)):
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
        write_database(f"{folder}/a.db")
        return [[{"id": 3 * row, "text": f"row {row}", "data": bytes([row % 256] * 90)} for row in range(60)]]

    def make(self, folder):
        return sk.SqliteDataset(f"{folder}/a.db", "samples")


def test_columns_can_be_selected_and_rows_decoded(tmp_path):
    write_database(tmp_path / "a.db", range(2000))
    with sk.SqliteDataset(
        tmp_path / "a.db", "samples", ["text"], decode=lambda row: row["text"].upper()
    ) as dataset:
        assert dataset.__getitems__(range(1999, -1, -1)) == [f"ROW {row}" for row in range(1999, -1, -1)]


WITHOUT_NUMBERS = "create table other (k text primary key) without rowid"
REFUSED = {
    "no such table: none.; check the names": ("none", {}),
    "sample 0: cannot be decoded": ("samples", {"decode": lambda row: row["none"]}),
    "no such column: samples.txt.; check the names": ("samples", {"columns": ["txt"]}),
    "no such column: rowid": ("other", {}),
    "not 'NoneType'": ("view", {}),
    "columns use all names of the rowid": ("all", {}),
}


@pytest.mark.parametrize("message", REFUSED)
def test_a_table_or_column_that_cannot_be_read_is_named(tmp_path, message):
    write_database(tmp_path / "a.db")
    with closing(sqlite3.connect(tmp_path / "a.db")) as database:
        database.execute(WITHOUT_NUMBERS)
        database.execute("create view view as select * from samples")
        database.execute("create table 'all' (rowid, oid, _rowid_)")
    table, options = REFUSED[message]
    assert_refused(sk.SqliteDataset(tmp_path / "a.db", table, **options), message, 0)


def test_names_of_tables_and_columns_are_case_insensitive(tmp_path):
    write_database(tmp_path / "a.db")
    with sk.SqliteDataset(tmp_path / "a.db", "Samples", ["TEXT"]) as dataset:
        assert list(dataset[1].values()) == ["row 1"]


def test_a_column_may_be_named_like_sqlites_row_number(tmp_path):
    """Row numbers are read by another name: equal values of such a column would merge two rows."""
    with closing(sqlite3.connect(tmp_path / "a.db")) as database, database:
        database.execute("create table samples (rowid, _ROWID_, text)")
        database.executemany("insert into samples values (1, 1, ?)", [("a",), ("b",)])
    with sk.SqliteDataset(tmp_path / "a.db", "samples", ["rowid", "text"]) as dataset:
        assert [*dataset] == [{"rowid": 1, "text": "a"}, {"rowid": 1, "text": "b"}]


@pytest.mark.parametrize("mode", ["delete", "wal"])
def test_a_database_that_is_written_to_while_it_is_open_is_an_error(tmp_path, mode):
    """Into the file, which changes its time; or into a log next to it, which does not."""
    write_database(tmp_path / "a.db")
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
    write_database(tmp_path / "a.db")
    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *given, **more: connect(*given, **more, timeout=0))
    writing = sqlite3.connect(tmp_path / "a.db")
    writing.execute("begin exclusive")
    dataset = sk.SqliteDataset(tmp_path / "a.db", "samples")
    assert_refused(dataset, "is locked.; check .* that nothing else has it open", 0)
    writing.close()


# LMDB

LEFT_OUT = ["__len__", "other"]


def numbered(item):
    return {"id": int(item["key"]), "value": item["value"]}


def pairs(dataset):
    return [(item["key"], item["value"]) for item in dataset.__getitems__(range(len(dataset)))]


class TestLmdb(UncheckedContract):
    """A store without checksums."""

    has_files = False

    def write(self, folder):
        shutil.copy(FILE, folder)
        return [[numbered({"key": key, "value": value}) for key, value in items(other=False)]]

    def make(self, folder):
        return sk.LmdbDataset(folder, leave_out=LEFT_OUT, decode=numbered)


def test_both_databases_of_a_store_are_read(tmp_path):
    """By the folder and by the file."""
    shutil.copy(FILE, tmp_path)
    assert pairs(sk.LmdbDataset(tmp_path, leave_out=LEFT_OUT)) == items(other=False)
    with sk.LmdbDataset(tmp_path / "data.mdb", "other") as dataset:
        assert pairs(dataset) == items(other=True)
        assert dataset[-1] == dict(zip(("key", "value"), items(other=True)[-1], strict=True))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "holds databases by name, got 'other'; name one, or list it in leave_out"),
        ({"database": "none"}, "NOTFOUND.*; check the names"),
        ({"leave_out": [*LEFT_OUT, "x"]}, "has no such key to leave out, got b'x'"),
    ],
)
def test_a_missing_database_or_key_is_named(given, message):
    assert_refused(sk.LmdbDataset(FILE, **given), message)


def test_a_store_that_was_written_to_is_an_error_even_with_the_same_size_and_time(tmp_path):
    """Each transaction has a number, which the same size and time do not hide."""
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


@pytest.mark.parametrize("size", [0, 8192, 20_000, 90_111])
def test_a_store_that_is_cut_while_it_is_closed_ends_no_process(tmp_path, size):
    shutil.copy(FILE, tmp_path)
    dataset = sk.LmdbDataset(tmp_path, "other")
    dataset[0]
    dataset.close()
    os.truncate(tmp_path / "data.mdb", size)
    assert outcome_in_a_fork(lambda: dataset, [None] * len(dataset)) == "error"


def test_a_store_that_says_another_number_of_keys_is_an_error(tmp_path):
    data = bytearray(FILE.read_bytes())
    for page in (0, 4096):  # each begins with the state of a transaction
        data[page + 120] += 1
    (tmp_path / "data.mdb").write_bytes(data)
    assert_refused(sk.LmdbDataset(tmp_path, leave_out=LEFT_OUT), r"it has \d+ keys, but counts \d+")


def test_a_key_that_a_store_has_lost_is_an_error(tmp_path):
    shutil.copy(FILE, tmp_path)
    dataset = sk.LmdbDataset(tmp_path, "other")
    stored, keys = dataset._index
    dataset._index = stored, replace(keys, joined=b"?" * len(keys.joined))
    assert_refused(dataset, r"key b'\?+' is missing", 0)


def test_keys_are_in_the_order_of_their_database_and_a_store_open_in_this_process_is_an_error(tmp_path):
    lmdb = pytest.importorskip("lmdb", reason="lmdb is not installed: it writes the stores")
    keys = [number.to_bytes(4, "little") for number in (1, 255, 256, 65_536)]
    with lmdb.open(str(tmp_path), max_dbs=2) as store, store.begin(write=True) as writing:
        for name, kind in ((b"reversed", {"reverse_key": True}), (b"integers", {"integerkey": True})):
            base = store.open_db(name, writing, **kind)
            for key in keys[::-1]:
                writing.put(key, key * 900, db=base)  # longer than a page
        problem = "is already open in this process.*; check .* that nothing else has it open"
        assert_refused(sk.LmdbDataset(tmp_path, "integers"), problem)
    for name in ("integers", "reversed"):
        with sk.LmdbDataset(tmp_path, name) as dataset:
            assert pairs(dataset) == [(key, key * 900) for key in keys]


def test_a_store_that_another_thread_closes_before_it_is_read_is_opened_again(tmp_path, monkeypatch):
    write_database(tmp_path / "a.db")
    with sk.SqliteDataset(tmp_path / "a.db", "samples") as dataset:
        process = dataset._processes.current()
        original, stores = process.open, []

        def open_and_close(*arguments):
            stores.append(original(*arguments))
            if len(stores) == 1:
                dataset.close()
            return stores[-1]

        monkeypatch.setattr(process, "open", open_and_close)
        assert dataset[1]["text"] == "row 1"
        assert len(stores) == 2


def test_several_values_of_a_key_are_refused(tmp_path):
    lmdb = pytest.importorskip("lmdb", reason="lmdb is not installed: it writes the store")
    with lmdb.open(str(tmp_path), max_dbs=1) as store, store.begin(write=True) as writing:
        base = store.open_db(b"several", writing, dupsort=True)
        writing.put(b"key", b"one", db=base)
    assert_refused(sk.LmdbDataset(tmp_path, "several"), "keys that have several values")
