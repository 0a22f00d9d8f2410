"""A dataset of a catalogue is that of its files, which are not read; wrong catalogues are errors."""

import os
import pickle
import random
import shutil
import time
import zlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import samplerkit as sk
from samplerkit.errors import ArgumentValueError, DatasetError
from samplerkit.storage.catalogue import making
from samplerkit.storage.catalogue.catalogue_file import read_catalogue, write_catalogue
from samplerkit.storage.catalogue.file_catalogue import FileCatalogue, joined
from samplerkit.storage.catalogue.making import look, make_catalogue
from tests.storage.catalogue.kinds import FILES, PARQUET, SAMPLES, TAR, samples_of
from tests.storage.forging import forge
from tests.storage.remote.server import served


def make_all(kind, folder):
    out = f"{folder}/all.skcat"
    make_catalogue(kind.written(folder), out, kind.reader)
    return out


def test_a_dataset_of_a_catalogue_is_the_dataset_of_its_files(kind, tmp_path):
    out = make_all(kind, tmp_path / "data")
    plain, listed = kind.open(f"{tmp_path}/data/*{kind.suffix}"), kind.open(out)
    assert listed.is_layout_known
    assert listed.layout == plain.layout
    assert samples_of(listed) == samples_of(plain)
    if kind is not PARQUET:
        assert listed.shard_bytes().tolist() == plain.shard_bytes().tolist()
    assert samples_of(pickle.loads(pickle.dumps(listed))) == samples_of(plain)  # noqa: S301


def test_a_state_moves_from_parquet_files_to_their_catalogue_and_from_given_shards_to_theirs(tmp_path):
    out = make_all(PARQUET, tmp_path)
    assert sk.ParquetDataset(out).fingerprint == sk.ParquetDataset(f"{tmp_path}/*.parquet").fingerprint
    out, shards = make_all(TAR, tmp_path / "tar"), f"{tmp_path}/tar/*.tar"
    assert sk.TarDataset(out).fingerprint == sk.TarDataset(shards, lengths=list(SAMPLES)).fingerprint


def test_a_machine_requests_a_catalogue_once_and_then_only_data(kind, tmp_path):
    kind.written(tmp_path / "data")
    with served(tmp_path / "data") as server:
        urls = [f"{server.url}/{number}{kind.suffix}" for number in range(len(SAMPLES))]
        make_catalogue(urls, f"{tmp_path}/data/all.skcat", kind.reader)
        remote = {"cache": str(tmp_path / "cache")}
        server.requests.clear()
        with kind.open(f"{server.url}/all.skcat", remote=remote) as dataset:
            assert [*dataset.layout.sizes] == [*kind.open(f"{tmp_path}/data/*{kind.suffix}").layout.sizes]
            assert len(dataset) == sum(SAMPLES)
            requests = [(one.method, one.name) for one in server.requests]
            assert requests == [("VERSION", "all.skcat"), ("GET", "all.skcat")]
            # Another rank on the machine asks for the version alone.
            server.requests.clear()
            assert len(kind.open(f"{server.url}/all.skcat", remote=remote)) == sum(SAMPLES)
            assert [(one.method, one.name) for one in server.requests] == [("VERSION", "all.skcat")]
            server.requests.clear()
            samples = samples_of(dataset)
        assert {one.name for one in server.requests if "skidx" not in one.name} <= {
            "all.skcat",
            *(f"{number}{kind.suffix}" for number in range(len(SAMPLES))),
        }
        assert not [one for one in server.requests if one.method == "VERSION"]
        with kind.open(urls, remote=remote) as plain:
            assert samples == samples_of(plain)


def test_a_remote_file_that_changed_is_an_error_that_names_it(kind, tmp_path):
    kind.written(tmp_path)
    with served(tmp_path) as server:
        make_catalogue(f"{server.url}/0{kind.suffix}", f"{tmp_path}/all.skcat", kind.reader)
        kind.write(tmp_path / f"0{kind.suffix}", 100, 5)
        remote = {"cache": str(tmp_path / "other")}
        with (
            kind.open(f"{tmp_path}/all.skcat", remote=remote) as dataset,
            pytest.raises(DatasetError, match=f"/0\\{kind.suffix}.*changed"),
        ):
            samples_of(dataset)


