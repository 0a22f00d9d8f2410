"""Ends of epochs under real torchrun: a loop that keeps its own epoch is stopped there and continues."""

from __future__ import annotations

import json

import pytest

from tests.trainers.jobs import EXAMPLES, run, torchrun
from tests.trainers.ledgers import Ledger
from tests.trainers.restarted import SAMPLES
from tests.trainers.trainer_border_job import EPOCHS, SIZE, TRAINERS

NEEDS = ("torchdata", "scikit-learn", "lightning", "accelerate", "transformers")


@pytest.mark.parametrize("trainer", TRAINERS)
def test_a_trainer_on_four_ranks_stopped_at_every_step_of_three_epochs_loses_and_repeats_nothing(
    tmp_path, trainer
):
    job = torchrun(4, "-m", "tests.trainers.trainer_border_job", tmp_path, trainer)
    code, printed = run(tmp_path, *job)
    assert code == 0, printed
    ranks = [json.loads((tmp_path / f"rank-{rank}.json").read_text()) for rank in range(4)]
    for results in zip(*ranks, strict=True):
        assert [result["steps"] for result in results] == [results[0]["expected"]] * 4
        for epoch in range(EPOCHS):
            read = [id for result in results for id in result["read"][epoch]]
            assert sorted(read) == [*range(SIZE)], (results[0]["steps"], epoch)


@pytest.mark.parametrize("script", ["train_ddp.py", "train_torchdata.py", "train_fsdp.py"])
def test_an_example_that_was_trained_for_five_epochs_trains_only_the_sixth(tmp_path, script):
    """There is a checkpoint each 5 steps, and so one at the end of the fifth epoch of 23 steps."""
    options = ["--tensor-parallel", "1"] if script == "train_fsdp.py" else []
    for epochs in (5, 6):
        example = [EXAMPLES / script, tmp_path, "--epochs", str(epochs), *options]
        code, printed = run(tmp_path, *torchrun(2, *example))
        assert code == 0, printed
    ledger = Ledger.read(tmp_path, SAMPLES)
    assert ledger.replayed == ()
    assert ledger.epochs == [*range(6)]
    assert ledger.lost == [0] * 6
    assert ledger.repeated == [1] * 6  # the pad of two ranks
    assert len({line.step for line in ledger.kept}) == 138
