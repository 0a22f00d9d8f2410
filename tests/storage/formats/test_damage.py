"""Damage at random, of each format: an error or the same data, unless no checksum covers it."""

import json
import os
import shutil
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import samplerkit as sk
from samplerkit.storage.formats.arrow import ArrowFile
from samplerkit.testing.contract import same
from tests.storage.formats import (
    test_arrays,
    test_arrow,
    test_jsonl,
    test_keyed,
    test_litdata,
    test_mds,
    test_parquet,
    tf_records,
)
from tests.storage.formats.damage import TIMES, cut_or_flip, outcome, outcome_in_a_fork, outcomes, splice
from tests.storage.formats.litdata_chunks import FOLDERS
from tests.storage.formats.mindrecord_rows import EVERY, FILES, FOLDER


@dataclass
class Case:
    """A file, what makes a dataset of it, and its samples.

    Args:
        errors: the least fraction of damages that are errors.
        values: the places that no checksum covers, and that are no offsets or lengths.
        is_seen: whether the dataset has read the file before the damage; then its time is set back.
        read: reads a damaged file, and returns the outcome.
        damages: what is done to it.
    """

    path: Path
    make: Callable[[], Any]
    samples: list[Any]
    errors: float = 1 / 3
    values: Container[int] = ()
    is_seen: bool = False
    read: Callable[..., str] = outcome
    damages: Sequence[Callable[..., bytes]] = (cut_or_flip,)


class Outside:
    """All places but these."""

    def __init__(self, leading):
        self._leading = leading

    def __contains__(self, place):
        return place not in self._leading


EVERYWHERE = Outside(())


def from_contract(contract, errors=1 / 3, values=lambda _: (), **options):
    """A case of the files that a contract writes; `values` returns the places in one."""

    def case(folder):
        samples = [sample for chunk in contract().write(str(folder)) for sample in chunk]
        path = contract().victim(folder)
        make = partial(contract().make, str(folder))
        return Case(path, make, samples, errors, values(path), **options)

    return case


def footer_of(path):
    """The places of the footer of a Parquet file, which no checksum covers."""
    data = path.read_bytes()
    return range(len(data) - 8 - int.from_bytes(data[-8:-4], "little"), len(data))


def bodies_of(path):
    """The places of numbers and texts in an Arrow stream."""
    file = ArrowFile.of(str(path))
    parts = (*file.batches, *file.others)
    return {at for part in parts for at in range(part.span[0] + part.header, sum(part.span))}


def jsonl(name):
    def case(folder):
        path, samples = folder / name, [*map(test_jsonl.row, range(12))]
        path.write_bytes(test_jsonl.compressed(test_jsonl.text_of(samples), name))
        dataset = sk.JsonlDataset([path], progress=False)
        return Case(path, lambda: dataset, samples, 0.96, is_seen=True, damages=(cut_or_flip, splice))

    return case


def mds_zstd(folder):
    pytest.importorskip("pyarrow", reason="pyarrow is not installed: it unpacks zstd")
    test_mds.copied(folder, name="zstd")
    with sk.MdsDataset(folder) as dataset:
        samples = dataset.__getitems__(range(dataset.layout.sizes[0]))
    return Case(min(folder.glob("shard*")), lambda: sk.MdsDataset(folder), samples, 1)


def mds_without_digests(folder):
    test_mds.copied(folder, lambda shards: [shard["raw_data"].update(hashes={}) for shard in shards])
    path, rows = folder / "shard.00000.mds", [*map(test_mds.sample_of, range(7))]
    leading = range(path.read_bytes().index(b"}") + 1)
    return Case(path, lambda: sk.MdsDataset(folder), rows, values=Outside(leading))


def litdata(name):
    def case(folder):
        shutil.copytree(test_litdata.FOLDER / name, folder, dirs_exist_ok=True)
        path = folder / "chunk-0-0.bin"
        samples = [test_litdata.comparable(FOLDERS[name][1](row)) for row in range(7)]
        ends = np.frombuffer(path.read_bytes(), "<u4", 8, 4)
        leading_by_name = {
            "plain": {int(end) + at for end in ends[:-1] for at in range(4 * 13)},
            "batch": range(128),
            "rows": (),
        }
        leading = {*range(36), *leading_by_name[name]}
        make = lambda: sk.LitDataset(folder, decode=test_litdata.comparable)  # noqa: E731
        return Case(path, make, samples, values=Outside(leading))

    return case


