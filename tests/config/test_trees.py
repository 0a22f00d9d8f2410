"""A tree of datasets in a config, whose errors have the whole path."""

from __future__ import annotations

import json

import numpy as np
import pytest
from torch.utils.data import ConcatDataset

import samplerkit as sk
from tests.config.answers import valid
from tests.storage.files.folders import write_npz
from tests.storage.tar.remote_shards import NUMBERS, write_shards

SAMPLER = {"kind": "random", "shuffle": "files", "seed": 3}


def of(dataset, **more):
    return {"dataset": dataset, "sampler": SAMPLER, **more}


def tree(**parts):
    return {"kind": "tree", "parts": parts}


SIZES = tree(web={"kind": "layout", "sizes": [5, 7]}, more=tree(code={"kind": "size", "size": 3}))


def test_a_tree_of_layouts_is_a_layout():
    config = sk.load_config(of(SIZES))
    assert config.dataset == sk.Layout.tree({"web": sk.Layout([5, 7]), "more": sk.Layout.tree({"code": 3})})
    assert sk.load_config(config.to_dict()) == config
    assert config.to_dict()["dataset"] == SIZES
    schema = sk.Config.json_schema()
    assert valid(of(SIZES), schema)
    assert not valid(of(tree()), schema)
    assert not valid(of(tree(a=None)), schema)


@pytest.fixture(name="folder")
def fixture_folder(tmp_path, monkeypatch):
    """Real shards and files, in folders below the working directory."""
    monkeypatch.chdir(tmp_path)
    write_shards(tmp_path / "tar")
    write_npz(tmp_path / "npz", [4, 3])
    return tmp_path


@pytest.fixture(name="written")
def fixture_written(folder):
    """A config of both, with paths that start from its folder."""
    tar = {
        "kind": "tar",
        "urls": "tar/train-{00..07}.tar",
        "decode": True,
        "to_tuple": ["cls"],
        "cache": "cache",
    }
    files = {"kind": "files", "files": "npz/*.npz", "reader": "npz"}
    written = of(tree(web=tar, more=tree(books=files)), loader={"batch_size": 8})
    (folder / "run.yaml").write_text(json.dumps(written))  # JSON is YAML
    return folder / "run.yaml"


def test_a_tree_of_real_datasets_is_read_in_the_order_of_its_config(written):
    config = sk.load_config(str(written))
    assert isinstance(config.dataset, sk.TreeDataset)
    assert isinstance(config.dataset.parts["more"].parts["books"], sk.FileDataset)
    with config.make_loader(world=sk.World(1, 0), collate_fn=list) as loader:
        ids = [id for step in range(len(loader)) for id in loader.ids(step).tolist()]
        samples = [sample for batch in loader for sample in batch]
    numbers = [sample[0] if isinstance(sample, tuple) else int(sample["id"]) for sample in samples]
    assert numbers == [id if id < len(NUMBERS) else id - len(NUMBERS) for id in ids]
    assert sorted(ids) == list(range(len(NUMBERS) + 7))
    again = sk.load_config(config.to_dict())
    assert again == config
    assert again.dataset.layout == config.dataset.layout


def test_a_users_dataset_gets_the_parts_of_the_config():
    config = sk.load_config(of(SIZES, loader={"batch_size": 5}))
    with config.make_loader(np.arange(15), world=sk.World(1, 0)) as loader:
        assert sorted(np.concatenate(list(loader)).tolist()) == list(range(15))
        assert loader.dataset.layout == config.dataset
    parts = {"web": ConcatDataset([range(5), range(7)]), "more": sk.TreeDataset({"code": range(3)})}
    assert config.make_loader(sk.TreeDataset(parts)).dataset.layout == config.dataset
    for other in ({"web": parts["web"], "less": parts["more"]}, {"web": range(12), "more": range(3)}):
        with pytest.raises(sk.ConfigError, match="but the dataset has other"):
            config.make_loader(sk.TreeDataset(other))
    flat = sk.load_config(of({"kind": "layout", "sizes": [5, 7, 3]}))
    assert flat.make_loader(sk.TreeDataset(parts)).dataset.layout == config.dataset
