"""Readers of a user by a name: in Python, in configs, and in workers that know no names."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest

import samplerkit as sk
from samplerkit.storage.files.readers import READERS, NpyReader

SIZES = [3, 4, 2]


def read_words(path):
    return {"id": np.array([int(word) for word in Path(path).read_text().split()])}


@pytest.fixture(autouse=True)
def names_as_before(monkeypatch):
    monkeypatch.setattr("samplerkit.storage.files.readers.READERS", dict(READERS))


@pytest.fixture
def folder(tmp_path):
    ids = iter(range(sum(SIZES)))
    for number, size in enumerate(SIZES):
        (tmp_path / f"{number}.words").write_text(" ".join(str(next(ids)) for _ in range(size)))
    return tmp_path


def config_in(folder):
    (folder / "config.yaml").write_text(
        "dataset: {kind: files, files: '*.words', reader: words}\n"
        "sampler: {kind: random, seed: 3}\n"
        "loader: {batch_size: 3}\n"
    )
    return sk.load_config(folder / "config.yaml")


def test_a_registered_reader_is_found_by_its_name(folder):
    sk.register_reader("words", read_words)
    with sk.FileDataset(str(folder / "*.words"), "words") as dataset:
        assert dataset.layout.sizes.tolist() == SIZES
        assert [sample["id"] for sample in dataset.__getitems__([8, 0, 3])] == [8, 0, 3]


def test_a_config_names_a_registered_reader_and_a_spawned_process_has_it(folder):
    """The process imports this module, which registers nothing."""
    sk.register_reader("words", read_words)
    config = config_in(folder)
    assert config.to_dict()["dataset"]["reader"] == "words"
    assert sk.load_config(config.to_dict()) == config
    wanted = list(config.sampler.order(config.dataset))
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        samples = pool.submit(config.dataset.__getitems__, wanted).result(timeout=120)
    assert [sample["id"] for sample in samples] == wanted
    assert [int(id) for batch in config.make_loader(world=sk.World()) for id in batch["id"]] == wanted


def test_a_name_that_nobody_registered_is_an_error_with_what_to_do(folder):
    hint = "known: npz, npy, parquet, csv, tsv, jsonl, text.*; register_reader adds one of yours"
    with pytest.raises(sk.ArgumentValueError, match=f"reader: is not known, got 'words'; {hint}"):
        sk.FileDataset(str(folder / "*.words"), "words")
    with pytest.raises(sk.ConfigError, match=f"dataset.reader: is not known, got 'words'; {hint}"):
        config_in(folder)


def test_the_same_reader_again_is_no_mistake_also_one_that_is_equal(folder):
    for _ in range(2):
        sk.register_reader("words", read_words)
        sk.register_reader("npy", NpyReader())
    assert len(sk.FileDataset(str(folder / "*.words"), "words")) == sum(SIZES)


@pytest.mark.parametrize(
    ("name", "reader", "error", "message"),
    [
        (
            "npz",
            read_words,
            ValueError,
            r"name: is taken by NpzReader\(keys=None\), got 'npz'; use another name",
        ),
        (3, read_words, TypeError, "name: must be a string, got 3"),
        (None, read_words, TypeError, "name: must be a string"),
        ("", read_words, ValueError, "name: must be a word, got ''"),
        (" words", read_words, ValueError, "name: must be a word"),
        ("words", "npz", TypeError, "reader: must be a function of a path, got 'npz'"),
        ("words", None, TypeError, "reader: must be a function of a path or a reader's name"),
        ("words", {"id": [1]}, TypeError, "reader: must be a function of a path"),
        ("words", NpyReader, TypeError, "reader: must be a function.*; give what the class makes"),
    ],
)
def test_what_cannot_be_registered_is_a_typed_error_and_leaves_the_names_as_they_were(
    name, reader, error, message
):
    with pytest.raises(error, match=message) as caught:
        sk.register_reader(name, reader)
    assert isinstance(caught.value, sk.SamplerkitError)
    with pytest.raises(sk.ArgumentValueError, match="is not known"):
        sk.FileDataset(["a"], "words")


def test_of_two_threads_that_want_one_name_one_gets_it():
    def registers(number):
        def reader(path):
            return [path, number]

        try:
            sk.register_reader("words", reader)
        except sk.ArgumentValueError:
            return 0
        return 1

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(registers, range(32))) == 1
