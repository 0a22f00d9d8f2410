"""litData's optimized folders: what its package wrote is read without it, and pickles never."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

import samplerkit as sk
from samplerkit.testing import DatasetContract
from samplerkit.testing.contract import same
from tests.storage.formats.litdata_chunks import FOLDERS, image_of, plain_of, row_of, tokens_of

pytest.importorskip("pyarrow", reason="pyarrow is not installed: it unpacks zstd and reads tables of rows")

FOLDER = Path(__file__).parents[2] / "data" / "formats" / "litdata"
"""Written by litdata 0.2.76 and 0.2.30: `python -m tests.storage.formats.write_samples litdata`."""


def comparable(sample):
    """Arrays in place of tensors, which a comparison has no word for."""
    if isinstance(sample, torch.Tensor):
        return sample.numpy()
    if isinstance(sample, dict):
        return {key: comparable(value) for key, value in sample.items()}
    if isinstance(sample, list | tuple):
        return type(sample)(map(comparable, sample))
    return sample


class TestLitData(DatasetContract):
    """Three chunks, each sample a row; what Arrow keeps has no checksums, and neither have chunks."""

    def write(self, folder):
        shutil.copytree(FOLDER / "rows", folder, dirs_exist_ok=True)
        return [list(map(plain_of, range(start, min(start + 7, 20)))) for start in (0, 7, 14)]

    def make(self, folder):
        return sk.LitDataset(folder)

    def victim(self, folder):
        return Path(folder, "chunk-0-1.bin")

    def lies(self, whole):
        return super().lies(whole)[:2]


@pytest.mark.parametrize("name", [*FOLDERS, "early", "early_packed"])
def test_folders_of_litdata_are_read_without_it(name):
    if name in {"pickled", "images"}:
        pytest.skip("has a test of its own")
    make = row_of if name.startswith("early") else FOLDERS[name][1]
    with sk.LitDataset(FOLDER / name) as dataset:
        assert dataset.layout.sizes.tolist() == [7, 7, 6]
        for row, sample in enumerate(dataset.__getitems__(range(20))):
            wanted = make(row)
            if name.startswith("early"):
                wanted["flag"] = int(wanted["flag"])  # that version wrote truths as numbers
            assert same(comparable(sample), comparable(wanted))
            assert type(sample) is type(wanted)


def test_what_a_chunk_takes_in_memory_is_counted_unpacked():
    taken = {}
    for name in ("plain", "chunk", "batch", "sample"):
        with sk.LitDataset(FOLDER / name, read_ahead=0) as dataset:
            assert len(dataset.__getitems__(range(20))) == 20
            taken[name] = dataset.stats.bytes_read
    assert taken["chunk"] == taken["plain"] == taken["batch"] == taken["sample"]


def test_values_are_of_the_types_that_were_written():
    with sk.LitDataset(FOLDER / "plain") as dataset:
        sample, wanted = dataset[8], row_of(8)
    assert [type(value) for value in sample.values()] == [type(value) for value in wanted.values()]
    assert sample["tensor"].dtype == wanted["tensor"].dtype
    assert sample["array"].dtype == wanted["array"].dtype
    sample["matrix"][0] = 1  # arrays and tensors are copies, which can be written to
    sample["square"][0] = 1


def test_tokens_are_documents_as_they_were_written():
    with sk.LitDataset(FOLDER / "tokens") as dataset:
        read = dataset.__getitems__(range(20))
    assert all(torch.equal(read[row], tokens_of(row)) for row in range(20))


def test_images_are_images():
    with sk.LitDataset(FOLDER / "images", ["image"]) as dataset:
        assert (np.asarray(dataset[3]["image"]) == np.asarray(image_of(3)["image"])).all()


def test_a_pickle_is_never_loaded_and_other_columns_are():
    with sk.LitDataset(FOLDER / "pickled") as dataset, pytest.raises(sk.DatasetError, match="never loaded"):
        dataset[0]
    with sk.LitDataset(FOLDER / "pickled", ["id"]) as dataset:
        assert dataset[7] == {"id": 7}
    with pytest.raises(sk.DatasetError, match=r"no column 'x', but \['id', 'any'\]"):
        len(sk.LitDataset(FOLDER / "pickled", ["x"]))


LIES = {
    "its chunks are encrypted": ("encryption", {"level": "sample"}),
    "written for ParquetLoader, which is not read": ("item_loader", "ParquetLoader"),
    "compression 'lz4', which is not known": ("compression", "lz4"),
    "samples of 13 values, and 1 ways to write them": ("data_format", ["int"]),
    "samples with a builtins.set, which is not read": (
        "data_spec",
        '[1, {"type": "builtins.set", "context": null, "children_spec": []}]',
    ),
}


@pytest.mark.parametrize("problem", LIES)
def test_an_index_that_cannot_be_read_says_why(tmp_path, problem):
    shutil.copytree(FOLDER / "plain", tmp_path, dirs_exist_ok=True)
    index = json.loads((tmp_path / "index.json").read_text())
    key, value = LIES[problem]
    index["config"][key] = value
    (tmp_path / "index.json").write_text(json.dumps(index))
    with pytest.raises(sk.DatasetError, match=problem):
        len(sk.LitDataset(tmp_path))


def test_a_chunk_outside_of_the_folder_is_refused(tmp_path):
    shutil.copytree(FOLDER / "plain", tmp_path, dirs_exist_ok=True)
    text = (tmp_path / "index.json").read_text().replace("chunk-0-1.bin", "../chunk.bin")
    (tmp_path / "index.json").write_text(text)
    with pytest.raises(sk.DatasetError, match="a shard outside of the folder"):
        len(sk.LitDataset(tmp_path))
