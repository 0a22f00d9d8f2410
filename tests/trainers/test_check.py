"""The findings of `check` in real trainers that deal, skip or count by themselves, and those without one."""

from __future__ import annotations

import json

from tests.trainers.jobs import run, torchrun

NEEDS = ("accelerate", "lightning", "transformers")
EXPECTED = {
    "prepared": [],
    "prepared, dealt before": ["double-sharding"],
    "split": [],
    "split, dealt before": ["double-sharding"],
    "dispatched": [],
    "dispatched, dealt before": ["double-sharding"],
    "a Loader": [],
    "a Loader in a world of one rank": ["reads-everything"],
    "Trainer": ["skipped-twice"],
    "Trainer by use_loader": [],
    "Trainer, windows": ["batches-counted"],
    "Lightning": [],
    "Lightning, windows": ["batches-counted"],
    "Lightning, torch's sampler": [],
}


def test_check_finds_what_a_trainer_does_by_itself_and_nothing_else(tmp_path):
    code, printed = run(tmp_path, *torchrun(2, "-m", "tests.trainers.check_job", tmp_path))
    assert code == 0, printed
    assert json.loads((tmp_path / "codes.json").read_text()) == EXPECTED
