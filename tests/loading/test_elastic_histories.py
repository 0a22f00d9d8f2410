"""Elastic jobs of 4 to 10,000 ranks, simulated: nothing lost, nothing repeated, one state on all ranks.

Two ways. torchrun's: whatever happens, all ranks start again, on some number of ranks, from the last
checkpoint. torchft's: the remaining ranks, and those that join, continue from the last step that was
committed; these read the step in which a rank died again.

Loaders, orders and states are the real ones, of a few ranks of each job. What all ranks read together is an
interval of positions; the intervals of a history must tile its epochs.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections import Counter
from itertools import pairwise
from random import Random

import numpy as np
import pytest

import samplerkit as sk
from samplerkit.loading.run.delivery import Delivery
from samplerkit.loading.state.state import State

STEPS, CHECKPOINT = 100_000, 500
FEWEST, MOST = 4, 10_000

RECIPES = (
    lambda size: sk.DistributedSampler(shuffle="global", seed=7),
    lambda size: sk.DistributedSampler(shuffle="files", seed=7),
    lambda size: sk.DistributedSampler(shuffle="partial", seed=7),
    lambda size: sk.MixtureSampler(dict.fromkeys("ab"), weights={"a": 2, "b": 1}, num_samples=size),
)


def lost_and_repeated(intervals, total):
    """Counts positions that no interval (epoch, start, end) covers, and those that several do.

    The last epoch is unfinished: what follows its last interval is not lost.
    """
    lost = repeated = reached = 0
    for (before, *_), (epoch, start, end) in pairwise([(0, 0, 0), *sorted(intervals)]):
        if epoch > before:
            lost, reached = lost + total - reached, 0
        lost += max(0, start - reached)
        repeated += max(0, min(reached, end) - start)
        reached = max(reached, end)
    return lost, repeated


def some_ranks(random):
    return round(FEWEST * (MOST / FEWEST) ** random.random())


def ranks_after(event, ranks, random, *, keeps_all):
    """The number of ranks after an event; as many as before after a restart."""
    if event == "restart":
        return ranks
    if not keeps_all and random.random() < 0.5:
        return some_ranks(random)
    count = random.randint(1, max(1, ranks // 4))
    return min(MOST, max(FEWEST, ranks + (count if event == "join" else -count)))


def check_step(loader, step):
    """Checks what a rank reads in a step: its share of the interval, and the ids of the order there."""
    reading, world = loader._reading, loader.world
    if not reading.has(step):  # `ragged`: its last step may be missing
        return
    positions, lanes = reading.draws(step), reading.delivery.lanes
    global_batch = world.num_shards * loader.batch_size
    begin = reading.delivery.start + step * global_batch
    if lanes % world.num_shards == 0 or world.num_shards % lanes == 0:
        expected = begin + world.shard_id + np.arange(loader.batch_size) * world.num_shards
        assert positions.tolist() == expected[: positions.size].tolist(), "positions"
    assert begin <= positions.min(), "before its step"
    assert positions.max() < begin + global_batch, "after its step"
    assert np.unique(positions).size == positions.size, "a position twice"
    order = reading.units.order
    assert np.array_equal(reading.ids(step), order.ids_at(positions % len(order))), "ids"


class Life:
    """One random history, of which all is read: `intervals`, `events` by name, and the numbers of `ranks`.

    Args:
        seed: of the history.
        transform: applied to each saved state; the default returns it unchanged.
    """

    def __init__(self, seed, transform=lambda state: state):
        self.random, self.transform, self.state = Random(seed), transform, None
        self.intervals, self.events, self.ranks = [], Counter(), []
        batch, tail = self.random.choice([1, 2, 8, 32]), self.random.choice(["pad", "drop", "ragged"])
        # One to four epochs; a tree of two sources, in files.
        files = np.full(64, int(STEPS * 400 * batch / self.random.uniform(0.3, 2)) // 128)
        self.layout = sk.Layout.tree({"a": sk.Layout(files), "b": sk.Layout(files + 3)})
        self.sampler = RECIPES[seed // 2 % len(RECIPES)](len(self.layout))
        self.options = {"batch_size": batch, "tail": tail}
        keeps_all = seed % 2 == 1  # torchft
        ranks, remaining = some_ranks(self.random), STEPS
        while remaining:
            self.ranks.append(ranks)
            until = min(remaining, self.random.randint(1, STEPS // 5))
            event = self.random.choice(["join", "leave", "kill", "restart"])
            self.events[event] += 1
            # With torchrun what was read after the last checkpoint is read again; the end is one.
            steps = until if keeps_all or until == remaining else until // CHECKPOINT * CHECKPOINT
            self.advance(ranks, steps)
            remaining -= steps
            ranks = ranks_after(event, ranks, self.random, keeps_all=keeps_all)
        self.lost_and_repeated = lost_and_repeated(self.intervals, len(self.layout))

    def advance(self, ranks, steps):
        """Reads some steps on a number of ranks, over the ends of epochs, and keeps them."""
        worlds = [sk.World(ranks, rank) for rank in {self.random.randrange(ranks), ranks - 1}]
        while steps:
            loaders = [sk.Loader(self.layout, self.sampler, world=world, **self.options) for world in worlds]
            for loader in loaders if self.state else ():
                loader.load_state_dict(json.loads(self.state))
            epoch, delivery = loaders[0].epoch, loaders[0]._reading.delivery
            count = min(steps, delivery.job_steps)
            assert count, "an epoch begins with nothing to read"
            for loader in loaders:
                check_step(loader, self.random.randrange(count))
            state, *others = [loader.state_dict(step=count) for loader in loaders]
            assert all(other == state for other in others), "ranks have other states"
            end, total = delivery.position_after(count), len(self.layout)
            if delivery.tail == "drop" and delivery.is_over_after(count):
                assert total - end < ranks * delivery.batch_size, "more was dropped than a step"
                end = total
            self.intervals.append((epoch, delivery.start, end))
            self.state = json.dumps(self.transform(state))
            steps -= count


def test_histories_of_100_000_steps_lose_and_repeat_nothing():
    """16 of them; SAMPLERKIT_HISTORIES says how many."""
    cases = int(os.environ.get("SAMPLERKIT_HISTORIES", "16"))
    lives = [Life(seed) for seed in range(cases)]
    assert {life.lost_and_repeated for life in lives} == {(0, 0)}
    events, ranks = sum((life.events for life in lives), Counter()), sum((life.ranks for life in lives), [])
    print(f"{cases:,} histories, {len(ranks):,} jobs of {min(ranks)} to {max(ranks):,} ranks, {events}")
    assert min(events[name] for name in ("join", "leave", "kill", "restart")) > 10
    assert min(ranks) < 20
    assert max(ranks) > 5000


@pytest.mark.parametrize(("by", "counted"), [(5, 0), (-5, 1)], ids=["ahead", "behind"])
def test_a_state_that_is_off_by_some_positions_is_counted(by, counted):
    def moved(state):
        read = State.from_dict(state)
        return dataclasses.replace(read, position=read.position + by).to_dict() if read.position else state

    assert sum(Life(seed, moved).lost_and_repeated[counted] for seed in range(4)) > 0


def test_a_deal_that_is_wrong_for_one_rank_is_noticed(monkeypatch):
    dealt = Delivery.dealt
    monkeypatch.setattr(
        Delivery, "dealt", lambda self, shard, step: np.asarray(dealt(self, shard, step)) + (shard > 5)
    )
    with pytest.raises(AssertionError, match=r"positions|after"):
        Life(1)
