"""`samplerkit at` and `when`: what is read in a step, and in which steps a sample is."""

from __future__ import annotations

import json
import sys

import samplerkit as sk
from samplerkit.inspect.time_machine import at, when
from tests.cli.configs import NAMES, SIZES, config, in_json, is_plain_and_narrow
from tests.cli.processes import run


def test_at_says_what_the_loader_reads(command, tmp_path):
    path = config(tmp_path, shuffle="files")
    code, output, _ = command("at", path, "--epoch", 3, "--step", 2, "--rank", 1, "--world", 2)
    assert code == 0
    assert is_plain_and_narrow(output)
    loader = sk.load_config(path).make_loader(sk.Layout(SIZES, NAMES), sk.World(2, 1))
    loader.set_epoch(3)
    ids = loader.ids(2).tolist()
    words = output.split()
    assert all(str(sample) in words for sample in ids)
    assert "epoch 3, step 2 of 26, rank 1 of 2" in output
    assert "shard-" in output
    code, told = in_json(command, "at", path, "--epoch", 3, "--step", 2, "--rank", 1, "--world", 2)
    assert (code, told["ids"]) == (0, ids)
    assert told["fingerprint"] in output
    files = [NAMES[file] for file in sk.Layout(SIZES).file_of(ids)]
    assert told["files"] == files


def test_at_shows_pads_and_long_batches_as_such(command, tmp_path):
    path = config(tmp_path, shuffle="global")
    code, output, _ = command("at", path, "--epoch", 0, "--step", 10, "--rank", 4, "--world", 5)
    assert code == 0
    assert "2 samples, 1 pad among them" in output
    long = config(tmp_path, loader={"batch_size": 100})
    assert "and 36 more; --json lists all" in " ".join(
        command("at", long, "--epoch", 0, "--step", 0)[1].split()
    )


def test_when_says_where_a_sample_is_read_in_each_epoch(command, tmp_path):
    path = config(tmp_path, shuffle="partial", partial_size=40)
    code, output, _ = command("when", path, "--sample", 123, "--epochs", "0:4", "--world", 2)
    assert code == 0
    assert is_plain_and_narrow(output)
    assert f"{NAMES[3]}" in output
    loader = sk.load_config(path).make_loader(sk.Layout(SIZES, NAMES), sk.World(2, 0))
    rows = [line.split() for line in output.splitlines()[-4:]]
    for row, found in zip(rows, when(loader, 123, range(4)), strict=True):
        (time,) = found.occurrences
        assert row == [str(v) for v in (time.epoch, time.rank, time.step, time.place, time.position)]
    code, told = in_json(command, "when", path, "--sample", 123, "--epochs", "2", "--world", 2)
    assert told["epochs"][0]["occurrences"][0]["step"] == int(rows[2][2])


def test_when_tells_dropped_from_never_drawn(command, tmp_path):
    path = config(tmp_path, shuffle=False, loader={"batch_size": 50, "tail": "drop"})
    assert "the tail drops it" in command("when", path, "--sample", 407)[1]
    subset = {"kind": "subset", "indices": [1, 2, 2, 3]}
    path = config(tmp_path, shuffle=False, child=subset)
    assert "not drawn" in command("when", path, "--sample", 0)[1]
    assert command("when", path, "--sample", 2)[1].count("\n    0 ") == 2


def test_at_and_when_go_on_from_a_checkpoint(command, tmp_path):
    path = config(tmp_path, shuffle="files")
    saved = sk.load_config(path).make_loader(sk.Layout(SIZES, NAMES), sk.World(4, 0)).state_dict(step=5)
    state = tmp_path / "state.json"
    state.write_text(json.dumps(saved))
    resumed = sk.load_config(path).make_loader(sk.Layout(SIZES, NAMES), sk.World(2, 0))
    resumed.load_state_dict(saved)
    told = in_json(command, "at", path, "--epoch", 0, "--step", 0, "--world", 2, "--state", state)[1]
    assert told["ids"] == resumed.ids(0).tolist() == at(resumed, 0, 0).ids.tolist()
    fresh = in_json(command, "at", path, "--epoch", 0, "--step", 0, "--world", 2)[1]
    assert fresh["ids"] != told["ids"]


def test_a_million_million_samples_are_planned_and_found(command, tmp_path):
    path = config(tmp_path, dataset={"kind": "size", "size": 10**12}, loader={"batch_size": 256})
    code, told = in_json(command, "at", path, "--epoch", 3, "--step", 340, "--rank", 3, "--world", 8)
    assert (code, len(told["ids"])) == (0, 256)
    sample = told["ids"][17]
    found = in_json(command, "when", path, "--sample", sample, "--epochs", "3", "--world", 8)[1]
    (time,) = found["epochs"][0]["occurrences"]
    assert (time["rank"], time["step"], time["place"]) == (3, 340, 17)
    plan = in_json(command, "plan", path, "--world", 8)[1]
    assert plan["steps"] == 10**12 // 2048
    assert plan["order_bytes"] < 2**20 < plan["list_bytes"]
    assert plan["fingerprint"] == told["fingerprint"] == found["fingerprint"]


def test_the_real_command_prints_without_colour_into_a_pipe(tmp_path):
    path = config(tmp_path, shuffle="files")
    arguments = ("at", path, "--epoch", "0", "--step", "1", "--world", "2")
    ended = run((sys.executable, "-m", "samplerkit.cli.main", *arguments), tmp_path)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert is_plain_and_narrow(ended.stdout)
    assert "rank 0 of 2" in ended.stdout
