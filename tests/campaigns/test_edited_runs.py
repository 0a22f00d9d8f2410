"""Real jobs that are edited, killed before, between and behind the edits, and go on."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.ranks import job

pytestmark = pytest.mark.campaign

VERIFIER = Path(__file__).with_name("edited_runs") / "verify.py"


def run_job(folder, run, ranks, *options):
    code, printed, errors = job(ranks, "tests.campaigns.edited_runs.job", folder, run, *options, seconds=240)
    return code, printed + errors


def verified(folder, runs):
    command = [sys.executable, str(VERIFIER), str(folder), *runs]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def test_a_run_that_is_edited_and_killed_on_other_ranks_each_time_loses_and_repeats_nothing(tmp_path):
    """Killed before the first edit is made, before it holds, between the edits, and behind both.

    In the second epoch, before samples leave, and where steps have grown.
    """
    kills = {"a": (2, 240), "b": (4, 456), "c": (3, 816), "d": (2, 1152)}
    kills |= {"e": (4, 2856), "f": (3, 3600), "g": (2, None)}
    for run, (ranks, kill) in kills.items():
        options = [] if kill is None else ["--kill", str(kill)]
        code, printed = run_job(tmp_path, run, ranks, *options)
        assert (code == 0) == (kill is None), printed
    assert "samplerkit" not in VERIFIER.read_text()
    told = verified(tmp_path, kills)
    print(told)
    assert (told["steps"], told["delivered"], told["repeated"]) == (100, 2400, 0)
    assert (told["skipped"], told["runs with other gaps"]) == (480, 0)
    wanted = [
        {"web": 0.5, "code": 0.25, "books": 0.25},
        {"web": 0.25, "code": 0.625, "books": 0.125},
        {"web": 0.25, "code": 0.625, "books": 0.125},
    ]
    for counts, shares, size in zip(told["counts"], wanted, (480, 600, 1320), strict=True):
        assert sum(counts.values()) == size
        # Each of 4 lanes is within a few samples of a source's share, as the bound of the dice says.
        assert all(abs(counts[name] - share * size) <= 4 * 6 for name, share in shares.items())
    second = told["second"]
    counted = ("delivered", "lost", "repeated", "read after they left")
    assert [second[name] for name in counted] == [2400, 0, 0, 0]
    assert second["sizes"] == [{"24": 40}, {"48": 20}, {"12": 40}]
    assert second["lanes in a new pass"] == 4  # those of code, in its four lanes
    # The verifier itself: a sample that left in the place of another one, whose lanes both are wrong then.
    ledger = tmp_path / "g-1.jsonl"
    *lines, last = ledger.read_text().splitlines()
    changed = json.loads(last)
    changed["ids"][0] = 4200
    ledger.write_text("\n".join([*lines, json.dumps(changed)]))
    spoilt = verified(tmp_path, kills)["second"]
    assert [spoilt[name] for name in counted] == [2400, 2, 2, 1]


def test_ranks_that_make_unlike_edits_are_refused_by_name_before_the_step(tmp_path):
    code, printed = run_job(tmp_path, "x", 2, "--disagree")
    assert code == 0, printed
    for rank in range(2):
        (differs, missing) = json.loads((tmp_path / f"told-{rank}.json").read_text())
        assert differs[0] == 480
        assert f"rank {rank} reads by" in differs[1]
        assert f"rank {1 - rank} by" in differs[1]
        assert f"skip={24 + rank}" in differs[1]
        if rank == 0:
            assert missing[0] == 480
            assert "rank 1 did not say the same within 4 s" in missing[1]
