"""Configs: the objects that they make; arrays in files that they name."""

from __future__ import annotations

import copy
import pickle
from collections import UserDict

import numpy as np
import pytest
import yaml

import samplerkit as sk
from samplerkit.config.loader import LoaderOptions
from tests.config.links import FILES, orders


def test_a_file_a_mapping_and_text_make_the_same_config(tmp_path):
    text = """
    dataset: {kind: layout, sizes: [5, 12, 0, 13]}
    sampler:
      kind: distributed
      shuffle: adaptive
      num_shards: auto
      shard_id: auto
    loader: {batch_size: 256, num_workers: 4}
    """
    path = tmp_path / "run.yaml"
    path.write_text(text, encoding="utf-8-sig")
    loaded = yaml.safe_load(text)
    configs = [
        sk.load_config(path),
        sk.load_config(str(path)),
        sk.load_config(loaded),
        sk.load_config(UserDict(loaded)),
        sk.Config.from_yaml(text),
    ]
    assert all(config == configs[0] and hash(config) == hash(configs[0]) for config in configs)
    assert configs[0].dataset == FILES
    assert configs[0].sampler.get_shuffle_mode() is sk.Shuffle.ADAPTIVE
    assert configs[0].loader == LoaderOptions(batch_size=256, num_workers=4)


def test_the_result_of_to_dict_can_be_changed_without_changing_the_config():
    config = sk.load_config({"sampler": {"kind": "subset", "indices": [1, 2]}})
    config.to_dict()["sampler"]["indices"].append(3)
    assert config.to_dict()["sampler"]["indices"] == [1, 2]


def test_writing_default_values_does_not_change_the_config():
    section = "{kind: distributed, shuffle: global, num_shards: auto, offset: -1, seed: 0, child: null}"
    config = sk.Config.from_yaml(f"sampler: {section}\nloader: {{batch_size: 1, timeout: 0}}")
    assert config == sk.Config.from_yaml("sampler: {kind: distributed, shuffle: true}")
    assert config.to_dict() == {"sampler": {"kind": "distributed"}}


def test_a_config_can_be_pickled_and_copied():
    config = sk.Config.from_yaml("sampler: {kind: random, child: {kind: subset, indices: [3, 4]}}")
    for other in (pickle.loads(pickle.dumps(config)), copy.deepcopy(config)):  # noqa: S301  # our own bytes
        assert other == config
        assert orders(other.sampler) == orders(config.sampler)


ARRAYS = {
    "subset": ("indices", np.array([4, 2, 9])),
    "subset_random": ("indices", np.array([4, 2, 9], dtype=np.uint8)),
    "weighted_random": ("weights", np.array([0.0, 1.0, 3.0], dtype=np.float32)),
    "pk": ("labels", np.array(["a", "b", "c"] * 10)),
    "iter": ("sampler", np.array([4, 2, 9])),
}


@pytest.mark.parametrize("kind", ARRAYS)
def test_an_array_from_a_file_equals_one_in_the_config(kind, tmp_path):
    name, array = ARRAYS[kind]
    path = tmp_path / "array.npy"
    np.save(path, array)
    more = {"num_val": 2} if kind == "pk" else {}
    from_file = sk.load_config({"sampler": {"kind": kind, name: str(path), **more}})
    written_out = sk.load_config({"sampler": {"kind": kind, name: array.tolist(), **more}})
    given = sk.load_config({"sampler": {"kind": kind, name: array, **more}})
    assert orders(from_file.sampler) == orders(written_out.sampler) == orders(given.sampler)
    assert from_file.to_dict()["sampler"][name] == str(path)
    assert given == written_out
    assert sk.load_config(from_file.to_dict()) == from_file


def test_a_path_in_a_mapping_or_in_text_starts_from_the_working_directory(tmp_path, monkeypatch):
    np.save(tmp_path / "keep.npy", [3, 1])
    monkeypatch.chdir(tmp_path)
    section = {"kind": "subset", "indices": "keep.npy"}
    config = sk.load_config({"sampler": section})
    assert config.to_dict()["sampler"] == section
    assert config == sk.Config.from_yaml("sampler: {kind: subset, indices: keep.npy}")
    assert list(config.sampler.order(5)) == [3, 1]
