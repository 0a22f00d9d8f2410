"""`samplerkit plan`: what ranks really read, and why."""

from __future__ import annotations

import samplerkit as sk
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
