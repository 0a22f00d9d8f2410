"""HDF5 and zarr by chunk: what is read is what was written, and other files are never opened."""

import json
from pathlib import Path

import numpy as np
import pytest

import samplerkit as sk
from samplerkit.testing import DatasetContract
from tests.storage.checks import assert_refused

WHY = "is not installed: pip install 'samplerkit[{}]' for its tests"


def columns_of(start, stop):
    rows = np.arange(start, stop)
    return {"x": rows[:, None] * np.ones(3, np.float32), "y": rows.astype(np.int16)}


def samples_of(start, stop):
    columns = columns_of(start, stop)
    return [{"x": x, "y": y} for x, y in zip(columns["x"], columns["y"], strict=True)]


class TestHdf5(DatasetContract):
    """Chunks with checksums, and uneven ends."""

    def write(self, folder):
        h5py = pytest.importorskip("h5py", reason=f"h5py {WHY.format('hdf5')}")
        for number, (start, stop) in enumerate(((0, 7), (7, 12))):
            with h5py.File(f"{folder}/{number}.h5", "w", libver="latest") as file:
                for name, column in columns_of(start, stop).items():
                    file.create_dataset(name, data=column, chunks=(4, *column.shape[1:]), fletcher32=True)
        rows = samples_of(0, 12)
        return [rows[:4], rows[4:7], rows[7:11], rows[11:]]

    def make(self, folder):
        return sk.Hdf5Dataset([f"{folder}/0.h5", f"{folder}/1.h5"])


class TestZarr(DatasetContract):
    """A group of version 3, compressed, with checksums."""

    def write(self, folder):
        zarr = pytest.importorskip("zarr", reason=f"zarr {WHY.format('zarr')}")
        group = zarr.open_group(f"{folder}/a.zarr", mode="w")
        for name, column in columns_of(1, 11).items():
            chunks = (4, *column.shape[1:])
            codecs = [zarr.codecs.ZstdCodec(), zarr.codecs.Crc32cCodec()]
            group.create_array(
                name, shape=column.shape, chunks=chunks, dtype=column.dtype, compressors=codecs
            )
            group[name][:] = column
        rows = samples_of(1, 11)
        return [rows[:4], rows[4:8], rows[8:]]

    def make(self, folder):
        return sk.ZarrDataset(f"{folder}/a.zarr")

    def victim(self, folder):
        return Path(folder, "a.zarr", "x", "c", "1", "0")


@pytest.mark.parametrize(
    ("compression", "chunks"), [(None, None), (None, True), ("gzip", True), ("lzf", None)]
)
def test_hdf5_is_read_as_h5py_reads_it(tmp_path, compression, chunks):
    h5py = pytest.importorskip("h5py", reason=f"h5py {WHY.format('hdf5')}")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        options = {"compression": compression, "chunks": chunks} if chunks or compression else {}
        file.create_dataset("deep/x", data=np.arange(6000).reshape(-1, 2), **options)
        file["text"] = [f"row {row}" for row in range(3000)]
        file["vary"] = np.array([np.arange(row % 4) for row in range(3000)], dtype=h5py.vlen_dtype(np.int64))
    with sk.Hdf5Dataset(tmp_path / "a.h5", ["deep/x", "text", "vary"], max_chunks=9) as dataset:
        batch = dataset.__getitems__([2999, 0, 1500])
    assert [sample["deep/x"].tolist() for sample in batch] == [[5998, 5999], [0, 1], [3000, 3001]]
    assert [sample["text"] for sample in batch] == ["row 2999", "row 0", "row 1500"]
    assert [sample["vary"].tolist() for sample in batch] == [[0, 1, 2], [], []]


def test_nothing_in_hdf5_leads_to_another_file(tmp_path):
    h5py = pytest.importorskip("h5py", reason=f"h5py {WHY.format('hdf5')}")
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["x"] = np.arange(4)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["link"] = h5py.ExternalLink("other.h5", "x")
        file["soft"] = h5py.SoftLink("/link")
        file["y"] = np.arange(4)
        layout = h5py.VirtualLayout(shape=(4,), dtype="i8")
        layout[:] = h5py.VirtualSource(tmp_path / "other.h5", "x", shape=(4,))
        file.create_virtual_dataset("virtual", layout)
        file["reference"] = np.array([file["y"].ref] * 4, dtype=h5py.ref_dtype)
    for name, problem in (
        ("link", "is in another file, got 'other.h5'; name that file"),
        ("soft", "is in another file, got '.*other.h5'"),
        ("virtual", r"is in another file, got \['.*other.h5'\]"),
        ("reference", "holds ref"),
    ):
        assert_refused(sk.Hdf5Dataset(tmp_path / "a.h5", [name]), problem)
    assert_refused(sk.Hdf5Dataset(tmp_path / "a.h5", ["z"]), "must have an array 'z'")


