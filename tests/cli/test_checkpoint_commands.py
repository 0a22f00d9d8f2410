"""The commands on what was read and on checkpoints: at, when, seen, state and edit."""

import json
import pickle
from functools import partial

import numpy as np
import pytest
import torch
import yaml

import samplerkit as sk
from tests.cli.configs import NAMES, SIZES, config, in_json, is_plain_and_narrow
from tests.corpora import write_tokens
from tests.numbers import Numbers

PARTS = {"web": {"kind": "size", "size": 90}, "code": {"kind": "size", "size": 30}}


def tree_read(folder):
    """A config of a tree, and what two ranks have read: a whole epoch, and three steps more."""
    path = config(folder, dataset={"kind": "tree", "parts": PARTS}, shuffle="global")
    loaded = sk.load_config(path)
    loader = sk.Loader(Numbers(loaded.dataset), loaded.sampler, batch_size=8, world=sk.World(2, 0))
    for _ in loader:
        pass
    for state, steps in (("earlier.json", 0), ("state.json", 3)):
        (folder / state).write_text(json.dumps(loader.state_dict(step=steps)))
    return path, loader.history(loader.state_dict(step=3))


def test_seen_shows_what_a_checkpoint_has_read(command, printed, tmp_path):
    path, history = tree_read(tmp_path)
    arguments = ("seen", path, "--state", tmp_path / "state.json", "--world", 2)
    output = printed(*arguments)
    assert is_plain_and_narrow(output)
    assert "168 samples" in output
    assert output.splitlines()[-2:] == ["    0        1      0   the end", "    1        1      0        48"]
    _, result = in_json(command, *arguments, "--since", tmp_path / "earlier.json", "--part", "code")
    assert (result["samples"], result["is_complete"], result["older_epochs"]) == (48, True, 0)
    assert result["read"] == [{"epoch": 1, "from": 0, "to": 48}]
    read = int((history[120:] < 30).sum())  # the parts of a config are in alphabetical order
    assert result["part"] == {"name": "code", "read": read, "passes": read / 30}


def test_seen_shows_in_which_epochs_and_positions_a_sample_was_read(command, tmp_path):
    path, history = tree_read(tmp_path)
    arguments = ("seen", path, "--state", tmp_path / "state.json", "--world", 3)
    for sample in (int(history[130]), int(np.setdiff1d(np.arange(120), history[120:])[0])):
        positions = history.positions_of(sample)
        epochs = history.epochs_of(positions).tolist()
        expected = [*zip(epochs, (positions % 120).tolist(), strict=True)]
        _, result = in_json(command, *arguments, "--sample", sample)
        assert [(time["epoch"], time["position"]) for time in result["times"]] == expected
        assert all(str(position) in command(*arguments, "--sample", sample)[1] for _, position in expected)


