"""Parquet is read as pyarrow reads it or refused as there, without calls that could end the process.

Apache's own suite of files is not in this repository. With a checkout of github.com/apache/parquet-testing:
`SAMPLERKIT_PARQUET_TESTING=FOLDER pytest -rP tests/storage/formats/test_parquet_testing.py`
"""

import gc
import os
from pathlib import Path

import pytest

import samplerkit as sk
from tests.storage.crowd import Child
from tests.storage.formats.test_parquet import write

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed: no Parquet here")
pq = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed: no Parquet here")

FOLDER = os.environ.get("SAMPLERKIT_PARQUET_TESTING", "")
FILES = sorted(
    path for part in ("data", "bad_data") for path in Path(FOLDER, part).rglob("*.parquet*") if FOLDER
)
FILES = [path for path in FILES if path.suffix != ".json"]
needs_files = pytest.mark.skipif(
    not FILES, reason="SAMPLERKIT_PARQUET_TESTING names no checkout of the suite"
)

OUTSIDE_OF_PYTHON = {"nested_structs.rust.parquet"}
"""pyarrow reads a table of it, but Python has no value for one of its times: it is read as Arrow only."""


def read_by_pyarrow(path):
    """The table, by row groups, with checks of existing checksums; None where pyarrow refuses."""
    try:
        file = pq.ParquetFile(path, page_checksum_verification=True)
        table = pa.concat_tables(
            [file.read_row_group(number) for number in range(file.num_row_groups)] or [file.read()]
        )
        table.validate()
    except Exception:  # whatever pyarrow raises
        return None
    return table


def read(path, batches):
    with sk.ParquetDataset(path, batches=batches, progress=False) as dataset:
        return dataset.__getitems__(range(len(dataset)))


def assert_same(values, column):
    """Compares by Arrow's own comparison, or, since there NaN differs from NaN, by Python's `repr`."""
    ours = pa.array(values, type=column.type, from_pandas=False)
    theirs = column.combine_chunks()
    theirs = theirs if isinstance(theirs, pa.Array) else pa.concat_arrays(theirs.chunks)
    assert ours.equals(theirs) or repr(ours.to_pylist()) == repr(theirs.to_pylist())


@needs_files
@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_a_file_of_the_suite_is_read_as_pyarrow_reads_it_or_refused_as_there(path):
    table = read_by_pyarrow(path)
    if table is None:
        with pytest.raises(sk.DatasetError, match=path.name) as caught:
            read(path, "samples")
        print(f"refused: {caught.value.problem}")
        return
    if table.num_rows:
        batch = read(path, "arrow")
        assert batch.schema.equals(table.schema)
        for name in table.column_names:
            assert_same(batch.column(name), table.column(name))
    if path.name in OUTSIDE_OF_PYTHON:
        with pytest.raises(sk.DatasetError, match=r"Python values, column 'ul_observation_date'"):
            read(path, "samples")
        return
    samples = read(path, "samples")
    assert len(samples) == table.num_rows
    for name in table.column_names if samples else ():
        assert_same([sample[name] for sample in samples], table.column(name))
    print(f"read: {table.num_rows} rows, {table.num_columns} columns")


def test_a_value_that_python_cannot_hold_is_an_error_that_names_its_column_and_is_read_as_arrow(tmp_path):
    """Times after the year 9999, and texts of other encodings: pyarrow checks neither when it reads."""
    late = pa.array([{"at": 1 << 60}], pa.struct({"at": pa.timestamp("us")}))
    text = pa.Array.from_buffers(
        pa.string(), 1, [None, pa.py_buffer(b"\0\0\0\0\1\0\0\0"), pa.py_buffer(b"\xff")]
    )
    table = pa.table({"late": late, "text": text, "id": [7]})
    pq.write_table(table, tmp_path / "a.parquet")
    for name in ("late", "text"):
        with sk.ParquetDataset(tmp_path / "a.parquet", [name], progress=False) as dataset:
            problem = (
                rf"row group 0: cannot be converted to Python values, column '{name}' \(.*; read it as arrow"
            )
            with pytest.raises(sk.DatasetError, match=problem):
                dataset[0]
            with pytest.raises(sk.DatasetError, match=f"column '{name}'"):
                dataset[name]
    with sk.ParquetDataset(tmp_path / "a.parquet", batches="arrow", progress=False) as dataset:
        assert dataset.__getitems__([0]).column("late").equals(late)
    with sk.ParquetDataset(tmp_path / "a.parquet", ["id"], progress=False) as dataset:
        assert dataset[0] == {"id": 7}


def test_rows_are_counted_by_row_group_where_the_footer_has_another_sum(tmp_path):
    """Some writers omit the sum: pyarrow reads all row groups, and so do both of our readers."""
    (path,) = write(tmp_path, [(7, 3)])
    data = Path(path).read_bytes()
    at = data.index(bytes([0x16, 14]), len(data) - 8 - int.from_bytes(data[-8:-4], "little"))  # the number 7
    Path(path).write_bytes(data[:at] + bytes([0x16, 0]) + data[at + 2 :])
    assert pq.read_metadata(path).num_rows == 0
    with sk.ParquetDataset(path, progress=False) as dataset:
        assert [sample["id"] for sample in dataset.__getitems__(range(7))] == list(range(7))
    with sk.FileDataset(path, "parquet", progress=False) as dataset:
        assert len(dataset) == 7
        assert dataset[6]["id"] == 6


def count_errors(path):
    """Flips a bit of each byte of a footer, and reads with a filter or without; counts the errors of each."""
    whole, errors = path.read_bytes(), [0, 0]
    filters = [None, [("maybe", ">", 3)]]
    for bit in range(8 * (len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")), 8 * len(whole), 7):
        other = bytearray(whole)
        other[bit // 8] ^= 1 << bit % 8
        path.write_bytes(other)
        try:
            with sk.ParquetDataset(path, filters=filters[bit % 2], progress=False) as dataset:
                dataset.__getitems__(range(len(dataset)))
        except sk.DatasetError:
            errors[bit % 2] += 1
    return errors


def test_no_damage_to_a_footer_ends_the_process(tmp_path):
    """pyarrow ends it when a column with damaged metadata is requested: so none is.

    The footer is without the schema that pyarrow itself stores in it.
    """
    table = pa.table({"maybe": [None, 3, 4, 5]})
    options = {"store_schema": False, "compression": "none", "use_dictionary": False}
    pq.write_table(table, tmp_path / "a.parquet", **options)
    assert all(errors > 30 for errors in Child(count_errors, tmp_path / "a.parquet").result())


def test_readers_are_freed_with_their_dataset(tmp_path):
    """pyarrow keeps the file that it reads where the garbage collector cannot see it."""
    path = tmp_path / "many.parquet"
    pq.write_table(pa.table({"id": range(400)}), path, row_group_size=10)
    with sk.ParquetDataset([path], ["id"], progress=False) as dataset:
        assert [dataset[number]["id"] for number in range(400)] == [*range(400)]
    del dataset
    gc.collect()
    assert [type(one) for one in gc.get_objects() if type(one).__name__ == "_PartReader"] == []
