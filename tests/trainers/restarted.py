"""Checks of every trainer that torchrun starts."""

from pathlib import Path

import samplerkit as sk
from tests.trainers.jobs import EXAMPLES, output_of, torchrun
from tests.trainers.ledgers import Ledger

SAMPLES = 1437
"""The size of the dataset of the examples."""


def check_restarted_in_mid_epoch(folder: Path, script: str) -> str:
    """Runs an example on two ranks, of which one is killed in step 33, and counts what was received.

    It saves every fifth step, and torchrun starts it again once.

    Returns:
        Its output.
    """
    command = torchrun(2, EXAMPLES / script, folder, restarts=1)
    printed = output_of(folder, *command, DIGITS_KILL="1:33")
    ledger = Ledger.read(folder, SAMPLES)
    assert ledger.ranks == [2, 2]
    assert {line.step for line in ledger.replayed} == {30, 31, 32, 33}
    check_exactly_once(ledger, pads=[1, 1])
    return printed


def check_exactly_once(ledger: Ledger, pads: list[int]) -> None:
    """Each sample is read once in each epoch, except the pads, step by step in the order of the recipe."""
    assert ledger.epochs == list(range(len(pads)))
    assert ledger.lost == [0 for _ in pads]
    assert ledger.repeated == pads
    orders = [sk.RandomSampler(seed=7).order(SAMPLES, epoch)[:].tolist() for epoch in ledger.epochs]
    assert [ledger.order(epoch)[:SAMPLES] for epoch in ledger.epochs] == orders
    assert orders[0] != orders[1]
