"""A real job over tokens is killed, and goes on with other ranks and windows of twice the length."""

from __future__ import annotations

import json
from collections import Counter

import numpy as np
import pytest

from tests.ranks import job

pytestmark = pytest.mark.campaign

FILES = {"a": 700, "b": 1000}
BLOCK = 32


def run_job(folder, run, ranks, *options):
    code, printed, errors = job(ranks, "tests.campaigns.token_runs.job", folder, run, *options, seconds=240)
    return code, printed + errors


def received(folder, run):
    lines = [line for path in folder.glob(f"{run}.*.jsonl") for line in path.read_text().splitlines()]
    return Counter((told["epoch"], token) for told in map(json.loads, lines) for token in told["tokens"])


def test_a_killed_job_goes_on_with_other_ranks_and_twice_the_length_and_reads_every_token_once(tmp_path):
    begin = 0
    for name, count in FILES.items():
        np.save(tmp_path / f"{name}.npy", np.arange(begin, begin + count, dtype=np.uint16))
        begin += count
    code, printed = run_job(tmp_path, "first", 3, "8", "--kill", "11")
    assert code != 0, printed
    state = json.loads((tmp_path / "state.json").read_text())
    # The job was killed in its 11th step, behind the checkpoint of the 10th, which ended a pool.
    assert (state["epoch"], state["sections"]["tokens"]["tokens"]) == (0, 960)
    code, printed = run_job(tmp_path, "second", 2, "16")
    assert code == 0, printed
    first, second = received(tmp_path, "first"), received(tmp_path, "second")
    again = Counter({told: 1 for told in first if told in second})
    total = first + second - again
    assert {*total.values()} == {1}
    an_epoch = sum(count // BLOCK * BLOCK for count in FILES.values())
    assert [sum(epoch == one for epoch, _ in total) for one in (0, 1)] == [an_epoch] * 2
    assert sum(again.values()) == 96
    assert {*second.values()} == {1}
    print(
        f"{sum(total.values())} tokens delivered, lost 0, repeated 0; "
        f"{sum(again.values())} read again since they came after the checkpoint"
    )
