"""Ranks that begin different orders get an error, nobody waits for ever, and few requests are made."""

import logging
import re
import time
from functools import partial

import pytest
import torch.distributed

import samplerkit as sk
from samplerkit.loading import agreement
from samplerkit.loading.agreement import Agreement
from tests.loading.simulated_ranks import ORDER, simulate
from tests.storage.crowd import run_in_threads
from tests.waiting import LoadFreeTimer

EVALUATION = {"dataset": "4 samples", "sampler": "SequentialSampler()", "seed": [], "epoch": 0, "position": 0}


@pytest.fixture
def short_pauses(monkeypatch):
    """Ranks that disagree wait for one another a tenth as long."""
    monkeypatch.setattr(agreement, "_LONGEST_PAUSE", 0.1)
    monkeypatch.setattr(agreement, "_UNLISTED_SECONDS", 0.1)


def run_ranks(*orders, seconds=0.3):
    """Lets each rank begin its orders in turn; returns each rank's error, or None, and their own seconds.

    A number among the orders of a rank is a pause in seconds.
    """
    store = torch.distributed.HashStore()
    outcomes = [None] * len(orders)

    def rank(number):
        member = Agreement(store, number, len(orders))
        try:
            for identity in orders[number]:
                if isinstance(identity, float):
                    time.sleep(identity)
                else:
                    member.require(identity, seconds)
        except sk.DisagreementError as error:
            outcomes[number] = error

    with LoadFreeTimer() as timer:
        run_in_threads(*(partial(rank, number) for number in range(len(orders))))
    return outcomes, timer.seconds


@pytest.mark.usefixtures("short_pauses")
@pytest.mark.parametrize(
    "differs", [{"seed": [1], "epoch": 3, "position": 64}, {"dataset": "9 samples"}, {"sampler": "Other()"}]
)
def test_a_rank_with_another_order_is_named_with_the_difference(differs):
    outcomes, _ = run_ranks([ORDER], [ORDER], [{**ORDER, **differs}], seconds=30)
    assert all(outcome is not None for outcome in outcomes)
    assert all(name in str(outcomes[0]) for name in differs)
    assert "rank 2 with" in str(outcomes[0])
    # It names those that have started by then: one of the two, or both.
    assert re.search(r"(rank [01]|ranks 0, 1) with", str(outcomes[2]))


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
        # Rank 0 reads a batch alone, and later is late for the next epoch.
        ([ORDER, ORDER, 0.3, {**ORDER, "epoch": 1}], [0.5, ORDER, {**ORDER, "epoch": 1}]),
        # Rank 0 evaluates on the dataset of the training alone.
        (
            [ORDER, {**EVALUATION, "dataset": ORDER["dataset"]}, 0.3, {**ORDER, "epoch": 1}],
            [ORDER, 0.5, {**ORDER, "epoch": 1}],
        ),
        # Both begin two loaders, in opposite order.
        ([ORDER, EVALUATION], [EVALUATION, ORDER]),
    ],
)
def test_a_rank_that_has_read_alone_does_not_stop_the_others_later(first, second):
    outcomes, seconds = run_ranks(first, second)
    assert outcomes == [None, None]
    assert seconds < 5


MAX_REQUESTS, MAX_SECONDS = 60, 1.5
OTHER = {**ORDER, "seed": [1]}


