"""Apache's own suite of Parquet files: what pyarrow reads is read alike, what it refuses is an error.

The files are not in this repository. With a checkout of github.com/apache/parquet-testing:
`SAMPLERKIT_PARQUET_TESTING=FOLDER pytest -rP tests/storage/formats/test_parquet_testing.py`
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import samplerkit as sk

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
"""pyarrow reads a table of it, and Python has no value for a time in it: that is read as Arrow alone."""


def read_by_pyarrow(path):
    """The table, by row groups, with the checksums that there are; None where pyarrow refuses."""
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
    """Compares by Arrow's own comparison, or where that tells NaN from NaN, by what Python writes."""
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
