"""litData's optimized folders: what its package wrote is read without it, and pickles never."""

import json
import shutil
import struct
from pathlib import Path

import numpy as np
import pytest
import torch

import samplerkit as sk
from tests.storage.checks import assert_refused, identical
from tests.storage.formats.damage import UncheckedContract
from tests.storage.formats.litdata_chunks import FOLDERS, plain_of, row_of, tokens_of

pytest.importorskip("pyarrow", reason="pyarrow is not installed: it unpacks zstd and reads tables of rows")

FOLDER = Path(__file__).parents[2] / "data" / "formats" / "litdata"
"""Written by litdata 0.2.76 and 0.2.30: `python -m tests.storage.formats.write_samples litdata`."""


def comparable(sample):
    """Arrays in place of tensors and images, which the package's `same` cannot compare."""
    if isinstance(sample, torch.Tensor) or hasattr(sample, "getbands"):
        return np.asarray(sample)
    if isinstance(sample, dict):
        return {key: comparable(value) for key, value in sample.items()}
    if isinstance(sample, list | tuple):
        return type(sample)(map(comparable, sample))
    return sample


class TestLitData(UncheckedContract):
    """Three chunks of Arrow rows; neither Arrow nor chunks have checksums."""

    def write(self, folder):
        shutil.copytree(FOLDER / "rows", folder, dirs_exist_ok=True)
        return [list(map(plain_of, range(start, min(start + 7, 20)))) for start in (0, 7, 14)]

    def make(self, folder):
        return sk.LitDataset(folder)

    def victim(self, folder):
        return Path(folder, "chunk-0-1.bin")


def test_a_row_of_a_table_can_be_changed_without_changing_the_chunk_in_memory():
    with sk.LitDataset(FOLDER / "rows", ["id"]) as dataset:
        dataset[3].clear()
        assert dataset[3] == {"id": plain_of(3)["id"]}


WRITTEN = {name: make for name, (_, make) in FOLDERS.items() if name != "pickled"}
WRITTEN |= {"tokens": tokens_of, "early": row_of, "early_packed": row_of}


@pytest.mark.parametrize("name", WRITTEN)
def test_folders_of_litdata_are_read_without_it(name):
    with sk.LitDataset(FOLDER / name) as dataset:
        samples = dataset.__getitems__(range(20))
    for row, sample in enumerate(samples):
        expected = WRITTEN[name](row)
        if name.startswith("early"):
            expected["flag"] = int(expected["flag"])  # that version wrote booleans as integers
        assert identical(sample, expected)
    if name == "plain":
        sample["matrix"][0] = 1  # arrays and tensors are copies, which can be written to
        sample["square"][0] = 1


def test_the_memory_of_a_chunk_is_counted_unpacked():
    num_bytes = {}
    for name in ("plain", "chunk", "batch", "sample"):
        with sk.LitDataset(FOLDER / name, read_ahead=0) as dataset:
            assert len(dataset.__getitems__(range(20))) == 20
            num_bytes[name] = dataset.stats.bytes_read
    assert num_bytes["chunk"] == num_bytes["plain"] == num_bytes["batch"] == num_bytes["sample"]


def test_a_pickle_is_never_loaded_and_other_columns_are():
    assert_refused(sk.LitDataset(FOLDER / "pickled"), "never loaded", 0)
    with sk.LitDataset(FOLDER / "pickled", ["id"]) as dataset:
        assert dataset[7] == {"id": 7}
    assert_refused(sk.LitDataset(FOLDER / "pickled", ["x"]), r"no entry 'x' among \['any', 'id'\]")


LIES = {
    "its chunks are encrypted": ({"encryption": {"level": "sample"}}, {}),
    "written for ParquetLoader, which is not supported": ({"item_loader": "ParquetLoader"}, {}),
    "compression 'lz4' is not supported": ({"compression": "lz4"}, {}),
    "compression of each 'file' is not supported": ({"compression": "zstd", "compression_level": "file"}, {}),
    "samples have 13 values, but 1 formats": ({"data_format": ["int"]}, {}),
    "samples have a builtins.set, which is not supported": (
        {"data_spec": '[1, {"type": "builtins.set", "context": null, "children_spec": []}]'},
        {},
    ),
    "a shard outside of the folder": ({}, {"filename": "../chunk.bin"}),
    "'chunk-0-1.bin' of -7 bytes and 7 samples": ({}, {"chunk_bytes": -7}),
    "'chunk-0-1.bin' of 1551 bytes and 7.0 samples": ({}, {"chunk_size": 7.0}),
}
"""Wrong values in the index: of all chunks, and of one."""


@pytest.mark.parametrize("problem", LIES)
def test_an_index_that_cannot_be_read_says_why(tmp_path, problem):
    shutil.copytree(FOLDER / "plain", tmp_path, dirs_exist_ok=True)
    index = json.loads((tmp_path / "index.json").read_text())
    for section, lie in zip((index["config"], index["chunks"][1]), LIES[problem], strict=True):
        section.update(lie)
    (tmp_path / "index.json").write_text(json.dumps(index))
    assert_refused(sk.LitDataset(tmp_path), problem)


FRAMES = {
    "in another order": ([3, 3, 345, 232, 658], [0, 3, 128, 217, 629], [6, 1, 577, 126, 228]),
    "of more samples than the chunk": ([0, 3, 128, 217, 629], [3, 3, 345, 232, 658], [6, 2, 577, 126, 228]),
    "of another size": ([0, 3, 128, 217, 626], [3, 3, 345, 232, 658], [6, 1, 577, 126, 228]),
    "elsewhere": ([0, 3, 128, 217, 629], [3, 3, 128, 449, 658], [6, 1, 577, 126, 228]),
}
"""Wrong frames of a chunk, by column: first sample, samples, place, and bytes packed and unpacked."""


@pytest.mark.parametrize("lie", FRAMES)
def test_frames_that_are_not_where_a_chunk_says_are_an_error(tmp_path, lie):
    shutil.copytree(FOLDER / "batch", tmp_path, dirs_exist_ok=True)
    chunk = tmp_path / "chunk-0-1.bin"
    raw = bytearray(chunk.read_bytes())
    raw[56:128] = b"".join(struct.pack("<IIQII", *frame) for frame in FRAMES[lie])
    chunk.write_bytes(raw)
    assert_refused(sk.LitDataset(tmp_path), "its frame offsets or sizes are wrong", 7)


def test_a_chunk_of_frames_begins_and_ends_as_its_index_says(tmp_path):
    shutil.copytree(FOLDER / "batch", tmp_path, dirs_exist_ok=True)
    chunk, index = tmp_path / "chunk-0-1.bin", tmp_path / "index.json"
    whole = chunk.read_bytes()
    for at in (0, 8, 10, 12):  # the mark, the version, the flags, the number of samples
        chunk.write_bytes(whole[:at] + b"\x09" + whole[at + 1 :])
        assert_refused(sk.LitDataset(tmp_path), "does not begin with frames of 7 samples", 7)
    chunk.write_bytes(whole + b"x")
    said = json.loads(index.read_text())
    said["chunks"][1]["chunk_bytes"] += 1
    index.write_text(json.dumps(said))
    assert_refused(sk.LitDataset(tmp_path), "its frame offsets or sizes are wrong", 7)
