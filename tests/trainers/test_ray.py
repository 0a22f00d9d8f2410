"""Ray Train: two workers of a local cluster, one of which is killed."""

from __future__ import annotations

from tests.trainers.jobs import EXAMPLES, run
from tests.trainers.ledgers import Ledger
from tests.trainers.restarted import SAMPLES, check_exactly_once

NEEDS = ("ray", "scikit-learn")


def test_a_worker_is_killed_and_ray_resumes_from_the_last_checkpoint_that_it_knows(tmp_path):
    code, printed = run(tmp_path, EXAMPLES / "train_ray.py", tmp_path, seconds=400, DIGITS_KILL="1:33")
    assert code == 0, printed
    assert (tmp_path / "killed-1-33").exists(), printed
    assert "epoch 1: 46 steps" in printed
    ledger = Ledger.read(tmp_path, SAMPLES)
    assert ledger.ranks == [2, 2]
    # A checkpoint that was reported last may not have reached Ray when the worker dies.
    first = min(line.step for line in ledger.replayed)
    assert first in {20, 25, 30}
    check_exactly_once(ledger, pads=[1, 1])
