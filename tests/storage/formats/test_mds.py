"""MosaicML's MDS: what its package wrote is read without it, in all compressions, and pickles never."""

import gzip
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import samplerkit as sk
from samplerkit.storage.formats.values import decoder, sample_maker, value_decoder
from samplerkit.testing import DatasetContract
from tests.storage.checks import assert_refused, identical
from tests.storage.formats.mds_shards import COMPRESSIONS, image_of, row_of

FOLDER = Path(__file__).parents[2] / "data" / "formats" / "mds"
"""Written by mosaicml-streaming 0.13.0: `python -m tests.storage.formats.write_samples mds`."""


def copied(folder, change=lambda _: None, name="plain"):
    """Copies a committed folder, and changes the shards in its index; returns these."""
    shutil.copytree(FOLDER / name, folder, dirs_exist_ok=True)
    shards = json.loads(Path(folder, "index.json").read_text())["shards"]
    change(shards)
    Path(folder, "index.json").write_text(json.dumps({"version": 2, "shards": shards}))
    return shards


def sample_of(row):
    return dict(sorted(row_of(row).items()))


class TestMds(DatasetContract):
    """Four shards with digests."""

    def write(self, folder):
        ends = np.cumsum([shard["samples"] for shard in copied(folder)])
        return [part.tolist() for part in np.split(np.array([*map(sample_of, range(20))]), ends[:-1])]

    def make(self, folder):
        return sk.MdsDataset(folder)

    def victim(self, folder):
        return Path(folder, "shard.00002.mds")


@pytest.mark.parametrize("name", COMPRESSIONS)
def test_folders_of_streaming_are_read_without_it(name):
    if name != "plain":
        pytest.importorskip("pyarrow", reason="pyarrow is not installed: it unpacks shards")
    with sk.MdsDataset(FOLDER / name) as dataset:
        read = dataset.__getitems__(range(20))
        assert len(dataset) == 20
        assert dataset.layout.num_files > 2
    for row, sample in enumerate(read):
        assert identical(sample, sample_of(row))
    read[3]["fixed"][0] = 1  # an array is a copy, which can be written to


def test_image_columns_are_decoded():
    with sk.MdsDataset(FOLDER / "images") as dataset:
        for row, sample in enumerate(dataset.__getitems__(range(2))):
            expected = np.asarray(image_of(row))
            assert all((np.asarray(sample[name]) == expected).all() for name in ("pil", "png"))
            assert np.abs(np.asarray(sample["jpeg"]).astype(int).mean() - expected.mean()) < 9
            for name in ("pngs", "pils"):
                assert [np.asarray(image).tolist() for image in sample[name]] == [
                    np.asarray(image_of(row + offset)).tolist() for offset in range(2)
                ]


LARGE = np.array([40_000, 40_000, 3], "<u4").tobytes()
TWICE = {"type": "builtins.dict", "context": '["a", "a"]', "children_spec": [{"type": None}] * 2}
WRONG_VALUES = {
    "an image of 40000 by 40000 does not fit into 18 bytes": lambda: decoder("pil")(
        LARGE + b"RGB" + bytes(3)
    ),
    "arrays of 'float128' are not supported": lambda: decoder("ndarray:float128"),
    "encoding 'int32:7' is not supported": lambda: decoder("int32:7"),
    "a bool is neither 0 nor 1": lambda: value_decoder("bool")(b"\2"),
    "version 2, but only 1 is supported": lambda: sample_maker([2, TWICE], [int] * 2),
    "a dict has two values of the same name": lambda: sample_maker([1, TWICE], [int] * 2),
}


@pytest.mark.parametrize("problem", WRONG_VALUES)
def test_a_value_that_cannot_be_read_takes_no_memory_and_is_explained(problem):
    with pytest.raises(ValueError, match=problem):
        WRONG_VALUES[problem]()


@pytest.mark.parametrize("dtype", ["u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f2", "f4", "f8"])
def test_the_type_of_an_array_is_a_byte_of_bits_and_kind(dtype):
    values = np.arange(3).astype(f"<{dtype}")
    number = 8 * values.itemsize + "uif".index(dtype[0])
    read = decoder("ndarray")(bytes([number, 1 << 2, 3]) + values.tobytes())
    assert (read.dtype, read.tolist()) == (values.dtype, [0, 1, 2])


def test_a_pickle_is_never_loaded():
    with pytest.raises(sk.DatasetError, match=r"column 'any' .* 'pkl' is a pickle, which is never loaded"):
        len(sk.MdsDataset(FOLDER / "pickled"))
    with sk.MdsDataset(FOLDER / "pickled", ["id"]) as dataset:
        assert dataset[0] == {"id": 7}