@pytest.mark.parametrize("ranks", [3, 64, 10_000])
@pytest.mark.parametrize(("late", "most"), [(0.01, 5), (0.3, 11), (3.0, 22)])
def test_a_rank_makes_few_requests_for_one_that_is_late_at_any_number_of_ranks(ranks, late, most):
    last = ranks - 1
    begins = {0: (0, ORDER), ranks // 2: (0, ORDER), last: (late, ORDER)}
    outcomes = simulate(ranks, begins, ORDER)
    for outcome in outcomes.values():
        assert not outcome.error
        assert outcome.requests <= most
        assert late <= outcome.seconds <= late + MAX_SECONDS
    assert outcomes[last].seconds == late


@pytest.mark.parametrize("comes", [0.0, 0.2, 0.9, 1.5, 5.0, 9.0, 9.5, 9.9])
def test_waiting_ranks_detect_a_disagreement_whenever_the_others_arrive(comes):
    begins = {0: (0, ORDER), 1: (0.01, ORDER), 2: (comes, OTHER), 3: (comes + 0.01, OTHER)}
    outcomes = simulate(4, begins, seconds=10.0)
    for rank, outcome in outcomes.items():
        assert "seed" in outcome.error
        assert f"rank {rank} has" in outcome.error
        assert outcome.requests <= MAX_REQUESTS
        assert outcome.seconds <= comes + 4


@pytest.mark.parametrize("late", [0, 1])
def test_a_rank_that_arrives_after_all_others_gave_up_gets_the_error_too(late):
    """Its order is that of rank 0 or that of rank 1."""
    begins = {0: (0, ORDER), 1: (0.01, OTHER), 2: (30.0, [ORDER, OTHER][late])}
    outcomes = simulate(3, begins, seconds=10.0)
    assert outcomes[0].seconds < outcomes[1].seconds + 20 < 30
    assert f"rank {1 - late} with {{'seed': [{1 - late}]}}" in outcomes[2].error
    assert "rank 1 with {'seed': [1]}" in outcomes[0].error
    assert "rank 0 with {'seed': [0]}" in outcomes[1].error


def test_no_rank_ends_before_all_know_of_the_disagreement():
    # The rank that ends first may hold the store, without which the others would raise something else.
    outcomes = simulate(3, {0: (5.0, OTHER), 1: (0, ORDER), 2: (0.4, ORDER)})
    # Rank 0 knows at 5 s, and the others look at least once a second.
    assert all(outcome.seconds > 6 for outcome in outcomes.values())


def test_ten_thousand_ranks_name_a_late_rank_that_differs_and_it_names_some_of_them():
    outcomes = simulate(10_000, {0: (0, ORDER), 9_999: (3.0, OTHER)}, ORDER)
    assert "unlike rank 9999 with {'seed': [1]}" in outcomes[0].error
    assert "unlike ranks 0, 1, 2, " in outcomes[9_999].error
    assert "and 9,935 others with {'seed': [0]}" in outcomes[9_999].error
    assert len(outcomes[9_999].error) < 1000
    assert max(outcome.requests for outcome in outcomes.values()) <= MAX_REQUESTS


def test_ranks_with_all_different_orders_get_the_error_after_few_requests():
    outcomes = simulate(200, {rank: (rank / 1e4, {**ORDER, "seed": [rank]}) for rank in range(200)})
    assert all("seed" in outcome.error for outcome in outcomes.values())
    assert max(outcome.requests for outcome in outcomes.values()) <= MAX_REQUESTS
    assert max(outcome.store.most_keys for outcome in outcomes.values()) <= 10


def test_a_group_is_found_when_the_rank_that_had_listed_it_has_given_up(caplog):
    caplog.set_level(logging.WARNING, "samplerkit")
    # Rank 0 lists the group and gives up at 10 s; rank 1 waits until 19 s, and rank 2 comes in between.
    outcomes = simulate(3, {0: (0, ORDER), 1: (9.0, ORDER), 2: (12.0, OTHER)}, seconds=10.0)
    assert "rank 0 of 3 starts an order" in caplog.text
    assert [bool(outcome.error) for outcome in outcomes.values()] == [False, True, True]


def test_groups_that_have_ended_are_no_longer_listed():
    store = torch.distributed.HashStore()
    for epoch in range(3):
        Agreement(store, 0, 2).require({**ORDER, "epoch": epoch}, 0.05)
    assert store.get("waiting") == b"[]"


@pytest.mark.usefixtures("short_pauses")
@pytest.mark.parametrize(
    ("worlds", "problem"),
    [
        ([sk.World(2, 0), sk.World(2, 0)], "no rank reads shard 1 of 2; ranks 0, 1 have shard 0"),
        ([sk.World(4, 0), sk.World(4, 1)], "no rank reads shards 2, 3 of 4; ranks 0, 1 have shards 0, 1"),
        ([sk.World(2, 0), sk.World(3, 1)], "no rank reads shard 1 of 2"),
        ([sk.World(2**32, 0), sk.World(2**32, 1)], "and 4,294,967,230 others of 4294967296"),
        ([sk.World(2, 1), sk.World(2, 0)], None),
        ([sk.World(2, 0), sk.World(2, 0), sk.World(2, 1), sk.World(2, 1)], None),
        # Two halves of a job that each read all of it.
        ([sk.World(2, 0), sk.World(2, 1), sk.World(3, 0), sk.World(3, 1), sk.World(3, 2)], None),
    ],
)
def test_unread_shards_are_an_error_on_all_ranks_and_shared_shards_are_allowed(worlds, problem):
    store, messages = torch.distributed.HashStore(), []

    def begin(rank, world):
        member = Agreement(store, rank, len(worlds))
        try:
            member.require(ORDER, 60, world=world)
        except sk.DisagreementError as error:
            messages.append(str(error))
            # With the numbers of the job, the same order is read.
            member.require(ORDER, 60)

    run_in_threads(*(partial(begin, rank, world) for rank, world in enumerate(worlds)))
    assert len(messages) == (len(worlds) if problem else 0)
    assert all(problem in error and "leave out num_shards and shard_id" in error for error in messages)
