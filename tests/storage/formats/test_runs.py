"""What a run needs of a dataset, asked of each format: batches by tokens, a tree, a resume on other ranks."""

from __future__ import annotations

import json
import multiprocessing
import os
import re
import shutil
import signal
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest

import samplerkit as sk
from tests.storage.formats import (
    test_arrays,
    test_arrow,
    test_jsonl,
    test_keyed,
    test_litdata,
    test_mds,
    test_mindrecord,
    test_parquet,
    test_tfrecord,
    tf_records,
)


class OfCsv:
    """Two files with a reader that comes along: pools of files are read as formats are."""

    def write(self, folder):
        files = [[{"id": id, "text": f"row, {id}"} for id in ids] for ids in (range(15), range(15, 26))]
        for number, rows in enumerate(files):
            lines = "".join(f'{row["id"]},"{row["text"]}"\n' for row in rows)
            Path(folder, f"{number}.csv").write_text(f"id,text\n{lines}")
        return files

    def make(self, folder):
        return sk.FileDataset(f"{folder}/*.csv", "csv", progress=False)


class OfHuggingFace:
    """A folder of `save_to_disk`, in four shards; its own package maps it into memory."""

    def write(self, folder):
        datasets = pytest.importorskip("datasets", reason="datasets is not installed")
        rows = [{"id": id, "text": f"row {id}"} for id in range(26)]
        datasets.Dataset.from_list(rows).save_to_disk(f"{folder}/saved", num_shards=4)
        return [rows]

    def make(self, folder):
        datasets = pytest.importorskip("datasets", reason="datasets is not installed")
        return nullcontext(sk.HuggingFaceDataset(datasets.load_from_disk(f"{folder}/saved")))


FORMATS = {
    "csv": OfCsv,
    "arrow": test_arrow.TestArrow,
    "hdf5": test_arrays.TestHdf5,
    "parquet": test_parquet.TestParquet,
    "sqlite": test_keyed.TestSqlite,
    "jsonl": test_jsonl.TestJsonl,
    "packed jsonl": test_jsonl.TestPackedJsonl,
    "litdata": test_litdata.TestLitData,
    "lmdb": test_keyed.TestLmdb,
    "mds": test_mds.TestMds,
    "mindrecord": test_mindrecord.TestMindRecord,
    "tfrecord": test_tfrecord.TestTfRecord,
    "zarr": test_arrays.TestZarr,
    "huggingface": OfHuggingFace,
}
MARKS = {"huggingface": [pytest.mark.trainers, pytest.mark.filterwarnings("ignore")]}


@pytest.fixture(params=[pytest.param(name, marks=MARKS.get(name, ())) for name in FORMATS])
def data(request, tmp_path):
    """A dataset of each format, and how many samples it has."""
    if request.param in {"hdf5", "zarr"}:
        package = {"hdf5": "h5py", "zarr": "zarr"}[request.param]
        pytest.importorskip(package, reason=f"{package} {test_arrays.WHY.format(request.param)}")
    contract = FORMATS[request.param]()
    samples = [sample for file in contract.write(str(tmp_path)) for sample in file]
    with contract.make(str(tmp_path)) as dataset:
        yield dataset, samples


def named(sample):
    """What tells a sample from the others."""
    return int(sample["id"] if "id" in sample else sample["y"])


MISSING = {
    "csv": ("pyarrow", "parquet"),
    "arrow": ("pyarrow", "parquet"),
    "hdf5": ("h5py", "hdf5"),
    "lmdb": ("lmdb", "lmdb"),
    "packed jsonl": ("zstandard", "jsonl"),
    "mindrecord": ("msgpack", "mindrecord"),
    "parquet": ("pyarrow.parquet", "parquet"),
    "tfrecord": ("google_crc32c", "tfrecord"),
    "zarr": ("zarr", "zarr"),
}


