"""Random ledgers: jobs that read, break, save, resume and set epochs in any order, counted with Counters.

Every case follows from its number: a dataset, a chain of samplers, a recipe for batches where the number is
odd, a tail, and the actions of a script on the loaders of all ranks, simulated in one process.
`python -m tests.campaigns.ledgers.script NUMBER` repeats one.
"""

import re
from dataclasses import fields
from random import Random

import numpy as np
import pytest

import samplerkit as sk
from samplerkit.loading.loader import Loader
from samplerkit.loading.run.delivery import Delivery, Reading
from tests.campaigns.ledgers.batched import KINDS, draw_batched
from tests.campaigns.ledgers.chains import OPTIONS
from tests.campaigns.ledgers.counted import Ledger
from tests.campaigns.ledgers.script import run_case


def first_failed(numbers):
    """The message of the first case that fails."""
    return next(filter(None, (run_case(number, Ledger()) for number in numbers)), None)


def test_the_first_of_the_random_jobs_lose_and_repeat_nothing():
    assert first_failed(range(100)) is None


@pytest.mark.campaign
def test_random_jobs_lose_and_repeat_nothing_and_their_ranks_have_one_state():
    """The next hundred; `python -m tests.campaigns.ledgers.script 200 10000` runs more."""
    assert first_failed(range(100, 200)) is None


RIGHT_PADS, RIGHT_DEALT = Reading.pads, Delivery.dealt

UNITS = ["Recipe", "BatchedRecipe"]
ALWAYS = {"max_tokens", "seq_len", "boundaries", "batch_size", "num_class", "num_val"}
ALWAYS |= {"lengths", "keys", "labels", "class_column"}

WRONG = {
    "pads are taken for samples": (Reading, "pads", lambda reading, step: RIGHT_PADS(reading, step) & False),
    "a step is shifted": (
        Delivery,
        "dealt",
        lambda delivery, shard, step: np.asarray(RIGHT_DEALT(delivery, shard, step)) + (step == 1),
    ),
    "a rank counts its own samples": (
        Delivery,
        "position_after",
        lambda delivery, steps: min(delivery.start + steps * delivery.batch_size, delivery.total),
    ),
    "set_epoch is ignored": (Loader, "set_epoch", lambda loader, epoch: None),
    "a state is ignored": (Loader, "load_state_dict", lambda loader, state: None),
    "close is ignored": (Loader, "close", lambda loader: None),
}


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("bug", WRONG)
def test_a_wrong_loader_fails_and_the_case_is_named(monkeypatch, bug, unit):
    monkeypatch.setattr(*WRONG[bug])
    message = first_failed(range(198 + UNITS.index(unit), -1, -2))  # from the end, where each fails soon
    assert message is not None
    assert re.match(rf"case \d+\n{unit}\(", message)


@pytest.mark.parametrize("recipe", [sk.TokenBatches, sk.PackBatches, sk.BucketBatches, sk.ClassBatches])
def test_random_jobs_draw_every_option_of_every_recipe_for_batches(recipe):
    drawn = [draw_batched(Random(number), 4) for number in range(200)]
    (kind,) = {jobs.kind for jobs in drawn if type(jobs.batches) is recipe} - {"keys"}
    options = {field.name for field in fields(recipe)} - ALWAYS
    assert options == {*OPTIONS[kind]}
    assert {jobs.kind for jobs in drawn} == {*KINDS}
    assert {tail for jobs in drawn for tail in jobs.tails} == {"pad", "drop", "ragged", "split"}


@pytest.mark.parametrize(
    ("received", "lost", "repeated"),
    [([[1, 2], [3]], 0, 0), ([[1, 2], [2]], 1, 1), ([[1, 2]], 1, 0), ([[1, 2, 3], [3, 3]], 0, 2)],
)
def test_the_ledger_counts_lost_and_repeated_samples(received, lost, repeated):
    ledger = Ledger()
    ledger.begin()
    for samples in received:
        ledger.receive(samples)
    assert (ledger.end([1, 2, 3]) is None) == (not lost and not repeated)
    assert (ledger.delivered, ledger.lost, ledger.repeated) == (sum(map(len, received)), lost, repeated)