def mindrecord(folder):
    """Without the padding of pages, so that damage hits the header, numbers, bytes or arrays."""
    whole = (FOLDER / "every").read_bytes()
    header = json.loads(whole[8 : 8 + int.from_bytes(whole[:8], "little")])
    sizes = {page["page_type"]: page["page_size"] for page in header["page"]}
    blob = whole[16384 : 16384 + sizes["BLOB_DATA"]]
    raw = whole[16384 + 32768 :][: sizes["RAW_DATA"]]
    data = json.dumps(header | {"page_size": len(blob), "header_size": 1400}).encode()
    path = folder / "a"
    path.write_bytes((len(data).to_bytes(8, "little") + data).ljust(1400, b"\0") + blob + raw)
    rows = [{column: row[column] for column in sorted(EVERY)} for row in FILES["every"][1]]
    make = lambda: sk.MindRecordDataset([path], progress=False)  # noqa: E731
    return Case(path, make, rows, values=Outside(range(1400)))


def tfrecord(name, *, is_seen):
    """Each byte of a record is under a checksum; a file read before is checked against its index too."""

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
    "parquet": from_contract(test_parquet.TestParquet, 1 / 2, is_seen=True),
    "parquet, never seen": from_contract(test_parquet.TestParquet, 1 / 2, footer_of),
    "arrow": from_contract(test_arrow.TestArrow, values=bodies_of, is_seen=True),
    "hdf5": from_contract(test_arrays.TestHdf5, is_seen=True),
    "zarr": from_contract(test_arrays.TestZarr, is_seen=True),
    # The first page has the schema, the second one the numbers of the pages of rows.
    "sqlite": from_contract(test_keyed.TestSqlite, 1 / 5, lambda _: Outside(range(2 * 4096))),
    # LMDB trusts the numbers in pages: one bit may lead it anywhere, or end the process.
    "lmdb": from_contract(test_keyed.TestLmdb, 1 / 5, lambda _: EVERYWHERE, read=outcome_in_a_fork),
    "mds": from_contract(test_mds.TestMds, 1),
    "mds, zstd": mds_zstd,
    "mds without digests": mds_without_digests,
    "litdata": litdata("plain"),
    "litdata, batches": litdata("batch"),
    "litdata, rows": litdata("rows"),
    "mindrecord": mindrecord,
    "tfrecord": tfrecord("a.tfrecord", is_seen=False),
    "tfrecord, gzip": tfrecord("a.tfrecord.gz", is_seen=False),
    "tfrecord, seen whole": tfrecord("a.tfrecord", is_seen=True),
    "tfrecord, gzip, seen whole": tfrecord("a.tfrecord.gz", is_seen=True),
    "jsonl": jsonl("a.jsonl"),
    "jsonl, gzip": jsonl("a.jsonl.gz"),
    "jsonl, zstd": jsonl("a.jsonl.zst"),
}


@pytest.mark.parametrize("name", CASES)
def test_damage_is_an_error_or_the_same_data(tmp_path, name):
    case = CASES[name](tmp_path)
    make, dataset = case.make, case.make()
    assert same(list(dataset.__getitems__(range(len(case.samples)))), case.samples)
    dataset.close()
    if case.is_seen:
        status = case.path.stat()

        def make():
            os.utime(case.path, ns=(status.st_atime_ns, status.st_mtime_ns))
            return dataset

    seed = 6 if name in {"hdf5", "zarr"} else 4
    for damage in case.damages:
        counts, others = outcomes(case.path, make, case.samples, TIMES, seed, case.read, damage)
        print(f"{name}, {damage.__name__}: {dict(counts)}")
        assert [place for _, place in others if place not in case.values] == []
        assert counts["error"] >= case.errors * TIMES
        assert not counts["signal of a cut"]


def test_a_memory_error_names_the_record_batch(tmp_path, monkeypatch):
    """A damaged length of an Arrow buffer can cause it."""
    pa = pytest.importorskip("pyarrow")
    with pa.ipc.new_stream(f"{tmp_path}/a.arrow", (batch := pa.record_batch({"x": [1]})).schema) as stream:
        stream.write_batch(batch)
    dataset = sk.ArrowDataset(f"{tmp_path}/a.arrow")
    monkeypatch.setattr(ArrowFile, "read", lambda *_: bytearray(1 << 62))
    with pytest.raises(MemoryError) as caught:
        len(dataset), dataset[0]
    assert f"{tmp_path}/a.arrow, record batch 0" in "".join(caught.value.__notes__)
