"""Parquet by row group: what is read is what pyarrow wrote, each row group once, and damage is an error."""

import os
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from threading import Barrier
from threading import enumerate as enumerate_threads
from types import SimpleNamespace

import numpy as np
import pytest

import samplerkit as sk
from samplerkit.errors import DatasetError
from samplerkit.storage.files.stored import Stored
from samplerkit.storage.formats.parquet.filter import ranges_of
from samplerkit.testing import DatasetContract
from tests.storage.checks import assert_refused
from tests.storage.formats.damage import plain
from tests.storage.remote.server import answer_correctly, served
from tests.waiting import new_threads

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed: no Parquet here")
pq = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed: no Parquet here")


SCHEMA = {
    "id": pa.int64(),
    "x": pa.float32(),
    "text": pa.string(),
    "tokens": pa.list_(pa.int32()),
    "pair": pa.list_(pa.float64(), 2),
    "maybe": pa.int64(),
    "deep": pa.struct({"a": pa.int64(), "b": pa.list_(pa.struct({"c": pa.string()}))}),
}


def table_of(start, stop):
    rows = range(start, stop)
    return pa.table(
        {
            "id": np.arange(start, stop),
            "x": np.arange(start, stop, dtype=np.float32) / 3,
            "text": [f"row {row}" * (row % 4) for row in rows],
            "tokens": [list(range(row % 5)) for row in rows],
            "pair": [[row, -row] for row in rows],
            "maybe": [None if row % 3 == 0 else row for row in rows],
            "deep": [{"a": row, "b": [{"c": str(row)}] * (row % 3)} for row in rows],
        },
        schema=pa.schema(SCHEMA),
    )


def write(folder, sizes=((5, 4), (7, 7), (0, 3)), **options):
    """Writes a file each: its rows, and how many of them make a row group."""
    start = 0
    for number, (rows, per_group) in enumerate(sizes):
        table = table_of(start, start + rows)
        pq.write_table(table, f"{folder}/{number}.parquet", row_group_size=per_group, **options)
        start += rows
    return [f"{folder}/{number}.parquet" for number in range(len(sizes))]


def opened(files, *arguments, **options):
    return sk.ParquetDataset(files, *arguments, progress=False, **options)


class TestParquet(DatasetContract):
    """Row groups with checksums of their pages."""

    def write(self, folder):
        write(folder, write_page_checksum=True)
        rows = table_of(0, 12).to_pylist()
        return [rows[:4], rows[4:5], rows[5:]]

    def make(self, folder):
        return opened([f"{folder}/{number}.parquet" for number in range(3)])


@pytest.mark.parametrize("batches", ["columns", "tensors", "arrow"])
def test_a_batch_is_columns_tensors_or_a_record_batch(tmp_path, batches):
    paths, ids = write(tmp_path), [11, 1, 5, 4, 5]
    expected = table_of(0, 12).take(ids)
    with opened(paths, batches=batches) as dataset:
        batch = dataset.__getitems__(ids)
    if batches == "arrow":
        assert batch.to_pylist() == expected.to_pylist()
        return
    assert batch["x"].dtype == (np.float32 if batches == "columns" else pytest.importorskip("torch").float32)
    assert batch["pair"].shape == (5, 2)
    for name, column in batch.items():
        assert [plain({0: value})[0] for value in column] == expected.column(name).to_pylist()
    batch["x"][0] = 7  # it is writable, and the cached row group does not change
    with opened(paths) as dataset:
        assert dataset[11]["x"] != 7


def test_a_null_is_none_in_a_sample_and_refused_in_an_array_of_numbers(tmp_path):
    """So a column has one type in all batches, whether or not other rows of its row group are null."""
    paths = write(tmp_path)
    with opened(paths, ["maybe"]) as dataset:
        assert dataset.__getitems__([3, 4]) == [{"maybe": None}, {"maybe": 4}]
        assert isinstance(dataset[4]["maybe"], np.int64)
    with opened(paths, ["maybe"], batches="columns") as dataset:
        assert dataset.__getitems__([1, 4])["maybe"].dtype == np.int64
        with pytest.raises(sk.DatasetError, match="column 'maybe' holds a null"):
            dataset.__getitems__([3, 4])