def test_a_file_written_to_in_the_meantime_is_an_error_that_names_it(kind, tmp_path):
    """Though it holds the same; those that hold something else at the same time are in the contract."""
    dataset = kind.open(make_all(kind, tmp_path))
    path = tmp_path / f"1{kind.suffix}"
    os.utime(path, ns=(0, path.stat().st_mtime_ns + 1))
    assert samples_of(kind.open([f"{tmp_path}/0{kind.suffix}"]))
    with pytest.raises(DatasetError, match=f"1\\{kind.suffix}"):
        samples_of(dataset)


def test_a_folder_is_moved_with_its_catalogue(kind, tmp_path):
    make_all(kind, tmp_path / "before")
    expected = samples_of(kind.open(f"{tmp_path}/before/all.skcat"))
    shutil.move(tmp_path / "before", tmp_path / "after")
    assert samples_of(kind.open(tmp_path / "after" / "all.skcat")) == expected
    with served(tmp_path / "after") as web:
        refused = pytest.raises(DatasetError, match="lists local files, but is remote itself")
        with refused, kind.open(f"{web.url}/all.skcat") as dataset:
            len(dataset)


def test_row_filters_use_the_footers_in_the_catalogue(tmp_path):
    out = make_all(PARQUET, tmp_path)
    filters = [("id", ">=", 4)]
    plain, listed = (sk.ParquetDataset(files, filters=filters) for files in (f"{tmp_path}/*.parquet", out))
    assert (samples_of(listed), listed.fingerprint) == (samples_of(plain), plain.fingerprint)
    assert sk.ParquetDataset(out, ["id"]).column("id").tolist() == list(range(sum(SAMPLES)))
    with pytest.raises(DatasetError, match="must have one column 'other'"):
        len(sk.ParquetDataset(out, ["other"]))


def test_a_catalogue_that_is_cut_or_changed_by_a_bit_is_an_error(tmp_path):
    path = tmp_path / "all.skcat"
    rows = [FileCatalogue.of_file("tar", f"/data/{n}.tar", 10240, str(n), [n]) for n in range(50)]
    write_catalogue(joined(rows), str(path))
    data, dice = path.read_bytes(), random.Random(7)
    for _ in range(120):
        place = dice.randrange(len(data))
        damaged = bytearray(data[:place] if dice.random() < 1 / 3 else data)
        if len(damaged) == len(data):
            damaged[place] ^= 1 << dice.randrange(8)
        path.write_bytes(damaged)
        with pytest.raises(DatasetError, match=r"all\.skcat.*samplerkit catalogue"):
            read_catalogue(str(path))


IMPOSSIBLE = {
    "not a catalogue": lambda meta, arrays: meta.pop("kind"),
    "of a kind that is not known": lambda meta, arrays: meta.update(kind="mds"),
    "columns that are none": lambda meta, arrays: meta.update(columns=[["id"]]),
    "a folder that is none": lambda meta, arrays: meta.update(folder=7),
    "names that are no deflated bytes": lambda meta, arrays: arrays.update(names=np.zeros(9, np.uint8)),
    "names without their checksum": lambda meta, arrays: arrays.update(names=arrays["names"][:-4]),
    "names in another order": lambda meta, arrays: arrays.update(
        names=np.frombuffer(zlib.compress(zlib.decompress(arrays["names"])[::-1]), np.uint8)
    ),
    "names of other files": lambda meta, arrays: arrays.update(sizes=arrays["sizes"][1:]),
    "no versions": lambda meta, arrays: arrays.pop("versions"),
    "a size below zero": lambda meta, arrays: arrays.update(sizes=-arrays["sizes"].astype("<i8")),
    "a number of samples below zero": lambda meta, arrays: arrays.update(
        samples=-arrays["samples"].astype("<i8")
    ),
    "a chunk more": lambda meta, arrays: arrays["chunks"].__setitem__(0, arrays["chunks"][0] + 1),
    "too many samples": lambda meta, arrays: arrays.update(samples=np.full(arrays["samples"].size, 1 << 61)),
    "a footer larger than its file": lambda meta, arrays: arrays.update(footers=arrays["sizes"]),
    "a digest less": lambda meta, arrays: arrays.update(digests=arrays["digests"][:-16]),
}


