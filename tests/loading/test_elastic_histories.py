"""Elastic jobs of 4 to 10,000 ranks, simulated: nothing lost, nothing repeated, one state on all ranks."""

from __future__ import annotations

import dataclasses
from collections import Counter

import numpy as np
import pytest

from samplerkit.loading.run.delivery import Delivery
from samplerkit.loading.state.state import State
from tests.loading.elastic_histories import STEPS, Life


def lived(seeds):
    """Lives through histories, and returns how often what happened in them."""
    events, ranks = Counter(), []
    for seed in seeds:
        history = Life(seed).run()
        assert history.lost_and_repeated == (0, 0), seed
        events += history.events
        ranks += history.ranks
    return events, ranks


def test_thirty_histories_of_100_000_steps_lose_and_repeat_nothing():
    events, ranks = lived(range(30))
    assert min(events[name] for name in ("join", "leave", "kill", "restart")) > 10
    assert min(ranks) < 20
    assert max(ranks) > 5000


@pytest.mark.campaign
def test_a_thousand_histories_lose_and_repeat_nothing():
    events, ranks = lived(range(1000))
    print(f"1,000 histories of {STEPS:,} steps, {len(ranks):,} jobs of {min(ranks)} to {max(ranks):,} ranks:")
    print(", ".join(f"{count} {name}" for name, count in sorted(events.items())))


@pytest.mark.parametrize(("off", "counted"), [(5, 0), (-5, 1)], ids=["ahead", "behind"])
def test_a_state_that_is_off_by_some_positions_is_counted(off, counted):
    def moved(state):
        read = State.from_dict(state)
        return dataclasses.replace(read, position=read.position + off).to_dict() if read.position else state

    found = np.sum([Life(seed, saved=moved).run().lost_and_repeated for seed in range(4)], axis=0)
    assert found[counted] > 0


def test_a_deal_that_is_wrong_for_one_rank_is_noticed(monkeypatch):
    right = Delivery.dealt
    monkeypatch.setattr(
        Delivery, "dealt", lambda self, shard, step: np.asarray(right(self, shard, step)) + (shard > 5)
    )
    with pytest.raises(AssertionError, match=r"positions|behind"):
        Life(1).run()
