"""Ranks that begin different orders get an error, and nobody waits for ever."""

from __future__ import annotations

import logging
import re
import threading
import time

import pytest
import torch.distributed

import samplerkit as sk
from samplerkit.loading.job.agreement import Agreement
from tests.own_seconds import OwnSeconds

ORDER = {"dataset": "10 samples", "sampler": "RandomSampler()", "seed": [0], "epoch": 0, "position": 0}
EVALUATION = {"dataset": "4 samples", "sampler": "SequentialSampler()", "seed": [], "epoch": 0, "position": 0}


def run_ranks(*begun, seconds=0.3):
    """Lets each rank begin its orders in turn; gives each rank's error, or None, and their own seconds.

    A number among the orders of a rank is a pause in seconds.
    """
    store = torch.distributed.HashStore()
    outcomes = [None] * len(begun)

    def rank(number):
        agreement = Agreement(store, number, len(begun))
        try:
            for identity in begun[number]:
                if isinstance(identity, float):
                    time.sleep(identity)
                else:
                    agreement.require(identity, seconds)
        except sk.DisagreementError as error:
            outcomes[number] = error

    with OwnSeconds() as own:
        run_threads(rank, *((number,) for number in range(len(begun))))
    return outcomes, own.seconds


def run_threads(work, *arguments):
    threads = [threading.Thread(target=work, args=each, daemon=True) for each in arguments]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()


def test_ranks_that_agree_continue_at_once_epoch_after_epoch(caplog):
    epochs = [{**ORDER, "epoch": epoch} for epoch in (0, 1, 1, 0)]
    outcomes, seconds = run_ranks(epochs, epochs, epochs, seconds=30)
    assert outcomes == [None] * 3
    assert seconds < 10
    assert not caplog.records


@pytest.mark.parametrize(
    "differs", [{"seed": [1], "epoch": 3, "position": 64}, {"dataset": "9 samples"}, {"sampler": "Other()"}]
)
def test_a_rank_that_begins_something_else_is_named_with_what_differs(differs):
    outcomes, _ = run_ranks([ORDER], [ORDER], [{**ORDER, **differs}], seconds=30)
    assert all(outcome is not None for outcome in outcomes)
    assert all(name in str(outcomes[0]) for name in differs)
    assert "rank 2 by" in str(outcomes[0])
    # It names those that had begun by then: one of the two, or both.
    assert re.search(r"(rank [01]|ranks 0, 1) by", str(outcomes[2]))


def test_a_rank_that_comes_when_all_others_have_given_up_gets_the_error_too():
    store = torch.distributed.HashStore()
    outcomes = {}

    def begin(rank, identity, seconds=60):
        try:
            Agreement(store, rank, 3).require(identity, seconds)
        except sk.DisagreementError as error:
            outcomes[rank] = str(error)

    run_threads(begin, *((rank, {**ORDER, "seed": [rank]}) for rank in (0, 1)))
    for late in (0, 1):  # like the one, and then like the other
        begin(2, {**ORDER, "seed": [late]}, 0.05)
        assert f"rank {1 - late} by {{'seed': [{1 - late}]}}" in outcomes.pop(2)
    assert "rank 1 by {'seed': [1]}" in outcomes[0]
    assert "rank 0 by {'seed': [0]}" in outcomes[1]


def test_an_evaluation_on_one_rank_continues_after_the_time_limit_with_a_warning(caplog):
    caplog.set_level(logging.WARNING, "samplerkit")
    begin = time.monotonic()
    outcomes, seconds = run_ranks([ORDER, EVALUATION], [ORDER])
    assert outcomes == [None, None]
    assert time.monotonic() - begin >= 0.3
    assert seconds < 5
    assert "World(1, 0)" in caplog.text


@pytest.mark.parametrize(
    ("first", "second"),
    [
        # Rank 0 looks at a batch alone, and later comes late to the next epoch.
        ([ORDER, ORDER, 0.3, {**ORDER, "epoch": 1}], [0.5, ORDER, {**ORDER, "epoch": 1}]),
        # Rank 0 evaluates on the dataset of the training alone.
        (
            [ORDER, {**EVALUATION, "dataset": ORDER["dataset"]}, 0.3, {**ORDER, "epoch": 1}],
            [ORDER, 0.5, {**ORDER, "epoch": 1}],
        ),
    ],
)
def test_a_rank_that_has_read_alone_does_not_stop_the_others_later(first, second):
    outcomes, seconds = run_ranks(first, second)
    assert outcomes == [None, None]
    assert seconds < 5


def test_ranks_that_disagreed_can_correct_it_and_try_again():
    store, later = torch.distributed.HashStore(), []
    both_know = threading.Barrier(2)

    def rank(number, first, pause):
        agreement = Agreement(store, number, 2)
        with pytest.raises(sk.DisagreementError):
            agreement.require(first, 30)
        both_know.wait()
        time.sleep(pause)
        agreement.require(ORDER, 30)
        later.append(number)

    run_threads(rank, (0, ORDER, 0), (1, {**ORDER, "position": 5}, 0.3))
    assert sorted(later) == [0, 1]


def test_ranks_that_begin_two_loaders_in_another_order_do_not_hang():
    outcomes, seconds = run_ranks([ORDER, EVALUATION], [EVALUATION, ORDER])
    assert outcomes == [None, None]
    assert seconds < 5