@pytest.mark.parametrize("change", IMPOSSIBLE.values(), ids=IMPOSSIBLE.keys())
def test_an_impossible_value_in_a_catalogue_is_an_error_that_names_it(tmp_path, change):
    out = make_all(PARQUET, tmp_path)
    forge(tmp_path / "all.skcat", change)
    with pytest.raises(DatasetError, match=r"all\.skcat"):
        sk.ParquetDataset(out)


WRONG_FACTS = [(TAR, "samples"), (FILES, "samples"), (PARQUET, "samples"), (PARQUET, "digests")]


@pytest.mark.parametrize(("kind", "name"), WRONG_FACTS, ids=lambda value: getattr(value, "name", value))
def test_a_catalogue_with_wrong_facts_of_a_file_is_an_error_when_the_file_is_read(kind, tmp_path, name):
    out = make_all(kind, tmp_path)
    forge(tmp_path / "all.skcat", lambda _, arrays: arrays[name].__setitem__(0, arrays[name][0] + 1))
    with pytest.raises(DatasetError, match=f"0\\{kind.suffix}"):
        samples_of(kind.open(out))


def test_a_catalogue_of_other_files_or_of_none_is_refused(tmp_path):
    out = make_all(PARQUET, tmp_path)
    with pytest.raises(DatasetError, match="their kind is 'parquet', and not 'tar'"):
        sk.TarDataset(out)
    with pytest.raises(DatasetError, match="there is no such catalogue"):
        sk.FileDataset(f"{tmp_path}/other.skcat", "npz")
    tar = make_all(TAR, tmp_path / "tar")
    with pytest.raises(ArgumentValueError, match="are in the catalogue already"):
        sk.TarDataset(tar, lengths=list(SAMPLES))
    with pytest.raises(ArgumentValueError, match="partitioning: is not supported with a catalogue"):
        sk.ParquetDataset(out, partitioning="hive")


@pytest.mark.parametrize(
    ("other", "problem"),
    [
        ("s3://bucket/train/0.tar", "name a file twice"),
        ("/data/0.tar", "local in part"),
        ("https://host/0.tar?X-Amz-Signature=5f3a", "query or credentials"),
        ("0.tar", "absolute"),
    ],
)
def test_files_that_cannot_be_catalogued_are_refused(other, problem):
    paths = ["s3://bucket/train/0.tar", other]
    with pytest.raises(ArgumentValueError, match=problem) as caught:
        joined([FileCatalogue.of_file("tar", path, 10240, '"tag"', [3]) for path in paths])
    assert "5f3a" not in str(caught.value)
    with pytest.raises(ArgumentValueError, match="files: must not be empty"):
        joined([])
    with pytest.raises(ArgumentValueError, match="out: must be local"):
        make_catalogue(paths, "s3://bucket/all.skcat")


def test_parquet_files_with_other_columns_are_refused(tmp_path, monkeypatch):
    """By the columns of the first file, even if the last one is read first."""

    def look_at_the_last_first(path, *arguments, **named):
        time.sleep(0.3 * ("9" not in Path(path).name))
        return look(path, *arguments, **named)

    monkeypatch.setattr(making, "look", look_at_the_last_first)
    PARQUET.written(tmp_path)
    pq.write_table(pa.table({"id": [1.5]}), tmp_path / "9.parquet")
    with pytest.raises(DatasetError, match=r"9\.parquet.*has other columns"):
        make_catalogue(f"{tmp_path}/*.parquet", f"{tmp_path}/all.skcat")