def test_a_file_without_columns_or_encrypted_is_refused(tmp_path):
    pq.write_table(pa.table({}), tmp_path / "none.parquet")
    assert_refused(opened(tmp_path / "none.parquet"), "has no columns")
    (tmp_path / "none.parquet").write_bytes(bytes(20) + b"PARE")
    assert_refused(opened(tmp_path / "none.parquet"), "has an encrypted footer")


def test_rows_that_follow_one_another_are_a_record_batch_without_a_copy(tmp_path):
    with opened(write(tmp_path), batches="arrow") as dataset:
        whole, part = dataset.__getitems__(range(5, 12)), dataset.__getitems__([7, 8, 9])
    start = whole.column("id").buffers()[1].address
    assert part.column("id").buffers()[1].address == start
    assert part.column("id").offset == 2


def test_only_the_requested_columns_are_read(tmp_path):
    table = pa.table({"small": np.arange(1000), "large": [os.urandom(4000) for _ in range(1000)]})
    pq.write_table(table, tmp_path / "a.parquet", compression="none")
    bytes_read = []
    original = Stored.read

    def counted(self, spans):
        bytes_read.append(sum(length for _, length in spans))
        return original(self, spans)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Stored, "read", counted)
        with opened(tmp_path / "a.parquet", ["small"]) as dataset:
            assert dataset.__getitems__([3, 999]) == [{"small": 3}, {"small": 999}]
    assert sum(bytes_read) < 200_000


FILTERS = {
    "by statistics": [("id", ">=", 6), ("id", "<", 11)],
    "either way": [[("id", "==", 1)], [("text", "in", ["row 5", "row 9"]), ("x", "<=", 2.0)]],
    "without nulls": [("maybe", "!=", 4)],
    "not in": [("maybe", "not in", [4, 5])],
}


@pytest.mark.parametrize("name", FILTERS)
def test_filters_keep_the_rows_that_pyarrow_keeps(tmp_path, name):
    paths, filters = write(tmp_path), FILTERS[name]
    expected = [row for path in paths for row in pq.read_table(path, filters=filters).to_pylist()]
    with opened(paths, filters=filters) as dataset:
        assert len(dataset) == len(expected)
        assert [plain(sample) for sample in dataset.__getitems__(range(len(expected)))] == expected
        assert all(dataset.layout.sizes)


@pytest.mark.parametrize(
    "condition",
    [
        ("x", "in", [0.1]),
        ("x", "==", np.float32(0.1)),
        ("y", "<", np.float32(0.1)),
        ("price", "==", 0.1),
        ("price", "in", [0.1]),
        ("at", ">", datetime(1970, 1, 2)),  # noqa: DTZ001  # the column has no time zone
    ],
)
def test_a_filter_value_that_statistics_cannot_be_compared_with_excludes_no_row_group(tmp_path, condition):
    """The column is rounded to float32, and the value has more digits; or Python cannot hold its maximum."""
    x, at = pa.array([0.1, 0.3], pa.float32()), pa.array([1 << 60, 0], pa.timestamp("us"))
    price = pa.array([Decimal("0.1"), Decimal("0.3")], pa.decimal128(5, 1))
    table = pa.table({"x": x, "y": [0.1, 0.3], "at": at, "price": price})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=1)
    with opened(tmp_path / "a.parquet", ["y"], filters=[condition]) as dataset:
        assert [sample["y"] for sample in dataset.__getitems__(range(len(dataset)))] == [0.1]


def test_statistics_of_floats_exclude_nothing():
    """Some writers write NaN there; pyarrow does not."""
    column = SimpleNamespace(path="x", name="x", physical_type="DOUBLE", statistics=SimpleNamespace())
    vars(column.statistics).update(has_min_max=True, min=np.nan, max=2.0)
    group = SimpleNamespace(column=lambda number: column)
    footer = SimpleNamespace(num_columns=1, schema=group, row_group=lambda number: group)
    assert ranges_of(footer, 0, ["x"]) == {}


def test_a_column_may_be_named_like_a_field_of_another_one(tmp_path):
    table = pa.table({"a.b": [1, 2], "a": [{"b": 100}, {"b": 200}]})
    pq.write_table(table, tmp_path / "a.parquet")
    with opened(tmp_path / "a.parquet", ["a.b"], filters=[("a.b", "==", 2)]) as dataset:
        assert [*dataset] == [{"a.b": 2}]


