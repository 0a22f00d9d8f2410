"""Arrays that a config names by their `.npy` files, and what relative paths start from."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import samplerkit as sk
from tests.config.links import orders

ARRAYS = {
    "subset": ("indices", np.array([4, 2, 9])),
    "subset_random": ("indices", np.array([4, 2, 9], dtype=np.uint8)),
    "weighted_random": ("weights", np.array([0.0, 1.0, 3.0], dtype=np.float32)),
    "pk": ("labels", np.array(["a", "b", "c"] * 10)),
    "iter": ("sampler", np.array([4, 2, 9])),
}


@pytest.mark.parametrize("kind", ARRAYS)
def test_an_array_from_a_file_is_as_one_written_out(kind, tmp_path):
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


def test_a_path_starts_from_the_folder_of_the_config_file(tmp_path, monkeypatch):
    (tmp_path / "configs").mkdir()
    np.save(tmp_path / "configs" / "keep.npy", [3, 1])
    (tmp_path / "configs" / "run.yaml").write_text("sampler: {kind: subset, indices: keep.npy}")
    monkeypatch.chdir(tmp_path)
    for path in (Path("configs/run.yaml"), tmp_path / "configs" / "run.yaml"):
        config = sk.load_config(path)
        assert list(config.sampler.order(5)) == [3, 1]
        assert sk.load_config(config.to_dict()) == config


def test_a_path_in_a_mapping_or_in_text_starts_from_the_working_directory(tmp_path, monkeypatch):
    np.save(tmp_path / "keep.npy", [3, 1])
    monkeypatch.chdir(tmp_path)
    section = {"kind": "subset", "indices": "keep.npy"}
    config = sk.load_config({"sampler": section})
    assert config.to_dict()["sampler"] == section
    assert config == sk.Config.from_yaml("sampler: {kind: subset, indices: keep.npy}")
    assert list(config.sampler.order(5)) == [3, 1]
