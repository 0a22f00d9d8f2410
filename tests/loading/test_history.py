"""What a run has read, as an order; and what is an error because it is not known.

That it is what the loops received is tested with random jobs in tests/campaigns/test_random_ledgers.py.
"""

import dataclasses
import json
import os
import tracemalloc
from collections import Counter
from itertools import pairwise
from random import Random

import numpy as np
import pytest

import samplerkit as sk
from samplerkit.loading.run.delivery import Delivery
from samplerkit.loading.state.state import MAX_STRETCHES, EpochsRead, Past, State
from tests.loading.forged_states import forged_section
from tests.numbers import Numbers

PARTS = {"web": 12, "code": 8, "books": 4}
TREE = Numbers(sk.Layout.tree(PARTS))


def test_a_history_of_forty_epochs_of_a_trillion_samples_needs_little_memory():
    loader = sk.Loader(range(10**12), sk.RandomSampler(seed=7), batch_size=4)
    history = sk.History(loader.history().run, Past((EpochsRead(0, 40, 0, -1), EpochsRead(40, 1, 0, 1000))))
    tracemalloc.start()
    assert len(history) == 40 * 10**12 + 1000
    assert history.count(list(range(1000))).tolist() == [40] * 1000
    middle = history[20 * 10**12 + 5 : 20 * 10**12 + 1005]
    assert middle.tolist() == loader._cursor.run.epoch(20).order[5:1005].tolist()
    assert history.epochs_of([0, 20 * 10**12 + 5, -1 + len(history)]).tolist() == [0, 20, 40]
    assert tracemalloc.get_traced_memory()[1] < 16 << 20
    tracemalloc.stop()


def test_a_history_of_batches_finds_each_id_where_it_was_read():
    batches = sk.TokenBatches(40, lengths=[1 + number % 17 for number in range(200)], pool=2)
    loader = sk.Loader(range(200), sk.RandomSampler(seed=7), batches=batches, collate_fn=list)
    received = [next(iteration) for iteration in [iter(loader)] for _ in range(9)]
    history, later = loader.history(), sum(received[4:], [])
    assert history[:].tolist() == sum(received, [])
    since = history.since(loader.state_dict(step=4))
    assert (since[:].tolist(), since.is_complete) == (later, True)
    assert history.since(loader.state_dict(step=0))[:].tolist() == history[:].tolist()
    for id in range(200):
        assert since.positions_of(id).tolist() == [at for at, read in enumerate(later) if read == id]


def test_an_epoch_of_an_odd_number_of_samples_is_in_the_history_as_a_whole():
    loader = sk.Loader(range(5), batch_size=2)
    assert len(list(loader)) == 3
    assert sorted(loader.history()) == [0, 1, 2, 3, 4]


# What a state holds.


def test_more_than_64_stretches_are_summed_up_and_the_history_is_incomplete():
    loader = sk.Loader(range(1000), sk.RandomSampler(seed=1), batch_size=100)
    for epoch in [5, 0] * MAX_STRETCHES:
        loader.set_epoch(epoch)
        next(iter(loader))
    history = loader.history()
    assert (len(history.past.stretches), history.past.older) == (MAX_STRETCHES, MAX_STRETCHES)
    assert (history.is_complete, len(history)) == (False, 100 * MAX_STRETCHES)
    assert len(json.dumps(loader.state_dict())) < 4096
    with pytest.raises(sk.StateError, match="does not have all epochs that were read"):
        history.unread()


def test_samples_read_by_another_order_are_forgotten_and_the_history_is_incomplete():
    before = sk.Loader(range(10), sk.RandomSampler(seed=1), batch_size=5)
    for _ in before:
        pass
    after = sk.Loader(range(10), sk.RandomSampler(seed=2), batch_size=5)
    after.load_state_dict(before.state_dict(), allow={"seed"})
    assert after.history().past == Past((), older=1)
    next(iter(after))
    assert after.history()[:].tolist() == after.order[:5].tolist()
    assert not after.history().is_complete


# Queries.


@pytest.fixture
def read_loader():
    """A loader of 30 samples in three parts, 25 of which were read."""
    loader = sk.Loader(TREE, sk.RandomSampler(seed=3), batch_size=5)
    for _ in zip(range(4), loader, strict=False):
        pass
    return loader


def test_the_history_counts_the_samples_of_each_part(read_loader):
    history = read_loader.history()
    parts = TREE.layout.part_starts.searchsorted(history[:], side="right") - 1
    assert history.by_source() == {name: int((parts == at).sum()) for at, name in enumerate(PARTS)}
    assert history.unread()[:].tolist() == sorted({*range(24)} - {*history})
    for count in (0, 7):
        assert history.up_to(count)[:].tolist() == history[:count].tolist()
    plain = sk.Loader(range(10), sk.RandomSampler(), batch_size=5)
    assert plain.history().by_source() == {"all": 0}


