"""`samplerkit state`: states in checkpoints, what fits a config, and what is no state."""

from __future__ import annotations

import json

import pytest
import torch

import samplerkit as sk
from tests.cli.configs import NAMES, SIZES, config, in_json, is_plain_and_narrow


def saved_state(path, step=3):
    loader = sk.load_config(path).make_loader(sk.Layout(SIZES, NAMES), sk.World(2, 0))
    return loader.state_dict(step=step)


@pytest.mark.parametrize("kind", ["json", "torch"])
def test_state_finds_a_state_in_a_checkpoint_and_compares_it_with_a_config(command, tmp_path, kind):
    path, file = config(tmp_path, shuffle="files"), tmp_path / f"checkpoint.{kind}"
    saved = saved_state(path)
    if kind == "json":
        file.write_text(json.dumps(saved))
    else:
        torch.save({"model": torch.zeros(3), "data": [saved]}, file)
    code, output, _ = command("state", file, "--config", path, "--world", 4)
    assert code == 0
    assert is_plain_and_narrow(output)
    assert "whole, and fits the config" in output
    told = in_json(command, "state", file)[1]["states"][0]
    assert told["place"] == ("the file itself" if kind == "json" else "/data/0")
    assert told["position"] == saved["position"] == 48
    assert told["order"] == in_json(command, "plan", path, "--world", 2)[1]["fingerprint"]
    other = config(tmp_path, "other.yaml", shuffle="global")
    code, _, errors = command("state", file, "--config", other)
    assert (code, errors.count("\n")) == (1, 1)
    assert "state: sampler: differs" in errors


def test_state_sees_damage_and_what_is_no_state(command, tmp_path):
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
    """What a hostile checkpoint would be made of."""

    def __reduce__(self):
        return print, ("it ran",)


def test_state_runs_no_code_of_a_checkpoint(command, tmp_path):
    torch.save({"data": Code()}, tmp_path / "hostile.pt")
    code, output, errors = command("state", tmp_path / "hostile.pt")
    assert (code, output, errors.count("\n")) == (2, "", 1)
    assert "is neither JSON nor a checkpoint that is safe to read" in errors
