"""Elastic jobs of 4 to 10,000 ranks, simulated: nothing lost, nothing repeated, one state on all ranks.

Two ways. torchrun's: whatever happens, all ranks start again, on some number of ranks, from the last
checkpoint. torchft's: the ranks that are left, and those that join, continue from the last step that was
committed; the step in which a rank died is read again by those that are there.

Loaders, orders and states are the real ones, of a few ranks of each job. What all ranks read together is an
interval of positions; the intervals of a history must tile its epochs.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from random import Random
from typing import Any

import numpy as np
import pytest

import samplerkit as sk
from samplerkit.loading.run.delivery import Delivery
from samplerkit.loading.state.state import State

STEPS, CHECKPOINT = 100_000, 500
FEWEST, MOST = 4, 10_000

RECIPES: tuple[Callable[[int], sk.Sampler], ...] = (
    lambda size: sk.DistributedSampler(shuffle="global", seed=7),
    lambda size: sk.DistributedSampler(shuffle="files", seed=7),
    lambda size: sk.DistributedSampler(shuffle="partial", seed=7),
    lambda size: sk.MixtureSampler(dict.fromkeys("ab"), weights={"a": 2, "b": 1}, num_samples=size),
)

Saved = Callable[[dict[str, Any]], dict[str, Any]]


@dataclass(frozen=True)
class Stretch:
    """What one incarnation read of one epoch and kept: positions [start, end) on some number of ranks.

    Args:
        epoch: the epoch.
        start: the first position.
        end: the position of the checkpoint, or the end of the epoch.
        ranks: the number of ranks.
        pads: how many samples were repeated to fill the last batches of the epoch.
    """

    epoch: int
    start: int
    end: int
    ranks: int
    pads: int


def lost_and_repeated(stretches: Iterable[Stretch], total: int) -> tuple[int, int]:
    """Counts positions that no stretch covers, and those beyond the first covering, over all epochs.

    The last epoch is unfinished: what lies behind its last stretch is not lost.

    Args:
        stretches: what was kept.
        total: N, the number of positions of an epoch.
    """
    by_epoch: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for stretch in stretches:
        by_epoch[stretch.epoch].append((stretch.start, stretch.end))
    lost = repeated = 0
    for epoch, intervals in by_epoch.items():
        reached = 0
        for start, end in sorted(intervals):
            lost += max(0, start - reached)
            repeated += max(0, min(reached, end) - start)
            reached = max(reached, end)
        if epoch != max(by_epoch):
            lost += total - reached
    return lost, repeated


@dataclass
class History:
    """What became of a job.

    Attributes:
        size: the positions of an epoch.
        stretches: what was kept, in the order of time.
        events: what happened, by name.
        ranks: the numbers of ranks that it had.
    """

    size: int
    stretches: list[Stretch] = field(default_factory=list)
    events: Counter[str] = field(default_factory=Counter)
    ranks: list[int] = field(default_factory=list)

    @property
    def lost_and_repeated(self) -> tuple[int, int]:
        """Positions that no stretch has, and those that several have."""
        return lost_and_repeated(self.stretches, self.size)


class Life:
    """One random history.

    Args:
        seed: of the history.
        steps: how many are kept in all.
        saved: what becomes of a state on its way to others; the default keeps it as it is.

    Raises:
        AssertionError: ranks have other states, or read other positions than a deal like cards would give.
    """

    def __init__(self, seed: int, steps: int = STEPS, saved: Saved = lambda state: state) -> None:
        self._random = Random(seed)
        self._steps, self._saved = steps, saved
        self._keeps_all = seed % 2 == 1  # torchft
        self._batch = self._random.choice([1, 2, 8, 32])
        self._tail: Any = self._random.choice(["pad", "drop", "ragged"])
        self._make = RECIPES[seed // 2 % len(RECIPES)]
        # One to four epochs; a tree of two sources, in files.
        size = int(steps * 400 * self._batch / self._random.uniform(0.3, 2))
        files = np.full(64, size // 128)
        self._layout = sk.Layout.tree({"a": sk.Layout(files), "b": sk.Layout(files + 3)})
        self.history = History(len(self._layout))
        self._state: str | None = None

    def run(self) -> History:
        """Lives it to its end."""
        ranks, left = self._some_ranks(), self._steps
        while left:
            self.history.ranks.append(ranks)
            until = min(left, self._random.randint(1, self._steps // 5))
            event = self._random.choice(["join", "leave", "kill", "restart"])
            self.history.events[event] += 1
            # With torchrun what was read behind the last checkpoint is read again; its end is one.
            kept = until if self._keeps_all or until == left else until // CHECKPOINT * CHECKPOINT
            self._advance(ranks, kept)
            left -= kept
            ranks = self._after(event, ranks)
        return self.history

    def _some_ranks(self) -> int:
        return round(FEWEST * (MOST / FEWEST) ** self._random.random())

    def _after(self, event: str, ranks: int) -> int:
        """The number of ranks after an event; as many as before after a restart."""
        if event == "restart":
            return ranks
        if not self._keeps_all and self._random.random() < 0.5:
            return self._some_ranks()
        some = self._random.randint(1, max(1, ranks // 4))
        return min(MOST, max(FEWEST, ranks + (some if event == "join" else -some)))

    def _advance(self, ranks: int, kept: int) -> None:
        """Reads some steps on a number of ranks, over the ends of epochs, and keeps them."""
        some = {self._random.randrange(ranks), ranks - 1}
        while kept:
            loaders = [self._loader(ranks, rank) for rank in some]
            first, delivery = loaders[0], loaders[0]._reading.delivery
            steps = min(kept, delivery.job_steps)
            assert steps, "an epoch begins with nothing to read"
            for loader in loaders:
                self._look(loader, self._random.randrange(steps))
            after = [loader.state_dict(step=steps) for loader in loaders]
            assert all(one == after[0] for one in after), "ranks have other states"
            end = delivery.position_after(steps)
            if self._tail == "drop" and delivery.is_over_after(steps):
                assert self.history.size - end < ranks * self._batch, "more was dropped than a step"
                end = self.history.size
            self.history.stretches.append(Stretch(first.epoch, delivery.start, end, ranks, 0))
            self._state = json.dumps(self._saved(after[0]))
            kept -= steps

    def _loader(self, ranks: int, rank: int) -> sk.Loader:
        world = sk.World(ranks, rank)
        sampler = self._make(self.history.size)
        loader = sk.Loader(self._layout, sampler, batch_size=self._batch, tail=self._tail, world=world)
        if self._state is not None:
            loader.load_state_dict(json.loads(self._state))
        return loader

    def _look(self, loader: sk.Loader, step: int) -> None:
        """Looks at what a rank reads in a step: its share of the interval, and the ids of the order there."""
        reading = loader._reading
        if not reading.has(step):  # `ragged`: its last step may be missing
            return
        world, size = loader._cursor.run.world, self.history.size
        positions = reading.draws(step)
        global_batch = world.num_shards * self._batch
        begin = reading.delivery.start + step * global_batch
        lanes = reading.delivery.lanes
        if lanes % world.num_shards == 0 or world.num_shards % lanes == 0:
            expected = begin + world.shard_id + np.arange(self._batch) * world.num_shards
            assert positions.tolist() == expected[: positions.size].tolist(), "positions"
        assert begin <= positions.min(), "before its step"
        assert positions.max() < begin + global_batch, "behind its step"
        assert np.unique(positions).size == positions.size, "a position twice"
        ids = reading.units.order.ids_at(positions % size)
        assert np.array_equal(reading.ids(step), ids), "ids"


def lived(seeds):
    """Lives through histories, and returns how often what happened in them."""
    events, ranks = Counter(), []
    for seed in seeds:
        history = Life(seed).run()
        assert history.lost_and_repeated == (0, 0), seed
        events += history.events
        ranks += history.ranks
    return events, ranks


def test_histories_of_100_000_steps_lose_and_repeat_nothing():
    """30 of them; SAMPLERKIT_HISTORIES says how many."""
    cases = int(os.environ.get("SAMPLERKIT_HISTORIES", "30"))
    events, ranks = lived(range(cases))
    print(
        f"{cases:,} histories of {STEPS:,} steps, {len(ranks):,} jobs of {min(ranks)} to {max(ranks):,} ranks"
    )
    print(", ".join(f"{count} {name}" for name, count in sorted(events.items())))
    assert min(events[name] for name in ("join", "leave", "kill", "restart")) > 10
    assert min(ranks) < 20
    assert max(ranks) > 5000


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
