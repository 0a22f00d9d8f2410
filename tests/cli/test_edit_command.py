"""The command `samplerkit edit`: it writes a config that the checkpoint fits, and prints what changes."""

from __future__ import annotations

import json
from functools import partial

import numpy as np
import pytest
import yaml

import samplerkit as sk
from tests.numbers import Numbers

TRAIN = {
    "dataset": {"kind": "size", "size": 100},
    "sampler": {"kind": "random", "seed": 7},
    "loader": {"batch_size": 5},
}


def command_in(folder):
    return ("edit", folder / "state.json", "--config", folder / "train.yaml", "-o", folder / "edited.yaml")


@pytest.fixture
def edited(command, tmp_path):
    """Edits a run of two ranks at step 4; returns the exit code, the output and the errors."""
    (tmp_path / "train.yaml").write_text(yaml.safe_dump(TRAIN))
    loader = sk.load_config(tmp_path / "train.yaml").make_loader(range(100), sk.World(2, 0))
    (tmp_path / "state.json").write_text(json.dumps(loader.state_dict(step=4)))
    return partial(command, *command_in(tmp_path), "--world", 2)


def resumed(folder, dataset=None, world=None):
    """The loader of the written config, at the checkpoint."""
    loader = sk.load_config(folder / "edited.yaml").make_loader(dataset, world)
    loader.load_state_dict(json.loads((folder / "state.json").read_text()))
    return loader


def test_the_written_config_resumes_from_the_checkpoint_with_the_edit(edited, tmp_path):
    code, output, _ = edited("--skip", 30, "--json")
    assert code == 0
    result = json.loads(output)
    assert (result["at"], result["unchanged"], result["skipped"], result["edits"]) == (40, 0, 30, 1)
    loader = resumed(tmp_path, range(100), sk.World(2, 0))
    assert next(iter(loader)).tolist() == sk.RandomSampler(seed=7).order(100)[70:80:2].tolist()
    assert loader.fingerprint == result["order"]


def test_a_step_has_more_samples_from_the_checkpoint_on(edited, tmp_path):
    assert "global_batch=30" in edited("--global-batch", 30)[1]
    loader = resumed(tmp_path, range(100), sk.World(2, 0))
    assert [len(batch) for batch in loader] == [15, 15]


def test_ids_of_a_file_are_no_longer_read(edited, tmp_path):
    np.save(tmp_path / "bad.npy", np.arange(10, 90))
    assert "without=<80 ids>" in edited("--without", tmp_path / "bad.npy")[1]
    loader = resumed(tmp_path, range(100), sk.World(2, 0))
    assert set(loader.order[40:].tolist()) == {*range(10), *range(90, 100)}


def test_the_written_config_finds_its_files_from_another_folder(printed, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for folder in ("run", "edited"):
        (tmp_path / folder).mkdir()
    np.save("run/keep.npy", np.arange(60))
    config = {**TRAIN, "sampler": {"kind": "subset_random", "indices": "keep.npy"}}
    (tmp_path / "run" / "train.yaml").write_text(yaml.safe_dump(config))
    state = sk.load_config("run/train.yaml").make_loader(range(100)).state_dict(step=4)
    (tmp_path / "state.json").write_text(json.dumps(state))
    printed("edit", "state.json", "--config", "run/train.yaml", "-o", "edited/train.yaml", "--skip", 5)
    assert len(sk.load_config("edited/train.yaml").sampler.order(100)) == 60


SUBSET = "new: {kind: subset, indices: [3, 5]}"
LONG = SUBSET + " " * 300
"""Longer than a file name may be."""


@pytest.mark.parametrize(
    ("source", "new"),
    [("new", range(150, 180)), (LONG, [153, 155]), ("a file", [153, 155])],
)
def test_a_part_that_was_appended_to_the_tree_is_read_from_the_checkpoint_on(command, tmp_path, source, new):
    if source == "a file":
        source = str(tmp_path / "new.yaml")
        (tmp_path / "new.yaml").write_text(SUBSET)
    sizes = {"web": 100, "code": 50, "new": 30}
    parts = {name: {"kind": "size", "size": size} for name, size in sizes.items()}
    mixture = {"kind": "mixture", "num_samples": 200, "sources": {"web": None, "code": None}, "lanes": 1}
    run = {"sampler": {**mixture, "weights": {"web": 3, "code": 1}}, "loader": {"batch_size": 10}}
    small = {"kind": "tree", "parts": {name: parts[name] for name in ("web", "code")}}
    loader = sk.load_config({**run, "dataset": small}).make_loader(
        Numbers(sk.Layout.tree({"web": 100, "code": 50}))
    )
    (tmp_path / "state.json").write_text(json.dumps(loader.state_dict(step=4)))
    config = {**run, "dataset": {"kind": "tree", "parts": parts}}
    (tmp_path / "train.yaml").write_text(yaml.safe_dump(config, sort_keys=False))
    arguments = (*command_in(tmp_path), "--weights", "web=1,code=1,new=2")
    assert command(*arguments)[0] == 2
    assert command(*arguments, "--source", source)[0] == 0
    loader_after = resumed(tmp_path, Numbers(sk.Layout.tree(sizes)))
    ids = loader_after.order[:]
    assert (ids[:40] == loader.order[:40]).all()
    assert (ids[40:] >= 150).sum() == pytest.approx(80, abs=9)
    assert {*ids[ids >= 150].tolist()} == {*new}


@pytest.mark.parametrize(
    "options",
    [
        ["--global-batch", "31"],
        ["--without", "none.npy"],
        ["--skip", "3", "--at", "39"],
        [],
        ["--weights", "web"],
        ["--weights", "web=1"],
        ["--weights", "web=1,code=1,code=2"],
        ["--weights", "web=1", "--source", "{1: null}"],
        ["--weights", "web=1", "--source", "{web: ["],
        ["--weights", "web=1", "--source", "[" * 9_000],
    ],
)
def test_invalid_edits_are_refused_and_nothing_is_written(edited, tmp_path, options):
    assert edited(*options)[0] == 2
    assert not (tmp_path / "edited.yaml").exists()


def test_a_run_of_blocks_is_not_edited_above_them(command, tmp_path):
    run = {**TRAIN, "sampler": {"kind": "block", "pool": 2, "windows_per_block": 5}}
    (tmp_path / "train.yaml").write_text(yaml.safe_dump(run))
    state = sk.load_config(run).make_loader(range(100)).state_dict(step=4)
    (tmp_path / "state.json").write_text(json.dumps(state))
    code, _, errors = command(*command_in(tmp_path), "--skip", 10)
    assert code == 2
    assert "a ledger below it, which counts in blocks" in errors


def test_ids_that_are_pickled_objects_are_not_read(edited, tmp_path):
    np.save(tmp_path / "objects.npy", np.array([{"an": "object"}]), allow_pickle=True)
    assert "cannot be read" in edited("--without", tmp_path / "objects.npy")[2]
    assert not (tmp_path / "edited.yaml").exists()