def test_a_config_says_what_a_state_has_read():
    written = {
        "dataset": {"kind": "size", "size": 100},
        "sampler": {"kind": "random", "seed": 4},
        "loader": {"batch_size": 10},
    }
    config = sk.load_config(written)
    loader = sk.Loader(config.dataset, config.sampler, batch_size=7, world=sk.World(2, 1))
    history = sk.History.of(config, loader.state_dict(step=3))
    assert history[:].tolist() == loader.order[:42].tolist()


def test_the_history_carries_over_to_windows_of_another_length(tmp_path):
    tokens = np.arange(960, dtype=np.uint16)
    np.save(tmp_path / "tokens.npy", tokens)

    def loader(seq_len):
        data = sk.TokenDataset(str(tmp_path / "tokens.npy"), seq_len, block_len=32)
        return sk.Loader(data, sk.BlockSampler(pool=3, seed=2), batch_size=96 // seq_len, tail="drop")

    before, after = loader(16), loader(8)
    for _ in zip(range(4), before, strict=False):
        pass
    after.load_state_dict(before.state_dict())
    read, again = (
        np.sort(np.add.outer(run.history()[:] * seq_len, np.arange(seq_len)), axis=None)
        for run, seq_len in ((before, 16), (after, 8))
    )
    assert read.size == 4 * 96
    assert np.array_equal(read, again)


def test_of_a_past_what_windows_of_another_length_cannot_express_is_forgotten_with_all_before_it():
    within_a_pool = EpochsRead(1, 1, 0, 6), EpochsRead(2, 1, 6, -1)
    stretches = EpochsRead(0, 1, 0, -1), *within_a_pool, EpochsRead(3, 2, 0, -1), EpochsRead(5, 1, 0, 8)
    kept = EpochsRead(3, 2, 0, -1), EpochsRead(5, 1, 0, 16)
    assert Past(stretches, older=7).rescaled(4, 2, 4) == Past(kept, older=10)


@pytest.mark.parametrize(
    ("query", "error"),
    [
        (lambda history: history[99], sk.OutOfDatasetError),
        (lambda history: history.up_to(21), sk.OutOfDatasetError),
        (lambda history: history.up_to(-1), sk.OutOfDatasetError),
        (lambda history: history.index(next(iter({*range(24)} - {*history}))), sk.ArgumentValueError),
    ],
)
def test_a_query_without_an_answer_is_a_typed_error(read_loader, query, error):
    with pytest.raises(error):
        query(read_loader.history())


@pytest.mark.parametrize(
    "fields",
    [
        {"stretches": [[0, 1, 0, 24]]},
        {"stretches": [[5, 1, 0, 10]]},
        {"stretches": [[0, 1, 0, 5], [0, 1, 0, 5]]},
        {"stretches": [[0, 0, 0, 10]]},
        {"stretches": [[2**62, 2**62, 0, -1]]},
        {"stretches": [[0, 1, 9, 9]]},
        {"stretches": [[0, 1, -1, 9]]},
        {"stretches": [[0, 1, 0]]},
        {"stretches": "all"},
        {"older": -1},
        {"older": 7},
    ],
    ids=str,
)
def test_a_state_with_another_past_is_refused(read_loader, fields):
    state = forged_section(read_loader.state_dict(), "read", **fields)
    with pytest.raises(sk.StateError):
        read_loader.history().since(state)


@pytest.mark.parametrize("stretch", [[0, 1, 0, 25], [0, 1, 25, -1]], ids=str)
def test_a_stretch_past_the_end_of_its_epoch_is_refused(read_loader, stretch):
    read_loader.set_epoch(1)
    state = forged_section(read_loader.state_dict(), "read", stretches=[stretch])
    with pytest.raises(sk.StateError, match="has a stretch that no run reads"):
        len(read_loader.history(state))


@pytest.mark.parametrize(
    "stretch", [[0, 1, 0, 24], [0, 1, 0, 5], [5, 1, 0, 20], [0, 2**63 - 1, 0, -1]], ids=str
)
def test_a_past_that_does_not_end_where_the_state_is_is_refused(read_loader, stretch):
    state = forged_section(read_loader.state_dict(), "read", stretches=[stretch])
    for load in (read_loader.history, read_loader.load_state_dict):
        with pytest.raises(sk.StateError, match="read: does not end where the state is"):
            load(state)


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
        # Without its past, which does not end at another position.
        off = dataclasses.replace(read, position=read.position + by, sections={})
        return off.to_dict() if read.position else state

    assert sum(Life(seed, moved).lost_and_repeated[counted] for seed in range(4)) > 0


def test_a_deal_that_is_wrong_for_one_rank_is_noticed(monkeypatch):
    dealt = Delivery.dealt
    monkeypatch.setattr(
        Delivery, "dealt", lambda self, shard, step: np.asarray(dealt(self, shard, step)) + (shard > 5)
    )
    with pytest.raises(AssertionError, match=r"positions|after"):
        Life(1)