def test_row_groups_are_excluded_by_statistics_without_being_read(tmp_path):
    """Nothing of an excluded row group is read: its damage is no error."""
    (path,) = write(tmp_path, [(12, 4)], write_page_checksum=True)
    first = pq.ParquetFile(path).metadata.row_group(0).column(1)
    damaged = bytearray(Path(path).read_bytes())
    damaged[first.dictionary_page_offset : first.dictionary_page_offset + 40] = bytes(40)
    Path(path).write_bytes(damaged)
    with opened(path, filters=[("id", ">", 3)]) as dataset:
        assert [sample["id"] for sample in dataset.__getitems__(range(8))] == list(range(4, 12))
    assert_refused(opened(path), "row group 0", 0)


def test_lengths_are_a_column_of_numbers_or_of_lists(tmp_path):
    paths = write(tmp_path, [(60, 13)])
    for name in ("tokens", "id"):
        with opened(paths, ["id", "tokens"], lengths=name) as dataset:
            expected = [row % 5 if name == "tokens" else row for row in range(60)]
            assert dataset.lengths.tolist() == expected
    fixed = pa.table({"tokens": pa.array([[5, 6, 7]] * 2, pa.list_(pa.int64(), 3))})
    pq.write_table(fixed, tmp_path / "packed.parquet")
    with opened(tmp_path / "packed.parquet", lengths="tokens") as dataset:
        assert dataset.lengths.tolist() == [3, 3]
    pq.write_table(pa.table({"tokens": [[5], None]}), tmp_path / "null.parquet")
    refused = pytest.raises(sk.DatasetError, match=r"column 'tokens' .*has no len")
    with opened(tmp_path / "null.parquet", lengths="tokens") as dataset, refused:
        dataset.lengths.tolist()
    pq.write_table(pa.table({"tokens": [0.5, 2.0]}), tmp_path / "float.parquet")
    refused = pytest.raises(sk.DatasetError, match="lists or strings, but 'tokens' is of type, got 'float64'")
    with opened(tmp_path / "float.parquet", lengths="tokens") as dataset, refused:
        dataset.lengths.tolist()


def test_a_file_rewritten_with_the_same_size_and_time_is_an_error(tmp_path):
    """The footer differs, in a process that has not read it yet."""
    (path,) = write(tmp_path, [(6, 3)], compression="none")
    dataset = opened(path)
    assert dataset[5]["id"] == 5
    fingerprint, status = dataset.fingerprint, Path(path).stat()
    dataset.close()
    whole = Path(path).read_bytes()
    pq.write_table(table_of(100, 106), path, row_group_size=3, compression="none")
    with pytest.raises(sk.DatasetError, match="was changed while it was in use"):
        dataset[5]
    other = Path(path).read_bytes()
    assert opened(path).fingerprint != fingerprint
    if len(other) == len(whole):
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
        with pytest.raises(sk.DatasetError, match="its footer was changed"):
            dataset[5]


def test_files_with_other_columns_are_refused_by_name(tmp_path):
    pq.write_table(pa.table({"a": [1]}), tmp_path / "0.parquet")
    pq.write_table(pa.table({"a": ["x"]}), tmp_path / "1.parquet")
    assert_refused(opened(str(tmp_path / "*.parquet")), r"1\.parquet: has other columns than 0\.parquet")
    assert_refused(opened(tmp_path / "0.parquet", ["b"]), "must have one column 'b'")
    with pytest.raises(sk.DatasetError, match=r"must have one column 'b', got \['a'\]"):
        opened(tmp_path / "0.parquet").column("b")


def test_a_filter_of_another_type_is_an_error_with_a_hint(tmp_path):
    dataset = opened(write(tmp_path), filters=[("id", ">", "x")])
    assert_refused(dataset, r"cannot be filtered.*compare a column with values of its own type")


