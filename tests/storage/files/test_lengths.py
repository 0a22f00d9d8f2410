"""The number of samples of each file: given, counted at first need, or loaded from a file."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import samplerkit as sk
from samplerkit.storage.files.dataset import FileDataset
from tests.storage.crowd import run_in_threads
from tests.storage.files.folders import Watching, plain, samples_of, write_npz

SIZES = [4, 0, 7, 1]
NAMES = ["000.npz", "001.npz", "002.npz", "003.npz"]


@pytest.fixture(name="paths")
def fixture_paths(tmp_path):
    return [str(path) for path in write_npz(tmp_path / "data", SIZES)]


class Counting(Watching):
    """A reader that can count without reading."""

    def __init__(self, seconds=0.0):
        super().__init__(seconds)
        self.counted: list[str] = []

    def count(self, path):
        time.sleep(self.seconds)
        self.counted.append(path)
        with np.load(path) as arrays:
            return len(arrays["id"])


GIVEN = {
    "a list": lambda paths: SIZES,
    "an array": lambda paths: np.array(SIZES),
    "a dict of path objects": lambda paths: {
        Path(path): size for path, size in zip(paths, SIZES, strict=True)
    },
    "a dict of names": lambda paths: dict(zip(NAMES, SIZES, strict=True)),
    "a dict in another order": lambda paths: dict(reversed(list(zip(paths, SIZES, strict=True)))),
    "a dict of both": lambda paths: {paths[0]: 4, NAMES[1]: 0, NAMES[2]: 7, paths[3]: 1},
}


@pytest.mark.parametrize("form", GIVEN)
def test_given_lengths_open_no_file_at_the_start(paths, form):
    reader = Counting()
    with FileDataset(paths, reader, GIVEN[form](paths)) as dataset:
        assert len(dataset) == 12
        assert dataset.layout == sk.Layout(SIZES, NAMES)
        assert reader.counted == reader.read == []
        assert plain(dataset[11]) == samples_of(SIZES)[11]
        assert reader.read == ["003.npz"]


def test_lengths_are_counted_at_first_need_and_once(paths):
    reader = Counting()
    with FileDataset(paths, reader) as dataset:
        assert reader.counted == []
        assert repr(dataset) == "FileDataset(4 files, not opened)"
        assert [len(dataset) for _ in range(3)] == [12, 12, 12]
        assert dataset.layout.sizes.tolist() == SIZES
        assert sorted(reader.counted) == sorted(paths)
        assert reader.read == []
        assert dataset.stats.files_counted == 4
        assert repr(dataset) == "FileDataset(4 files, 12 samples)"


def test_several_threads_that_need_lengths_count_once(paths):
    reader = Counting(seconds=0.05)
    lengths = []
    with FileDataset(paths, reader) as dataset:
        run_in_threads(*[lambda: lengths.append(len(dataset))] * 5)
    assert lengths == [12] * 5
    assert len(reader.counted) == 4


def test_files_are_counted_several_at_a_time(tmp_path):
    paths = write_npz(tmp_path, [2] * 32)
    together = threading.Barrier(8)

    class Together(Watching):
        def count(self, path):
            together.wait(30)  # broken unless eight are here at once
            return 2

    assert len(FileDataset(paths, Together())) == 64


def test_a_reader_that_cannot_count_keeps_to_the_limit_of_memory(tmp_path):
    paths = write_npz(tmp_path, [2] * 12)
    reader = Watching(seconds=0.02)
    assert len(FileDataset(paths, reader, max_files=3)) == 24
    assert reader.at_a_time <= 3
    assert len(reader.read) == 12


@pytest.mark.parametrize("wrong", ["3", 1.5, None, True, -1, [4], np.array([4, 4])], ids=str)
def test_a_count_that_is_not_a_number_is_an_error_that_names_the_file(paths, wrong):
    class Wrong(Watching):
        def count(self, path):
            return wrong

    with pytest.raises(sk.DatasetError, match=r"\.npz: the reader must return a number of samples"):
        len(FileDataset(paths, Wrong()))


def test_saved_lengths_are_loaded_by_another_dataset_also_when_the_folder_was_moved(paths, tmp_path):
    FileDataset(paths, "npz").save_lengths(tmp_path / "lengths.json")
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["lengths.json"]
    (tmp_path / "data").rename(tmp_path / "moved")
    moved = [path.replace("data", "moved") for path in paths]
    reader = Counting()
    plain_dict = tmp_path / "plain.json"
    plain_dict.write_text(json.dumps(dict(zip(moved, SIZES, strict=True))), encoding="utf-8")
    for where in (str(tmp_path / "lengths.json"), plain_dict):
        assert FileDataset(moved, reader, where).layout == sk.Layout(SIZES, NAMES)
    assert reader.counted == []


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[1, 2]",
        "3",
        '{"lengths": [1]}',
        '{"lengths": null}',
        "[" * 100_000,
        f'{{"a": {"9" * 5000}}}',
    ],
    ids=range(8),
)
def test_a_damaged_file_of_lengths_is_a_typed_error(paths, tmp_path, text):
    (tmp_path / "lengths.json").write_text(text, encoding="utf-8")
    with pytest.raises(sk.DatasetError, match=r"lengths\.json"):
        FileDataset(paths, "npz", tmp_path / "lengths.json")


@pytest.mark.parametrize("wrong", [6, 8])
def test_a_wrong_length_names_the_file_and_both_lengths(paths, wrong):
    with FileDataset(paths, "npz", [4, 0, wrong, 1]) as dataset:
        assert plain(dataset[0]) == samples_of(SIZES)[0]
        with pytest.raises(
            sk.DatasetError, match=rf"002\.npz: has 7 samples, but {wrong} were given or counted"
        ):
            dataset[5]
