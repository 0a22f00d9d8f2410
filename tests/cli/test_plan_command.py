"""`samplerkit plan`: what ranks really read, and why."""

from __future__ import annotations

import pytest

import samplerkit as sk
from samplerkit.inspect.plan import plan
from tests.cli.configs import NAMES, SIZES, config, in_json, is_plain_and_narrow


def test_plan_counts_what_each_rank_really_reads(command, tmp_path):
    path = config(tmp_path, shuffle="files")
    code, output, _ = command("plan", path, "--world", 3)
    assert code == 0
    assert is_plain_and_narrow(output)
    found = in_json(command, "plan", path, "--world", 3)[1]
    layout = sk.Layout(SIZES, NAMES)
    ranks = [sk.load_config(path).make_loader(layout, sk.World(3, rank)) for rank in range(3)]
    files = [{int(f) for s in range(len(r)) for f in layout.file_of(r.ids(s))} for r in ranks]
    assert found["files_of_a_rank"] == max(map(len, files))
    assert found["steps"] == len(ranks[0])
    assert found["pads"] == sum(int(r.pads(step).sum()) for r in ranks for step in range(len(r)))
    assert found["epoch_samples"] == sum(SIZES)
    assert 0 < found["mixing"]["value"] <= 1
    for word in ("FILES", found["fingerprint"], "408 samples in 8 files", "mixing", "advice"):
        assert word in output


@pytest.mark.parametrize(("threshold", "mode"), [(408, "global"), (407, "partial")])
def test_plan_says_why_adaptive_has_chosen_its_mode(tmp_path, threshold, mode):
    adaptive = config(tmp_path, shuffle="adaptive", adaptive_threshold=threshold)
    found = plan(sk.load_config(adaptive)).to_dict()
    assert found["mode"] == mode
    assert f"adaptive_threshold, {threshold}" in found["reason"]


def test_plan_recommends_within_a_cache_budget_or_says_why_not(command, tmp_path):
    path = config(tmp_path, dataset={"kind": "layout", "sizes": [1437] * 64}, shuffle="partial")
    told = in_json(command, "plan", path, "--world", 1, "--mixing", 0.4)[1]["recommendation"]
    assert told["chosen"]["mixing"] >= 0.4
    tight = in_json(command, "plan", path, "--world", 1, "--mixing", 0.9, "--cache-files", 2)[1]
    assert tight["recommendation"]["chosen"] is None
    assert "nothing mixes .900 within 2 files" in tight["recommendation"]["reason"]
