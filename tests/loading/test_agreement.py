"""Ranks that begin different orders are told, and nobody waits for ever."""

from __future__ import annotations

import logging
import re
import threading
import time

import pytest
import torch.distributed

import samplerkit as sk
from samplerkit.loading.agreement import Agreement

ORDER = {"dataset": "10 samples", "sampler": "RandomSampler()", "seed": [0], "epoch": 0, "position": 0}
EVALUATION = {"dataset": "4 samples", "sampler": "SequentialSampler()", "seed": [], "epoch": 0, "position": 0}


def run_ranks(*begun, seconds=0.3):
    """Lets each rank begin its orders in turn; gives each rank's error, or None, and the seconds taken."""
    store = torch.distributed.HashStore()
    outcomes = [None] * len(begun)

    def rank(number):
        agreement = Agreement(store, number, len(begun))
        try:
            for identity in begun[number]:
                agreement.require(identity, seconds)
        except sk.DisagreementError as error:
            outcomes[number] = error

    threads = [threading.Thread(target=rank, args=(number,)) for number in range(len(begun))]
    start = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()
    return outcomes, time.monotonic() - start


def test_ranks_that_agree_go_on_at_once_epoch_after_epoch(caplog):
    epochs = [{**ORDER, "epoch": epoch} for epoch in (0, 1, 1, 0)]
    outcomes, seconds = run_ranks(epochs, epochs, epochs, seconds=30)
    assert outcomes == [None] * 3
    assert seconds < 10
    assert not caplog.records


@pytest.mark.parametrize(
    ("name", "value"),
    [("seed", [1]), ("dataset", "9 samples"), ("epoch", 3), ("position", 64), ("sampler", "Other()")],
)
def test_a_rank_that_begins_something_else_is_named_with_what_differs(name, value):
    outcomes, _ = run_ranks([ORDER], [ORDER], [{**ORDER, name: value}], seconds=30)
    assert all(outcome is not None for outcome in outcomes)
    assert name in str(outcomes[0])
    assert "rank 2 by" in str(outcomes[0])
    # It names those that had begun by then: one of the two, or both.
    assert re.search(r"(rank [01]|ranks 0, 1) by", str(outcomes[2]))


def test_an_evaluation_on_one_rank_goes_on_after_the_time_limit_with_a_warning(caplog):
    caplog.set_level(logging.WARNING, "samplerkit")
    outcomes, seconds = run_ranks([ORDER, EVALUATION], [ORDER])
    assert outcomes == [None, None]
    assert 0.3 <= seconds < 5
    assert "World(1, 0)" in caplog.text


def test_ranks_that_begin_two_loaders_in_another_order_do_not_hang():
    outcomes, seconds = run_ranks([ORDER, EVALUATION], [EVALUATION, ORDER])
    assert outcomes == [None, None]
    assert seconds < 5
