"""The commands on a config with batches of samples of different lengths."""

from __future__ import annotations

import json

import numpy as np
import pytest

import samplerkit as sk
from samplerkit.config.config import load_config

RECIPES = {
    "tokens": "{kind: tokens, max_tokens: 90, lengths: lengths.npy}",
    "classes": "{kind: classes, num_class: 2, num_val: 3, labels: keys.npy}",
}


@pytest.fixture(params=RECIPES.values(), ids=RECIPES.keys())
def config(request, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("lengths.npy", 1 + np.arange(300) * 7 % 30)
    np.save("keys.npy", np.arange(300) % 5)
    path = tmp_path / "run.yaml"
    tail = "pad" if "classes" in request.param else "split"  # batches of classes stay whole
    path.write_text(
        "dataset: {kind: layout, sizes: [100, 200]}\nsampler: {kind: random, seed: 7}\n"
        f"batches: {request.param}\nloader: {{tail: {tail}}}\n"
    )
    return path


def test_each_command_describes_batches(config, tmp_path, printed):
    ranks = ("--world", 3)
    read = load_config(config)
    loaders = [read.make_loader(range(300), sk.World(3, rank)) for rank in range(3)]
    text = printed("plan", config, *ranks)
    assert f"batches    {len(loaders[0].plan):,}, " in text
    assert "recipe     " in text
    planned = json.loads(printed("plan", config, *ranks, "--json"))
    assert (planned["recommendation"], planned["steps"]) == (None, len(loaders[0]))
    step = ("at", config, *ranks, "--epoch", 0, "--step", 1, "--rank", 1)
    at = json.loads(printed(*step, "--json"))
    assert (at["ids"], at["batch"]["numbers"]) == (list(loaders[1])[1].tolist(), [4])
    assert at["batch"]["step_tokens"] == loaders[0].tokens(1)
    assert "batch    4\n" in printed(*step)
    assert "place   batch   note\n    0      1      1       0       4" in printed(
        "when", config, *ranks, "--sample", at["ids"][0]
    )
    (tmp_path / "state.json").write_text(json.dumps(loaders[2].state_dict(step=2)))
    state = printed("state", tmp_path / "state.json", "--config", config, *ranks)
    assert "unit        batches" in state
    assert "batches: recipe batches-1: " in " ".join(state.split())
    assert "whole, and fits the config" in state


def test_a_plan_describes_packs(tmp_path, monkeypatch, printed):
    monkeypatch.chdir(tmp_path)
    np.save("lengths.npy", 1 + np.arange(300) * 7 % 30)
    recipe = "{kind: packs, seq_len: 20, packs: 2, lengths: lengths.npy}"
    path = tmp_path / "run.yaml"
    path.write_text(f"dataset: {{kind: size, size: 300}}\nsampler: {{kind: random}}\nbatches: {recipe}\n")

    plan = load_config(path).make_loader(range(300), sk.World(3, 0)).plan
    text = printed("plan", path, "--world", 3)
    assert "recipe     PackBatches(seq_len=20, packs=2)" in text
    density = f"{plan.efficiency():.5f}".lstrip("0")
    assert f"density    {density} of the packs is tokens; one document a row would have ." in text
    assert "cut        100 documents, 33.3 %" in text
