"""`samplerkit seen`: what a run has read up to a checkpoint, and when it read a sample or a document."""

from __future__ import annotations

import json

import numpy as np
import pytest

import samplerkit as sk
from tests.cli.configs import config, in_json, is_plain_and_narrow

PARTS = {"web": {"kind": "size", "size": 90}, "code": {"kind": "size", "size": 30}}


class Ids:
    """Samples that are their ids, in the layout of a config."""

    def __init__(self, layout):
        self.layout = layout

    def __len__(self):
        return len(self.layout)

    def __getitem__(self, index):
        return index


def tree_read(folder):
    """A config of a tree, and what a rank of two has read: a whole epoch of it, and three steps more."""
    path = config(folder, dataset={"kind": "tree", "parts": PARTS}, shuffle="global")
    loaded = sk.load_config(path)
    loader = sk.Loader(Ids(loaded.dataset), loaded.sampler, batch_size=8, world=sk.World(2, 0))
    for _ in loader:
        pass
    for state, steps in (("earlier.json", 0), ("state.json", 3)):
        (folder / state).write_text(json.dumps(loader.state_dict(step=steps)))
    return path, loader.history(loader.state_dict(step=3))


def test_seen_says_what_a_checkpoint_has_read(command, tmp_path):
    path, history = tree_read(tmp_path)
    asked = ("seen", path, "--state", tmp_path / "state.json", "--world", 2)
    code, output, _ = command(*asked)
    assert code == 0
    assert is_plain_and_narrow(output)
    assert "168 samples" in output
    assert output.splitlines()[-2:] == ["    0        1      0   the end", "    1        1      0        48"]
    _, told = in_json(command, *asked, "--since", tmp_path / "earlier.json", "--part", "code")
    assert (told["samples"], told["is_complete"], told["older_epochs"]) == (48, True, 0)
    assert told["read"] == [{"epoch": 1, "from": 0, "to": 48}]
    read = int((history[120:] < 30).sum())  # the parts of a config are in the order of the alphabet
    assert told["part"] == {"name": "code", "read": read, "passes": read / 30}


@pytest.mark.parametrize("world", [1, 2, 3])
def test_seen_says_when_a_sample_was_read_by_epochs_and_positions(command, tmp_path, world):
    path, history = tree_read(tmp_path)
    asked = ("seen", path, "--state", tmp_path / "state.json", "--world", world)
    for sample in (int(history[130]), int(np.setdiff1d(np.arange(120), history[120:])[0])):
        positions = history.positions_of(sample)
        epochs = history.epochs_of(positions).tolist()
        wanted = [*zip(epochs, (positions % 120).tolist(), strict=True)]
        _, told = in_json(command, *asked, "--sample", sample)
        assert [(time["epoch"], time["position"]) for time in told["times"]] == wanted
        assert all(str(position) in command(*asked, "--sample", sample)[1] for _, position in wanted)


@pytest.mark.parametrize(("name", "read"), [("ids.npy", np.load), ("ids.parquet", None)])
def test_seen_writes_all_ids_in_the_order_of_reading(command, tmp_path, name, read):
    path, history = tree_read(tmp_path)
    out = tmp_path / name
    assert command("seen", path, "--state", tmp_path / "state.json", "--out", out)[0] == 0
    if read is None:
        parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed: no parquet here")
        assert parquet.read_table(out)["id"].to_pylist() == history[:].tolist()
    else:
        assert read(out).tolist() == history[:].tolist()


def test_seen_says_how_many_tokens_of_a_document_were_read(command, tmp_path):
    prefix = tmp_path / "corpus"
    with sk.TokenWriter(str(prefix), "uint16") as writer:
        for length in (6, 30, 8):
            writer.write(range(length))
    path = config(
        tmp_path,
        dataset={"kind": "tokens", "files": [str(prefix)], "seq_len": 4, "phase": False},
        shuffle="false",
    )
    loader = sk.load_config(path).make_loader(world=sk.World(1, 0))
    (tmp_path / "state.json").write_text(json.dumps(loader.state_dict(step=0)))
    asked = ("seen", path, "--state", tmp_path / "state.json", "--document", 1)
    assert in_json(command, *asked)[1]["times"] == []
    assert "never" in command(*asked)[1]
    (tmp_path / "state.json").write_text(json.dumps(loader.state_dict(step=1)))
    times = in_json(command, *asked)[1]["times"]
    # Of the first of seven windows three tokens, and five of each other one, its last label included.
    assert [(time["first"], time["tokens"]) for time in times] == [
        (0, 3),
        *((2 + 4 * n, 5) for n in range(6)),
    ]


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        (("--part", "books"), "is none of"),
        (("--sample", 120), "outside of a dataset"),
        (("--document", 1), "is not known by the dataset"),
        (("--out", "ids.txt"), "must end with .npy or .parquet"),
        (("--since", "state.json", "--state", "earlier.json"), "is not in the past"),
    ],
)
def test_what_cannot_be_answered_is_one_line(command, tmp_path, monkeypatch, said, problem):
    path, _ = tree_read(tmp_path)
    monkeypatch.chdir(tmp_path)
    code, _, errors = command("seen", path, "--state", "state.json", *said)
    assert code == 2
    assert problem in errors
    assert len(errors.splitlines()) == 1