def test_the_columns_of_a_row_group_at_a_url_are_requested_at_the_same_time(tmp_path):
    columns = {name: np.arange(20_000) for name in "abcde"}
    pq.write_table(pa.table(columns), tmp_path / "a.parquet", use_dictionary=False, compression="none")
    barrier, before = Barrier(3), set(enumerate_threads())

    def wait(handler, resource):
        barrier.wait(60)
        answer_correctly(handler, resource)

    with served() as server:
        url = server.put("/a.parquet", (tmp_path / "a.parquet").read_bytes())
        with opened(url, ["a", "c", "e"], remote={"cache": tmp_path}) as dataset:
            assert len(dataset) == 20_000
            server.always["GET", "/a.parquet"] = wait
            assert plain(dataset[77]) == {"a": 77, "c": 77, "e": 77}
        assert not new_threads(before)  # a closed dataset has no threads that send requests


HIVE = [("2023", "en"), ("2024", "en"), ("2024", "a%20b"), ("7", "__HIVE_DEFAULT_PARTITION__")]


def test_keys_of_hive_folders_are_columns_as_pyarrow_reads_them(tmp_path):
    dataset = pytest.importorskip("pyarrow.dataset")
    paths = []
    for number, (year, lang) in enumerate(HIVE):
        folder = tmp_path / f"year={year}" / f"lang={lang}"
        folder.mkdir(parents=True)
        table = pa.table({"id": range(10 * number, 10 * number + 10)})
        pq.write_table(table, folder / "0.parquet", row_group_size=4)
        paths.append(str(folder / "0.parquet"))
    expected = dataset.dataset(paths, partitioning="hive").to_table().to_pylist()
    with opened(paths, partitioning="hive") as ours:
        assert ours.__getitems__(range(40)) == expected
        assert ours.column_names == ("id", "year", "lang")
        assert ours["year"].tolist() == [row["year"] for row in expected]
        fingerprint = ours.fingerprint
    assert opened(paths[0]).column_names == ("id",)
    for filters in (
        [("year", ">=", 2024)],
        [("lang", "==", "en"), ("id", ">", 12)],
        [("lang", "in", ["a b"])],
    ):
        expression = pq.filters_to_expression(filters)
        expected = dataset.dataset(paths, partitioning="hive").to_table(filter=expression).to_pylist()
        with opened(paths, partitioning="hive", filters=filters) as ours:
            assert ours.__getitems__(range(len(ours))) == expected
    with opened(paths, ["lang", "id"], partitioning="hive", batches="arrow") as ours:
        assert ours.__getitems__([25, 26]).to_pylist() == [{"lang": "a b", "id": id} for id in (25, 26)]
    (tmp_path / "year=2023").rename(tmp_path / "year=2022")
    paths[0] = paths[0].replace("2023", "2022")
    assert opened(paths, partitioning="hive").fingerprint != fingerprint
    with opened(paths) as ours:
        assert ours[0] == {"id": 0}


def test_folders_with_missing_different_or_duplicate_keys_are_errors(tmp_path):
    for places, problem in (
        (["a/0.parquet"], "has no keys"),
        (["x=%ff/0.parquet"], "cannot be read .ArrowInvalid: .* not valid UTF-8"),
        (["x=1/0.parquet", "y=1/0.parquet"], "has other keys in the names of its folders"),
        (["x=1/0.parquet", "x=1/x=2/0.parquet"], "has other keys in the names of its folders"),
        (["id=1/0.parquet"], "must have one column 'id'"),
    ):
        for place in places:
            (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
            pq.write_table(pa.table({"id": [1]}), tmp_path / place)
        paths = [tmp_path / place for place in places]
        with pytest.raises(DatasetError, match=problem):
            len(opened(paths, partitioning="hive"))


def test_times_are_numpy_values_without_a_time_zone_and_python_values_with_one(tmp_path):
    times = pa.array([0, 5], pa.timestamp("us"))
    table = pa.table({"at": times, "zoned": times.cast(pa.timestamp("us", tz="UTC"))})
    pq.write_table(table, tmp_path / "times.parquet")
    sample = sk.ParquetDataset(tmp_path / "times.parquet")[1]
    assert (type(sample["at"]), sample["at"]) == (np.datetime64, np.datetime64(5, "us"))
    assert sample["zoned"] == datetime(1970, 1, 1, microsecond=5, tzinfo=UTC)
