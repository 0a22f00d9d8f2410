"""A split without samples is a dataset of length 0 in every format, since its own writer leaves one."""

from __future__ import annotations

import json
import tarfile
from functools import partial

import numpy as np
import pytest

import samplerkit as sk


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