@pytest.mark.parametrize("kind", MISSING)
def test_a_package_that_is_missing_is_named_with_its_extra(tmp_path, monkeypatch, kind):
    contract, (package, name) = FORMATS[kind](), MISSING[kind]
    contract.write(str(tmp_path))
    monkeypatch.setitem(sys.modules, package, None)
    problem = rf'needs {package.partition(".")[0]}, .*pip install "samplerkit\[{name}\]"'
    with contract.make(str(tmp_path)) as dataset, pytest.raises(sk.DatasetError, match=problem):
        dataset[0]


def packed_mds(folder):
    shutil.copytree(test_mds.FOLDER / "gz", folder, dirs_exist_ok=True)
    return lambda url: sk.MdsDataset(url, ["id"])


def packed_litdata(folder):
    shutil.copytree(test_litdata.FOLDER / "chunk", folder, dirs_exist_ok=True)
    return lambda url: sk.LitDataset(url, ["id"])


REMOTE = {name: FORMATS[name] for name in ("litdata", "mds", "mindrecord", "parquet")} | {
    "packed mds": packed_mds,
    "packed litdata": packed_litdata,
}


@pytest.mark.parametrize("name", REMOTE)
def test_remote_files_are_read_by_chunk_and_a_chunk_that_is_gone_is_named(tmp_path, monkeypatch, name):
    monkeypatch.setattr("samplerkit.storage.remote.retries._FIRST_WAIT", 0.001)
    fsspec = pytest.importorskip("fsspec", reason="fsspec is not installed: nothing remote here")
    memory, url = fsspec.filesystem("memory"), f"memory://{name.replace(' ', '-')}"
    if name.startswith("packed"):
        make = REMOTE[name](tmp_path)
    else:
        contract = REMOTE[name]()
        contract.write(str(tmp_path))
        make = contract.make
    for path in tmp_path.iterdir():
        memory.pipe(f"{url}/{path.name}", path.read_bytes())
    with make(url) as dataset:
        options = {"batch_size": 3, "collate_fn": list, "world": sk.World(1, 0)}
        with sk.Loader(dataset, sk.RandomSampler(shuffle="files", seed=2), **options) as loader:
            ids = [named(sample) for batch in loader for sample in batch]
        assert len({*ids}) == len(ids) == len(dataset)
        assert (dataset.stats.files_read, dataset.stats.downloads) == (dataset.layout.num_files, 0)
        dataset.close()
        file = dataset.layout.names[0].partition(":")[0]
        (gone,) = (path.name for path in tmp_path.iterdir() if path.name in {file, f"{file}.gz"})
        memory.pipe(f"{url}/{gone}", b"another one")
        with pytest.raises(sk.DatasetError, match=re.escape(gone)):
            dataset[0]


INDEXED = {
    "a.jsonl": (sk.JsonlDataset, {}),
    "a.jsonl.zst": (sk.JsonlDataset, {}),
    "a.tfrecord": (sk.TfRecordDataset, {"scalars": ["id"], "run_bytes": 800}),
}
"""Formats that need an index, of which one may be beside the file."""


def written(path):
    """Sixty samples, whose `id` counts."""
    if path.suffix == ".tfrecord":
        tf_records.write(path, [tf_records.example(tf_records.features_of(row)) for row in range(60)])
    else:
        path.write_bytes(test_jsonl.packed(test_jsonl.text_of(map(test_jsonl.row, range(60))), path.name))


