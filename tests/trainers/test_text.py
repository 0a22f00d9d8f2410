"""Texts in batches of a budget: DDP with the loss by `loader.tokens`, killed and resumed."""

from __future__ import annotations

import json
import re
import runpy

import numpy as np
import pytest
import torch

from tests.trainers.jobs import EXAMPLES, run, torchrun
from tests.trainers.ledgers import Ledger

NEEDS = ("scikit-learn",)
SCRIPT = EXAMPLES / "train_text.py"
PRINTED = re.compile(
    r"epoch \d: (\d+) steps, (\d+) letters, (\d+) with padding, \S+ s, loss on new texts (\S+)"
)


@pytest.fixture
def texts():
    """The module that the examples share."""
    return runpy.run_path(str(EXAMPLES / "texts.py"))


def losses(folder, rank):
    """The losses of a rank, by step; those of a killed run and of its resume are the same."""
    by_step = {}
    for line in (folder / f"losses-{rank}.jsonl").read_text().splitlines():
        step, loss = json.loads(line)
        assert by_step.setdefault(step, loss) == loss
    return by_step


def check_batches(ledger, texts, ranks):
    """Each text once an epoch, no batch above the budget, and as many steps for each rank."""
    lengths = texts["Texts"]().lengths
    assert ledger.ranks == ranks
    assert ledger.lost == ledger.repeated == [0 for _ in ledger.epochs]
    assert max(len(line.ids) * lengths[list(line.ids)].max() for line in ledger.kept) <= 2048
    assert len({len(line.ids) for line in ledger.kept}) > 10


def test_a_killed_run_resumes_with_the_same_losses_and_then_on_one_rank(tmp_path, texts):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    code, printed = run(tmp_path, *torchrun(2, SCRIPT, whole))
    assert code == 0, printed
    code, resumed = run(tmp_path, *torchrun(2, SCRIPT, killed, restarts=1), DIGITS_KILL="1:22")
    assert code == 0, resumed
    assert "continues in epoch 1, step 20, on 2 ranks" in resumed
    for rank in range(2):
        assert losses(killed, rank) == losses(whole, rank)
    check_batches(Ledger.read(killed, 1200), texts, [2, 2])

    steps, letters, padded, loss = PRINTED.findall(printed)[-1]
    assert int(steps) == 32
    assert int(letters) == texts["Texts"]().lengths.sum()
    assert int(letters) / int(padded) > 0.9
    assert float(loss) < 3.1

    # The loss of all ranks together is that of one rank that reads all of their texts.
    first = [line.ids for line in Ledger.read(whole, 1200).kept if line.step == 0]
    ids = np.concatenate(first)
    batch = texts["COLLATE"]([texts["Texts"]()[id] for id in ids.tolist()])
    expected = texts["loss_sum"](texts["Reader"]()(batch["letters"]), batch["targets"]) / sum(
        texts["Texts"]().lengths[ids]
    )
    together = sum(losses(whole, rank)[0] for rank in range(2)) / 2
    torch.testing.assert_close(torch.tensor(together), expected.detach(), rtol=1e-5, atol=1e-5)

    # Its last checkpoint is in the middle of epoch 1.
    code, printed = run(tmp_path, *torchrun(1, SCRIPT, killed, "--epochs=3"))
    assert code == 0, printed
    assert "continues in epoch 1, step 30, on 1 ranks" in printed
    check_batches(Ledger.read(killed, 1200), texts, [2, 2, 1])
