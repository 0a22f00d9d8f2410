"""A job of four ranks saves its loader with `torch.distributed.checkpoint`; one of two ranks goes on from it.

What the loops received is counted by `verify_ledgers.py`, which imports nothing of samplerkit. The model
counts too, so that it shows whether model and loader come from the same moment.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.loading.checkpoint_job import EPOCHS, SAMPLES, SAVED_EVERY
from tests.ranks import job

VERIFIER = Path(__file__).with_name("verify_ledgers.py")
STOPPED_AT = 17
FIRST_BATCH, SECOND_BATCH = 6, 7


def run(folder, name, ranks, *options):
    code, _, errors = job(ranks, "tests.loading.checkpoint_job", folder, name, *options, seconds=240)
    assert code == 0, errors


def verified(folder):
    command = [sys.executable, str(VERIFIER), str(folder), str(SAMPLES), str(EPOCHS), "four", "two"]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Where a job of four ranks stopped in its 17th step, and one of two ranks went on to the end."""
    folder = tmp_path_factory.mktemp("checkpoints")
    run(folder, "four", 4, FIRST_BATCH, "--steps", STOPPED_AT)
    run(folder, "two", 2, SECOND_BATCH)
    return folder


def test_four_ranks_save_and_two_go_on_and_nothing_is_lost_or_repeated(folder):
    ledger = verified(folder)
    print(f"4 to 2 ranks by torch.distributed.checkpoint: {ledger}")
    assert len(list(folder.glob("four.*.jsonl"))) == 4
    assert len(list(folder.glob("two.*.jsonl"))) == 2
    read_again = 4 * FIRST_BATCH * (STOPPED_AT % SAVED_EVERY)
    assert ledger == {"delivered": SAMPLES * EPOCHS, "lost": 0, "repeated": 0, "replayed": read_again}


def test_the_model_has_learned_from_each_sample_once_an_epoch(folder):
    assert json.loads((folder / "learned.json").read_text()) == [EPOCHS] * SAMPLES


@pytest.mark.parametrize(("steps", "wrong"), [(-1, "lost"), (1, "repeated")])
def test_a_checkpoint_that_was_a_step_off_would_show(folder, steps, wrong):
    saved = folder / "four.saved"
    right = saved.read_text()
    saved.write_text(str(int(right) + steps))
    try:
        assert verified(folder)[wrong] == 4 * FIRST_BATCH
    finally:
        saved.write_text(right)
