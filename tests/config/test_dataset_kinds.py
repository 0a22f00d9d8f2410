"""Datasets that a config names by their files: with a reader, or as tar shards."""

from __future__ import annotations

import os

import numpy as np
import pytest
import torch

import samplerkit as sk
from samplerkit.storage.files.dataset import FileDataset
from samplerkit.storage.tar.dataset import TarDataset
from samplerkit.storage.tar.writer import TarWriter
from samplerkit.storage.tokens.dataset import TokenDataset
from tests.storage.files.folders import write_npz

SIZES = [5, 3, 6]


@pytest.fixture
def folder(tmp_path):
    """A folder with a config's data, which is not the working directory."""
    write_npz(tmp_path / "data", SIZES, "{}.npz")
    np.save(tmp_path / "data" / "tokens.npy", np.arange(14 * 8 + 1, dtype=np.uint8))
    with TarWriter(str(tmp_path / "data" / "part-%03d.tar"), samples_per_shard=5) as writer:
        for number in range(14):
            writer.write({"__key__": f"{number:03}", "cls": number, "txt": f"number {number}"})
    return tmp_path


def config_of(folder, dataset, rest="sampler: {kind: random, shuffle: files, seed: 2}\n"):
    (folder / "config.yaml").write_text(f"dataset: {dataset}\n{rest}loader: {{batch_size: 4}}\n")
    return sk.load_config(folder / "config.yaml")


def first_of_tokens(batch):
    return batch[:, 0] // 8


FILES = "{kind: files, files: 'data/*.npz', reader: npz}"
TOKENS = "{kind: tokens, files: 'data/*.npy', seq_len: 8, phase: false}"
CORPORA = (
    "'data/*.npy'",
    "{web: [data/tokens.npy]}",
    "{web: data/tokens.npy}",
    "{all: {web: data/tokens.npy}}",
)
TAR = "{kind: tar, urls: 'data/part-{000..002}.tar', decode: true, to_tuple: [cls, txt]}"


@pytest.mark.parametrize(
    ("dataset", "kind", "ids"),
    [
        (FILES, FileDataset, lambda batch: batch["id"]),
        (FILES.replace("npz}", "npz, lengths: [5, 3, 6]}"), FileDataset, lambda batch: batch["id"]),
        (
            FILES.replace("'data/*.npz'", "[data/0.npz, data/1.npz, data/2.npz]"),
            FileDataset,
            lambda batch: batch["id"],
        ),
        (TAR, TarDataset, lambda batch: batch[0]),
        *((TOKENS.replace("'data/*.npy'", files), TokenDataset, first_of_tokens) for files in CORPORA),
        (
            TOKENS.replace("phase: false", "phase: false, outputs: [tokens, labels]"),
            TokenDataset,
            lambda batch: first_of_tokens(batch["tokens"]),
        ),
    ],
)
def test_a_config_reads_its_dataset_from_its_own_folder_and_round_trips(
    folder, dataset, kind, ids, monkeypatch
):
    config = config_of(folder, dataset)
    assert isinstance(config.dataset, kind)
    expected = list(config.sampler.order(config.dataset))
    assert sorted(expected) == list(range(14))
    for loader in (config.make_loader(world=sk.World()), config.dataloader(world=sk.World())):
        assert torch.cat([ids(batch) for batch in loader]).tolist() == expected
    monkeypatch.chdir(folder.parent)
    again = sk.load_config(config.to_dict())
    assert again == config
    assert hash(again) == hash(config)
    assert len(again.dataset) == 14


def test_the_lengths_of_files_may_be_in_a_file_next_to_the_config(folder):
    config = config_of(folder, FILES)
    config.dataset.save_lengths(folder / "lengths.json")
    os.remove(folder / "data" / "1.npz")  # noqa: PTH107  # so it would be an error to count it
    with_lengths = config_of(
        folder,
        "{kind: files, files: [data/0.npz, data/1.npz, data/2.npz], reader: npz, lengths: lengths.json}",
    )
    assert with_lengths.dataset.layout.sizes.tolist() == SIZES


@pytest.mark.parametrize(
    "section",
    [
        "{kind: tar, urls: 'data/part-{000..002}.tar', lengths: [5, 5, 4], decode: true, on_error: skip}",
        "{kind: layout, sizes: [5, 5, 4], names: [cats, dogs, birds]}",
    ],
    ids=["its own dataset, mapped", "a layout, and a user's dataset"],
)
def test_samples_that_a_dataset_skips_are_counted_when_the_config_gives_its_files(folder, section):
    (folder / "data" / "part-001.tar").unlink()
    config = config_of(folder, section, rest="sampler: {kind: random, seed: 2}\n")
    paths = f"{folder}/data/part-{{000..002}}.tar"
    shards = (
        config.dataset
        if isinstance(config.dataset, TarDataset)
        else TarDataset(paths, lengths=[5, 5, 4], on_error="skip").decode()
    )
    loader = config.make_loader(shards.map(lambda sample: sample["cls"]), world=sk.World())
    read = [label for batch in loader for label in batch.tolist()]
    assert sorted(read) == [*range(5), *range(10, 14)]
    assert sorted(sample.id for sample in loader.skipped) == [*range(5, 10)]
    assert loader.figures()["skipped"] == 5
