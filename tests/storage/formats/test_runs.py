"""What a run needs of a dataset of each format: batches, trees, resumes; splits without samples."""

import json
import re
import shutil
import sys
import tarfile
from contextlib import contextmanager
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np
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

FORMATS = {
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
}


def sample_id(sample):
    """What identifies a sample."""
    return int(sample["id"] if "id" in sample else sample["y"])


MISSING = {
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


def read_epoch(dataset, batch_size=3, **options):
    """The samples of an epoch in a random order, as one rank reads them."""
    sampler, world = sk.RandomSampler(**options), sk.World(1, 0)
    with sk.Loader(dataset, sampler, batch_size=batch_size, collate_fn=list, world=world) as loader:
        return [sample for batch in loader for sample in batch]


PACKED = {
    "packed mds": (test_mds.FOLDER / "gz", sk.MdsDataset),
    "packed litdata": (test_litdata.FOLDER / "chunk", sk.LitDataset),
}


@pytest.mark.parametrize("name", ["litdata", "mds", "mindrecord", "parquet", *PACKED])
def test_remote_files_are_read_by_chunk_and_a_chunk_that_was_replaced_is_named(tmp_path, monkeypatch, name):
    monkeypatch.setattr("samplerkit.storage.remote.retries._FIRST_WAIT", 0.001)
    fsspec = pytest.importorskip("fsspec", reason="fsspec is not installed: nothing remote here")
    memory, url = fsspec.filesystem("memory"), f"memory://{name.replace(' ', '-')}"
    if name in PACKED:
        source, kind = PACKED[name]
        shutil.copytree(source, tmp_path, dirs_exist_ok=True)
        make = partial(kind, columns=["id"])
    else:
        contract = FORMATS[name]()
        contract.write(str(tmp_path))
        make = contract.make
    for path in tmp_path.iterdir():
        memory.pipe(f"{url}/{path.name}", path.read_bytes())
    with make(url) as dataset:
        ids = [*map(sample_id, read_epoch(dataset, shuffle="files", seed=2))]
        assert len({*ids}) == len(ids) == len(dataset)
        assert (dataset.stats.files_read, dataset.stats.downloads) == (dataset.layout.num_files, 0)
        dataset.close()
        file = dataset.layout.names[0].partition(":")[0]
        (name_on_disk,) = (path.name for path in tmp_path.iterdir() if path.name in {file, f"{file}.gz"})
        memory.pipe(f"{url}/{name_on_disk}", b"another one")
        with pytest.raises(sk.DatasetError, match=re.escape(name_on_disk)):
            dataset[0]


INDEXED = {
    "a.jsonl": (sk.JsonlDataset, {}),
    "a.jsonl.zst": (sk.JsonlDataset, {}),
    "a.tfrecord": (sk.TfRecordDataset, {"scalars": ["id"], "run_bytes": 800}),
}
"""Formats that need an index, which may be next to the file."""


def write_file(path):
    """Writes sixty samples, with `id` from 0."""
    if path.suffix == ".tfrecord":
        tf_records.write(path, [tf_records.example(tf_records.features_of(row)) for row in range(60)])
    else:
        path.write_bytes(test_jsonl.compressed(test_jsonl.text_of(map(test_jsonl.row, range(60))), path.name))


@pytest.mark.parametrize("has_index", [True, False])
@pytest.mark.parametrize("name", INDEXED)
def test_remote_files_with_an_index_are_read_by_ranges_and_packed_ones_as_a_whole(tmp_path, has_index, name):
    fsspec = pytest.importorskip("fsspec", reason="fsspec is not installed: nothing remote here")
    memory, (make, options) = fsspec.filesystem("memory"), INDEXED[name]
    write_file(path := tmp_path / name)
    url = f"memory://indexed/{has_index}/{name}"
    memory.pipe(url, path.read_bytes())
    if has_index:
        make(path, **options, progress=False).save_indexes()
        memory.pipe(url + ".skidx", Path(f"{path}.skidx").read_bytes())
    with make([url], **options, progress=False, remote={"cache": str(tmp_path / "cache")}) as dataset:
        samples = read_epoch(dataset, batch_size=7, shuffle="files", seed=2)
        assert sorted(map(sample_id, samples)) == [*range(60)]
        if name == "a.tfrecord":
            assert dataset.stats.files_read == dataset.layout.num_files > 5
    # The cache has the index, if there is one, and the file where it is packed or has to be indexed.
    expected = [url + ".skidx"] * has_index + [url] * (not has_index or name.endswith(".zst"))
    cached = [path.read_bytes() for path in (tmp_path / "cache").glob("*.file")]
    assert sorted(cached) == sorted(map(memory.cat, expected))


def decode_with_draw(sample):
    return int(sample["id"]), int(sk.draw_rng().integers(1 << 30))


def test_a_decode_function_has_the_random_generator_of_its_draw(tmp_path):
    write_file(path := tmp_path / "a.jsonl")
    with sk.JsonlDataset(path, decode=decode_with_draw, progress=False) as dataset:
        read = [read_epoch(dataset, batch_size, seed=1) for batch_size in (4, 7)]
    assert read[0] == read[1]
    assert sorted(id for id, _ in read[0]) == [*range(60)]
    assert len({draw for _, draw in read[0]}) == 60


@contextmanager
def mixture_loader(contract, folder, count, world):
    """A loader of a mixture of a tree with another part, in batches by tokens, over a dataset just opened."""
    parts = {"data": contract.make(folder), "rest": [{"id": 1000 + number} for number in range(7)]}
    sources = {"data": sk.RandomSampler(shuffle="partial", partial_size=4, lanes=6), "rest": None}
    mixture = sk.MixtureSampler(sources, 3 * count, weights={"data": 3, "rest": 1}, lanes=6, seed=5)
    with sk.TreeDataset(parts) as tree:
        lengths = [1 + number % 5 for number in range(len(tree))]
        batches = sk.TokenBatches(9, lengths=lengths, abreast=6)
        options = {"batches": batches, "collate_fn": list, "tail": "ragged"}
        with sk.Loader(tree, mixture, world=world, **options) as loader:
            yield loader


def require_resume(contract, folder):
    """Three ranks resume what two have saved: all together read what one rank reads alone."""
    count = sum(map(len, contract.write(folder)))
    with mixture_loader(contract, folder, count, sk.World(1, 0)) as loader:
        expected = sorted(sample_id(sample) for batch in loader for sample in batch)
    read = []
    for rank in range(2):
        with mixture_loader(contract, folder, count, sk.World(2, rank)) as loader:
            for batch in islice(loader, 2):
                read += map(sample_id, batch)
                state = json.dumps(loader.state_dict())
    for rank in range(3):
        with mixture_loader(contract, folder, count, sk.World(3, rank)) as loader:
            loader.load_state_dict(json.loads(state))
            read += [sample_id(sample) for batch in loader for sample in batch]
    assert sorted(read) == expected


@pytest.mark.parametrize("name", FORMATS)
def test_a_mixture_in_batches_by_tokens_resumes_on_other_ranks(tmp_path, name):
    require_resume(FORMATS[name](), str(tmp_path))


def parquet(folder, rows=(), filters=None):
    pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed: no Parquet here")
    pq = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed: no Parquet here")
    with pq.ParquetWriter(folder / "a.parquet", pa.schema({"id": pa.int64()})) as writer:
        if rows is not None:
            writer.write_table(pa.table({"id": pa.array(rows, pa.int64())}))
    return sk.ParquetDataset(folder / "a.parquet", filters=filters, lengths="id", progress=False)


def arrow(folder):
    pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed: no Arrow here")
    with pa.ipc.new_stream(folder / "a.arrow", pa.schema({"id": pa.int64()})):
        pass
    return sk.ArrowDataset(folder / "a.arrow")


def hugging_face(folder):
    """What `Dataset.from_dict({"id": []}).save_to_disk` of datasets 5.2.0 writes."""
    pytest.importorskip("pyarrow", reason="pyarrow is not installed: no Arrow here")
    state = {"_data_files": [], "_fingerprint": "f87f", "_split": None}
    (folder / "state.json").write_text(json.dumps(state))
    return sk.ArrowDataset(folder, ["id"])


def tar(folder):
    tarfile.open(folder / "a.tar", "w").close()
    return sk.TarDataset(folder / "a.tar", cache=folder / "cache")


def mds(folder):
    """What `MDSWriter` of streaming 0.13.0 writes when it is given no sample."""
    (folder / "index.json").write_text('{"shards": [], "version": 2}')
    return sk.MdsDataset(folder, ["id"])


def litdata(folder):
    (folder / "index.json").write_text('{"chunks": [], "config": null, "updated_at": "0"}')
    return sk.LitDataset(folder, ["id"])


def npz(folder):
    np.savez(folder / "a.npz", id=np.zeros(0))
    return sk.FileDataset(folder / "a.npz", "npz", progress=False)


def text(folder):
    (folder / "a.txt").touch()
    return sk.FileDataset(folder / "a.txt", "text", progress=False)


def hdf5(folder):
    h5py = pytest.importorskip("h5py", reason="h5py is not installed: no HDF5 here")
    with h5py.File(folder / "a.h5", "w") as file:
        file.create_dataset("id", shape=(0,), dtype="i8")
    return sk.Hdf5Dataset(folder / "a.h5", ["id"])


def zarr(folder):
    package = pytest.importorskip("zarr", reason="zarr is not installed: no zarr here")
    package.open_group(folder / "a.zarr", mode="w").create_array("id", shape=(0,), chunks=(4,), dtype="i8")
    return sk.ZarrDataset(folder / "a.zarr", ["id"])


CASES = {
    "parquet": parquet,
    "parquet without row groups": partial(parquet, rows=None),
    "parquet of which no row is kept": partial(parquet, rows=[1], filters=[("id", ">", 1)]),
    **{make.__name__: make for make in (arrow, hugging_face, tar, mds, litdata, npz, text, hdf5, zarr)},
}


@pytest.mark.parametrize("name", CASES)
def test_a_split_without_samples_has_length_0_and_gives_no_batch(tmp_path, name):
    dataset = CASES[name](tmp_path)
    assert len(dataset) == 0
    assert list(dataset.__getitems__([])) == []
    sampler = sk.DistributedSampler(shuffle="files")
    with sk.Loader(dataset, sampler, batch_size=2, world=sk.World(2, 1)) as loader:
        assert list(loader) == []
    with pytest.raises(sk.OutOfDatasetError):
        dataset[0]
    assert len(sk.TreeDataset({"empty": dataset, "also": CASES[name](tmp_path)})) == 0