@pytest.mark.parametrize("has_index", [True, False])
@pytest.mark.parametrize("name", INDEXED)
def test_remote_files_with_an_index_are_read_by_ranges_and_packed_ones_as_a_whole(tmp_path, has_index, name):
    fsspec = pytest.importorskip("fsspec", reason="fsspec is not installed: nothing remote here")
    memory, (make, options) = fsspec.filesystem("memory"), INDEXED[name]
    written(path := tmp_path / name)
    url = f"memory://indexed/{has_index}/{name}"
    memory.pipe(url, path.read_bytes())
    if has_index:
        make(path, **options, progress=False).save_indexes()
        memory.pipe(url + ".skidx", Path(f"{path}.skidx").read_bytes())
    with make([url], **options, progress=False, remote={"cache": str(tmp_path / "cache")}) as dataset:
        sampler = sk.RandomSampler(shuffle="files", seed=2)
        with sk.Loader(dataset, sampler, batch_size=7, collate_fn=list, world=sk.World(1, 0)) as loader:
            assert sorted(named(sample) for batch in loader for sample in batch) == [*range(60)]
        if name == "a.tfrecord":
            assert dataset.stats.files_read == dataset.layout.num_files > 5
    # To the machine come the index, if there is one, and the file where it is packed or has to be indexed.
    wanted = [url + ".skidx"] * has_index + [url] * (not has_index or name.endswith(".zst"))
    kept = [path.read_bytes() for path in (tmp_path / "cache").glob("*.file")]
    assert sorted(kept) == sorted(map(memory.cat, wanted))


def drawn(sample):
    return int(sample["id"]), int(sk.draw_rng().integers(1 << 30))


@pytest.mark.parametrize("name", INDEXED)
def test_a_function_makes_samples_in_their_draws(tmp_path, name):
    written(path := tmp_path / name)
    (make, given), read = INDEXED[name], []
    with make(path, **given, decode=drawn, progress=False) as dataset:
        for size in (4, 7):
            options = {"batch_size": size, "collate_fn": list, "world": sk.World(1, 0)}
            with sk.Loader(dataset, sk.RandomSampler(seed=1), **options) as loader:
                read.append([sample for batch in loader for sample in batch])
    assert read[0] == read[1]
    assert sorted(id for id, _ in read[0]) == [*range(60)]
    assert len({draw for _, draw in read[0]}) == 60


def recipe_of(dataset, samples):
    """A mixture of a tree with another part, in batches by tokens: what a run takes of all this."""
    tree = sk.TreeDataset({"data": dataset, "rest": [{"id": 1000 + number} for number in range(7)]})
    sources = {"data": sk.RandomSampler(shuffle="partial", partial_size=4, lanes=6), "rest": None}
    mixture = sk.MixtureSampler(sources, 3 * len(samples), weights={"data": 3, "rest": 1}, lanes=6, seed=5)
    lengths = [1 + number % 5 for number in range(len(tree))]
    batches = sk.TokenBatches(9, lengths=lengths, abreast=6)
    return tree, mixture, {"batches": batches, "collate_fn": list, "tail": "ragged"}


def reads_until_it_is_killed(dataset, samples, rank, told):
    """What a rank of two does: it tells each batch and its state, and kills itself behind the third one."""
    tree, mixture, options = recipe_of(dataset, samples)
    with sk.Loader(tree, mixture, world=sk.World(2, rank), **options) as loader:
        for number, batch in enumerate(loader, start=1):
            told.send(([named(sample) for sample in batch], json.dumps(loader.state_dict())))
            if number == 3:
                os.kill(os.getpid(), signal.SIGKILL)


def test_a_mixture_in_batches_by_tokens_outlives_a_kill_on_other_ranks(data):
    """Two ranks are killed, three go on from what was saved: all together read what one rank reads alone."""
    dataset, samples = data
    tree, mixture, options = recipe_of(dataset, samples)
    with sk.Loader(tree, mixture, world=sk.World(1, 0), **options) as loader:
        wanted = sorted(named(sample) for batch in loader for sample in batch)
    read, context = [], multiprocessing.get_context("fork")
    for rank in range(2):
        ours, theirs = context.Pipe(duplex=False)
        child = context.Process(target=reads_until_it_is_killed, args=(dataset, samples, rank, theirs))
        child.start()
        theirs.close()
        *saved, _lost = [ours.recv() for _ in range(3)]
        child.join()
        assert child.exitcode == -signal.SIGKILL
        read += [id for batch, _ in saved for id in batch]
        state = json.loads(saved[-1][1])
    for rank in range(3):
        with sk.Loader(tree, mixture, world=sk.World(3, rank), **options) as loader:
            loader.load_state_dict(state)
            read += [named(sample) for batch in loader for sample in batch]
    assert sorted(read) == wanted
