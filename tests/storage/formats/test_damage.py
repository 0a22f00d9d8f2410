"""Damage at random, of each format: an error or the same data, unless no checksum covers it."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Container
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import samplerkit as sk
from samplerkit.testing.contract import same
from tests.storage.formats import mds_shards, test_arrays, test_arrow, test_keyed, test_litdata, tf_records
from tests.storage.formats.damage import TIMES, outcomes
from tests.storage.formats.litdata_chunks import FOLDERS
from tests.storage.formats.mds_shards import sample_of
from tests.storage.formats.mindrecord_rows import EVERY, FILES, FOLDER
from tests.storage.formats.test_mds import FOLDER as MDS
from tests.storage.formats.test_parquet import table_of, write


@dataclass
class Case:
    """A file, what makes a dataset of it, and its samples.

    Args:
        errors: the least part of damage that is an error.
        values: the places that no checksum covers, and that lead nowhere.
        is_seen: whether the dataset has seen the file whole; then its time is set back.
    """

    path: Path
    make: Callable[[], Any]
    samples: list[Any]
    errors: float = 1 / 3
    values: Container[int] = ()
    is_seen: bool = False


class Outside:
    """All places but these."""

    def __init__(self, leading):
        self._leading = leading

    def __contains__(self, place):
        return place not in self._leading


def parquet(folder):
    (path,) = write(folder, [(40, 16)], write_page_checksum=True)
    rows = table_of(0, 40).to_pylist()
    return Case(Path(path), lambda: sk.ParquetDataset(path, progress=False), rows, 1 / 2, is_seen=True)


def arrow(folder):
    from samplerkit.storage.formats.arrow.dataset import ArrowFile  # noqa: PLC0415

    path = Path(test_arrow.write(folder)[1])
    file = ArrowFile.of(str(path))
    bodies = {
        at for m in (*file.batches, *file.dictionaries) for at in range(m.span[0] + m.header, sum(m.span))
    }
    rows = test_arrow.table_of(5, 16).to_pylist()
    return Case(path, lambda: sk.ArrowDataset([path]), rows, values=bodies, is_seen=True)


def hdf5(folder):
    pytest.importorskip("h5py", reason="h5py is not installed: its damage is not tried")
    return of_contract(test_arrays.TestHdf5(), folder, folder / "0.h5")


def zarr(folder):
    pytest.importorskip("zarr", reason="zarr is not installed: its damage is not tried")
    return of_contract(test_arrays.TestZarr(), folder, None)


def of_contract(contract, folder, path):
    samples = [sample for chunk in contract.write(str(folder)) for sample in chunk]
    return Case(
        Path(path or contract.victim(folder)), lambda: contract.make(str(folder)), samples, is_seen=True
    )


def sqlite(folder):
    test_keyed.filled(folder / "a.db", range(60))
    rows = [{"id": 3 * row, "text": f"row {row}", "data": bytes([row] * 90)} for row in range(60)]
    leading = range(2 * 4096)  # the first page has the schema, the second one leads to those of rows
    make = lambda: sk.SqliteDataset(folder / "a.db", "samples")  # noqa: E731
    return Case(folder / "a.db", make, rows, 1 / 5, Outside(leading))


def mds(name):
    def case(folder):
        pytest.importorskip("pyarrow", reason="pyarrow is not installed: it unpacks zstd")
        shutil.copytree(MDS / name, folder, dirs_exist_ok=True)
        with sk.MdsDataset(folder) as dataset:
            samples = dataset.__getitems__(range(dataset.layout.sizes[0]))
        return Case(min(folder.glob("shard*")), lambda: sk.MdsDataset(folder), samples, 1)

    return case


def mds_without_digests(folder):
    mds_shards.write(folder, [(0, 12)], hashes=())
    path = folder / "shard.00000.mds"
    leading = range(path.read_bytes().index(b"}") + 1)
    return Case(path, lambda: sk.MdsDataset(folder), list(map(sample_of, range(12))), values=Outside(leading))


def litdata(name):
    def case(folder):
        shutil.copytree(test_litdata.FOLDER / name, folder, dirs_exist_ok=True)
        path = folder / "chunk-0-0.bin"
        samples = [test_litdata.comparable(FOLDERS[name][1](row)) for row in range(7)]
        ends = np.frombuffer(path.read_bytes(), "<u4", 8, 4)
        leads = {
            "plain": {int(end) + at for end in ends[:-1] for at in range(4 * 13)},
            "batch": range(128),
            "rows": (),
        }
        leading = {*range(36), *leads[name]}
        make = lambda: sk.LitDataset(folder, decode=test_litdata.comparable)  # noqa: E731
        return Case(path, make, samples, values=Outside(leading))

    return case


def mindrecord(folder):
    """Without what fills pages up, so that it hits something: header, numbers, and bytes and arrays."""
    whole = (FOLDER / "every").read_bytes()
    header = json.loads(whole[8 : 8 + int.from_bytes(whole[:8], "little")])
    used = {page["page_type"]: page["page_size"] for page in header["page"]}
    blob = whole[16384 : 16384 + used["BLOB_DATA"]]
    raw = whole[16384 + 32768 :][: used["RAW_DATA"]]
    data = json.dumps(header | {"page_size": len(blob), "header_size": 1400}).encode()
    path = folder / "a"
    path.write_bytes((len(data).to_bytes(8, "little") + data).ljust(1400, b"\0") + blob + raw)
    rows = [{column: row[column] for column in sorted(EVERY)} for row in FILES["every"][1]]
    make = lambda: sk.MindRecordDataset([path], progress=False)  # noqa: E731
    return Case(path, make, rows, values=Outside(range(1400)))


def tfrecord(name, *, is_seen):
    """Each byte of a record is under a checksum; what was seen whole is held against its index too."""

    def case(folder):
        path, is_packed = folder / name, name.endswith(".gz")
        records = [tf_records.example(tf_records.features_of(row)) for row in range(12)]
        tf_records.write(path, records)
        borders = np.cumsum([len(tf_records.framed(record)) for record in records])[:-1].tolist()

        def make():
            if not is_seen and not is_packed and path.stat().st_size in borders:
                raise sk.DatasetError("cut", "between two records, which leaves a whole file")
            return sk.TfRecordDataset([path], scalars=["id"], run_bytes=300, progress=False)

        samples = list(map(tf_records.sample_of, range(12)))
        return Case(path, make, samples, 0.9 if is_packed else 1, is_seen=is_seen)

    return case


CASES = {
    "parquet": parquet,
    "arrow": arrow,
    "hdf5": hdf5,
    "zarr": zarr,
    "sqlite": sqlite,
    "mds": mds("plain"),
    "mds, zstd": mds("zstd"),
    "mds without digests": mds_without_digests,
    "litdata": litdata("plain"),
    "litdata, batches": litdata("batch"),
    "litdata, rows": litdata("rows"),
    "mindrecord": mindrecord,
    "tfrecord": tfrecord("a.tfrecord", is_seen=False),
    "tfrecord, gzip": tfrecord("a.tfrecord.gz", is_seen=False),
    "tfrecord, seen whole": tfrecord("a.tfrecord", is_seen=True),
    "tfrecord, gzip, seen whole": tfrecord("a.tfrecord.gz", is_seen=True),
}


@pytest.mark.parametrize("name", CASES)
def test_damage_is_an_error_or_the_same_data(tmp_path, name):
    case = CASES[name](tmp_path)
    make, knows = case.make, case.make()
    assert same(list(knows.__getitems__(range(len(case.samples)))), case.samples)
    knows.close()
    if case.is_seen:
        about = case.path.stat()

        def make():
            os.utime(case.path, ns=(about.st_atime_ns, about.st_mtime_ns))
            return knows

    seed = 6 if name in {"hdf5", "zarr"} else 4
    found, others = outcomes(case.path, make, case.samples, TIMES, seed)
    print(f"{name}, {'seen whole' if case.is_seen else 'never seen'}: {dict(found)}")
    assert [place for _, place in others if place not in case.values] == []
    assert found["error"] >= case.errors * TIMES