def test_groups_and_soft_links_in_hdf5_are_no_arrays_unless_they_are_named(tmp_path):
    h5py = pytest.importorskip("h5py", reason=f"h5py {WHY.format('hdf5')}")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["x"] = file["deep/y"] = np.arange(4)
        file["soft"] = h5py.SoftLink("/x")
    with sk.Hdf5Dataset(tmp_path / "a.h5") as dataset:
        assert dataset[3] == {"x": 3}
    with sk.Hdf5Dataset(tmp_path / "a.h5", ["soft", "deep/y"]) as dataset:
        assert dataset[3] == {"soft": 3, "deep/y": 3}


def test_arrays_that_make_no_rows_together_are_refused_by_name(tmp_path):
    zarr = pytest.importorskip("zarr", reason=f"zarr {WHY.format('zarr')}")
    group = zarr.open_group(tmp_path / "a.zarr", mode="w")
    assert_refused(sk.ZarrDataset(tmp_path / "a.zarr"), "holds no array")
    for name, shape in (("x", (4,)), ("y", (5,)), ("z", ())):
        group.create_array(name, shape=shape, dtype="i4")
    group.create_group("w")
    for names, problem in (
        (["x", "y"], "arrays of different lengths, got {'x': 4, 'y': 5}"),
        (["x", "z"], "array 'z' has no rows"),
        (["v"], r"must have an array 'v', got \['x', 'y', 'z'\]"),
        (["w"], "must have an array 'w'"),
    ):
        assert_refused(sk.ZarrDataset(tmp_path / "a.zarr", names), problem)
    assert_refused(sk.ZarrDataset(tmp_path / "a.zarr" / "x"), "ContainsArrayError")


@pytest.mark.parametrize(("version", "sharded"), [(2, False), (3, False), (3, True)])
def test_zarr_is_read_as_zarr_reads_it(tmp_path, version, sharded):
    zarr = pytest.importorskip("zarr", reason=f"zarr {WHY.format('zarr')}")
    group = zarr.open_group(tmp_path / "a.zarr", mode="w", zarr_format=version)
    shards = {"shards": (6, 4)} if sharded else {}
    group.create_array("x", shape=(20, 4), chunks=(3, 2), dtype="f8", **shards)[:] = 1 + np.arange(
        80
    ).reshape(20, 4)
    with sk.ZarrDataset(tmp_path / "a.zarr", batches="columns") as dataset:
        assert dataset.layout.sizes.tolist() == ([6, 6, 6, 2] if sharded else [3] * 6 + [2])
        assert np.array_equal(dataset.__getitems__([19, 0, 7])["x"], group["x"][:][[19, 0, 7]])


def test_a_missing_chunk_is_an_error_or_the_fill_value(tmp_path):
    zarr = pytest.importorskip("zarr", reason=f"zarr {WHY.format('zarr')}")
    group = zarr.open_group(tmp_path / "a.zarr", mode="w")
    group.create_array("x", shape=(6,), chunks=(3,), dtype="i4", fill_value=9)[:3] = [1, 2, 3]
    with sk.ZarrDataset(tmp_path / "a.zarr") as dataset:
        assert dataset[2]["x"] == 3
        with pytest.raises(sk.DatasetError, match=r"rows 3 to 6: lacks a chunk.*missing_chunks='fill'"):
            dataset[3]
    with sk.ZarrDataset(tmp_path / "a.zarr", missing_chunks="fill") as dataset:
        assert dataset[3]["x"] == 9
        dataset.close()
        group["x"].resize((9,))
        with pytest.raises(sk.DatasetError, match="array 'x' has changed from"):
            dataset[3]


def test_a_pickle_is_never_loaded_and_attributes_may_mention_one(tmp_path):
    zarr = pytest.importorskip("zarr", reason=f"zarr {WHY.format('zarr')}")
    group = zarr.open_group(tmp_path / "a.zarr", mode="w", zarr_format=2)
    group.create_array("x", shape=(3,), chunks=(3,), dtype="i4", attributes={"about": "pickles"})[:] = 7
    assert sk.ZarrDataset(tmp_path / "a.zarr")[2] == {"x": 7}
    metadata = tmp_path / "a.zarr" / "x" / ".zarray"
    metadata.write_text(
        json.dumps(json.loads(metadata.read_text()) | {"filters": [{"id": "pickle", "protocol": 5}]})
    )
    # Later versions of zarr refuse it themselves.
    assert_refused(sk.ZarrDataset(tmp_path / "a.zarr"), "pickle")