def test_seen_writes_all_ids_in_the_order_of_reading(printed, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed: no parquet here")
    path, history = tree_read(tmp_path)
    for name in ("ids.npy", "ids.parquet"):
        printed("seen", path, "--state", tmp_path / "state.json", "--out", tmp_path / name)
    assert np.load(tmp_path / "ids.npy").tolist() == history[:].tolist()
    assert parquet.read_table(tmp_path / "ids.parquet")["id"].to_pylist() == history[:].tolist()


def test_seen_shows_how_many_tokens_of_a_document_were_read(command, tmp_path):
    prefix = write_tokens(tmp_path / "corpus", map(range, (6, 30, 8)))
    tokens = {"kind": "tokens", "files": [prefix], "seq_len": 4, "phase": False}
    path = config(tmp_path, dataset=tokens, shuffle="false")
    loader = sk.load_config(path).make_loader(world=sk.World(1, 0))
    (tmp_path / "state.json").write_text(json.dumps(loader.state_dict(step=0)))
    arguments = ("seen", path, "--state", tmp_path / "state.json", "--document", 1)
    assert "never" in command(*arguments)[1]
    (tmp_path / "state.json").write_text(json.dumps(loader.state_dict(step=1)))
    times = in_json(command, *arguments)[1]["times"]
    # Of the first of seven windows three tokens, and five of each other one, its last label included.
    read = [(time["first"], time["tokens"]) for time in times]
    assert read == [(0, 3), *((2 + 4 * n, 5) for n in range(6))]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (("--part", "books"), "is not a part of the dataset"),
        (("--sample", 120), "outside of a dataset"),
        (("--document", 1), "is not known by the dataset"),
        (("--sample", 1, "--document", 1), "give one of the two"),
        (("--sample", 1, "--file", "a"), "requires --document"),
        (("--out", "ids.txt"), "must end with .npy or .parquet"),
        (("--out", "none/ids.npy"), "--out: cannot be written (No such file or directory)"),
        (("--since", "state.json", "--state", "earlier.json"), "is not in the past"),
    ],
)
def test_an_invalid_question_is_an_error_in_one_line(refused, tmp_path, monkeypatch, options, problem):
    path, _ = tree_read(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert problem in refused("seen", path, "--state", "state.json", *options)


def saved_state(path, step=3):
    loader = sk.load_config(path).make_loader(sk.Layout(SIZES, NAMES), sk.World(2, 0))
    return loader.state_dict(step=step)


@pytest.mark.parametrize("kind", ["json", "torch"])
def test_state_finds_a_state_in_a_checkpoint_and_compares_it_with_a_config(command, printed, tmp_path, kind):
    path, file = config(tmp_path, shuffle="files"), tmp_path / f"checkpoint.{kind}"
    saved = saved_state(path)
    if kind == "json":
        file.write_text(f"\t{json.dumps(saved)}", encoding="utf-8-sig")
    else:
        torch.save({"model": torch.zeros(3), "data": [saved]}, file)
    output = printed("state", file, "--config", path, "--world", 4)
    assert is_plain_and_narrow(output)
    assert "whole, and fits the config" in output
    state = in_json(command, "state", file)[1]["states"][0]
    assert state["place"] == ("the file itself" if kind == "json" else "/data/0")
    assert state["position"] == saved["position"] == 48
    assert state["order"] == in_json(command, "plan", path, "--world", 2)[1]["fingerprint"]
    other = config(tmp_path, "other.yaml", shuffle="global")
    code, _, errors = command("state", file, "--config", other)
    assert (code, errors.count("\n")) == (1, 1)
    assert "state: sampler: differs" in errors


def test_state_reports_damage_and_files_without_a_state(command, tmp_path):
    path, file = config(tmp_path, shuffle="files"), tmp_path / "state.json"
    file.write_text(json.dumps({**saved_state(path), "position": 64}))
    code, output, errors = command("state", file)
    assert code == 1
    assert "damaged" in output
    assert "checksum" in errors
    file.write_text("{}")
    code, _, errors = command("state", file)
    assert (code, errors.count("\n")) == (1, 1)
    assert "holds no state" in errors


class Code:
    """The content of a hostile checkpoint."""

    def __reduce__(self):
        return print, ("it ran",)


def test_state_runs_no_code_of_a_checkpoint_and_reads_no_other_files(refused, tmp_path):
    torch.save({"data": Code()}, tmp_path / "hostile.pt")
    (tmp_path / "pops.pt").write_bytes(b"s")  # on these torch's unpickler raises other exceptions of Python
    (tmp_path / "ends.pt").write_bytes(b"X\x01")
    (tmp_path / "pickled.pt").write_bytes(pickle.dumps(print))  # torch warns of its protocol
    problem = "is neither JSON nor a checkpoint that is safe to read"
    for name in ("hostile.pt", "pops.pt", "ends.pt", "pickled.pt"):
        error = refused("state", tmp_path / name)
        assert problem in error
        assert error.endswith("; save loader.state_dict() in a file of its own\n")
    assert "(UnpicklingError: Weights only load failed)" in error


def test_at_counts_pads_and_the_rest_of_long_batches(command, printed, tmp_path):
    path = config(tmp_path, shuffle="global")
    output = printed("at", path, "--epoch", 0, "--step", 10, "--rank", 4, "--world", 5)
    assert "2 samples, 1 pad among them" in output
    long = config(tmp_path, loader={"batch_size": 100})
    assert "and 36 more; --json lists all" in " ".join(
        command("at", long, "--epoch", 0, "--step", 0)[1].split()
    )


def test_when_distinguishes_dropped_from_never_drawn(command, tmp_path):
    path = config(tmp_path, shuffle=False, loader={"batch_size": 50, "tail": "drop"})
    assert "the tail drops it" in command("when", path, "--sample", 407)[1]
    subset = {"kind": "subset", "indices": [1, 2, 2, 3]}
    path = config(tmp_path, shuffle=False, child=subset)
    assert "not drawn" in command("when", path, "--sample", 0)[1]
    assert command("when", path, "--sample", 2)[1].count("\n    0 ") == 2


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
    assert "without=<80 values>" in edited("--without", tmp_path / "bad.npy")[1]
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


@pytest.mark.parametrize(
    ("source", "new"),
    [("new", range(150, 180)), (SUBSET, [153, 155])],
)
def test_a_part_that_was_appended_to_the_tree_is_read_from_the_checkpoint_on(command, tmp_path, source, new):
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