def test_an_unpacked_shard_is_read_in_place_of_the_packed_one(tmp_path):
    """The package leaves it where it has unpacked one."""
    copied(tmp_path, name="gz")
    packed = min(tmp_path.glob("*.gz"))
    packed.with_suffix("").write_bytes(gzip.decompress(packed.read_bytes()))
    packed.unlink()
    with sk.MdsDataset(tmp_path, ["id"]) as dataset:
        assert [sample["id"] for sample in dataset.__getitems__(range(20))] == list(range(-5, 15))


PACKED = [name for name in COMPRESSIONS if name not in {"plain", "bare"}]


@pytest.mark.parametrize("name", PACKED)
@pytest.mark.parametrize(
    ("change", "more"), [(lambda data: data[:-4], 0), (lambda data: data + b"x", 0), (bytes, 1)]
)
def test_a_packed_shard_with_missing_or_extra_bytes_is_damaged(tmp_path, name, change, more):
    """Without digests, which would notice it first."""
    pytest.importorskip("pyarrow", reason="pyarrow is not installed: it unpacks shards")

    def damage(shards):
        for shard in shards:
            packed = tmp_path / shard["zip_data"]["basename"]
            packed.write_bytes(change(packed.read_bytes()))
            shard["zip_data"] |= {"bytes": packed.stat().st_size, "hashes": {}}
            shard["raw_data"]["bytes"] += more

    copied(tmp_path, damage, name)
    problem = r"it has \d+ bytes, but index.json lists|offsets are wrong" if more else "OSError"
    assert_refused(sk.MdsDataset(tmp_path, ["id"]), problem, 0)


RAW = {"basename": "shard.00000.mds", "bytes": 7, "hashes": {}}
LIES = {
    "it has 1822 bytes, but index.json lists 7": {"raw_data": RAW},
    "a shard outside of the folder": {"raw_data": {**RAW, "basename": "../a.mds"}},
    "it has 7 samples, but index.json lists 8": {"samples": 8},
    "its columns differ from those in index.json": {"column_names": [f"c{number}" for number in range(13)]},
    "compression 'rar' is not supported": {"compression": "rar"},
    "format 'json', version 2 is not supported": {"format": "json"},
    "encoding 'tiff' is not supported": {"column_encodings": ["tiff"] * 13},
    "KeyError: 'hashes'": {"raw_data": {"basename": "shard.00000.mds", "bytes": 7}},
    "needs xxhash|its xxh64 differs from": {"raw_data": {**RAW, "bytes": 1822, "hashes": {"xxh64": "00"}}},
    "NoneType": {"compression": "zstd", "raw_data": {**RAW, "basename": "gone.mds"}},
    "argument 3 is shorter": {"column_sizes": []},
    "must have one column 'id'": {"column_names": ["id"] * 13},
    "-1 samples": {"samples": -1},
    "True samples": {"samples": True},
    "of -1 bytes": {"raw_data": {**RAW, "bytes": -1}},
    "digest 'none' is not supported": {"raw_data": {**RAW, "bytes": 1822, "hashes": {"none": "00"}}},
}


@pytest.mark.parametrize("problem", LIES)
def test_an_index_that_lies_is_an_error_that_says_how(tmp_path, problem):
    def change(shards):
        del shards[1:]
        shards[0].update(LIES[problem])

    copied(tmp_path, change)
    assert_refused(sk.MdsDataset(tmp_path), problem, 0)


def test_a_shard_whose_samples_are_elsewhere_is_an_error(tmp_path):
    whole = (FOLDER / "plain" / "shard.00000.mds").read_bytes()
    for data in (whole[:4] + bytes(4) + whole[8:], whole + b"x"):
        copied(tmp_path, lambda shards, data=data: shards[0].update(raw_data={**RAW, "bytes": len(data)}))
        (tmp_path / "shard.00000.mds").write_bytes(data)
        assert_refused(sk.MdsDataset(tmp_path), "its sample offsets are wrong", 0)


def test_a_shard_with_other_columns_is_named(tmp_path):
    copied(tmp_path, lambda shards: shards[1].update(column_names=[*"abcdefghijklm"]))
    assert_refused(sk.MdsDataset(tmp_path), r"shard\.00001\.mds has other columns than shard\.00000\.mds")


def test_a_missing_or_invalid_index_is_an_error(tmp_path):
    for content in (None, "[]", "{}", '{"version": 1}', "no"):
        if content is not None:
            (tmp_path / "index.json").write_text(content, encoding="utf-8")
        with pytest.raises(sk.DatasetError, match=r"index\.json"):
            len(sk.MdsDataset(tmp_path))
