"""Ends of epochs and of examples under real trainers, and what `check` finds in them."""

import json
import re

import pytest

from tests.trainers.jobs import EXAMPLES, output_of, torchrun
from tests.trainers.ledgers import Ledger
from tests.trainers.restarted import SAMPLES
from tests.trainers.trainer_border_job import EPOCHS, SIZE, TRAINERS

NEEDS = ("torchdata", "scikit-learn", "lightning", "accelerate", "transformers")


@pytest.mark.parametrize("trainer", TRAINERS)
def test_a_trainer_on_four_ranks_stopped_at_every_step_of_three_epochs_loses_and_repeats_nothing(
    tmp_path, trainer
):
    job = torchrun(4, "-m", "tests.trainers.trainer_border_job", tmp_path, trainer)
    output_of(tmp_path, *job)
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
        output_of(tmp_path, *torchrun(2, *example))
    ledger = Ledger.read(tmp_path, SAMPLES)
    assert ledger.replayed == ()
    assert ledger.epochs == [*range(6)]
    assert ledger.lost == [0] * 6
    assert ledger.repeated == [1] * 6  # the pad of two ranks
    assert len({line.step for line in ledger.kept}) == 138


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
    output_of(tmp_path, *torchrun(2, "-m", "tests.trainers.check_job", tmp_path))
    assert json.loads((tmp_path / "codes.json").read_text()) == EXPECTED


@pytest.mark.parametrize("example", ["train_ddp.py", "train_accelerate.py", "train_text_transformers.py"])
def test_an_example_leaves_no_thread_of_gloo_to_the_end_of_python(tmp_path, example):
    script = ["-m", "tests.trainers.left_job", tmp_path, EXAMPLES / example, tmp_path, "--epochs=1"]
    output_of(tmp_path, *torchrun(2, *script))
    assert [(tmp_path / f"left-{rank}").read_text() for rank in range(2)] == ["", ""]


MAKES_A_GROUP = re.compile(r"torchrun|init_process_group|Accelerator\(|lightning\.Trainer\(")


def test_every_example_that_makes_a_process_group_ends_it_after_the_model():
    examples = {
        path.name: text
        for path in EXAMPLES.glob("train_*.py")
        if MAKES_A_GROUP.search(text := path.read_text())
    }
    # The group of the one is of one process with no model in it, those of the other end with its Manager.
    others = {"train_megatron.py", "train_torchft.py"}
    assert len(examples) >= 9
    ended = {name for name, text in examples.items() if text.endswith("    end_process_group()\n")}
    assert set(examples) - ended == others
