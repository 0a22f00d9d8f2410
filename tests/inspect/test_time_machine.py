"""The time machine agrees with what loaders really hand out, in both directions."""

from __future__ import annotations

import json
from collections import defaultdict
from itertools import product

import numpy as np
import pytest
import torch.utils.data
from hypothesis import given, settings
from hypothesis import strategies as st

import samplerkit as sk
from samplerkit.inspect.time_machine import at, occurrences_of, when
from samplerkit.loading.run.delivery import Delivery
from tests.testing.strategies import chains

LAYOUT = sk.Layout([9, 0, 17, 4, 11, 6])
EPOCHS = 3


class Rows:
    """Sample i is i."""

    layout = LAYOUT

    def __len__(self):
        return len(LAYOUT)

    def __getitem__(self, index):
        return index


def chain():
    parent = sk.RandomSampler(seed=3)
    parent.add_child(sk.SubsetSampler([5, 40, 5, 46, 12, 30, 0, 19, 21]))
    return parent


def deal_below_the_root():
    parent = sk.RandomSampler(seed=3)
    parent.add_child(sk.DistributedSampler(shuffle="files", seed=5))
    return parent


RECIPES = {
    "files": lambda: sk.DistributedSampler(shuffle="files", seed=5),
    "partial": lambda: sk.RandomSampler(shuffle="partial", partial_size=8, seed=5),
    "a chain that repeats samples": chain,
}


def loader(recipe, tail, ranks, rank):
    return sk.Loader(Rows(), RECIPES[recipe](), batch_size=4, tail=tail, world=sk.World(ranks, rank))


def really_read(ranks, make):
    """What the loaders of all ranks hand out: by sample and epoch, each (rank, step, place, is it a pad)."""
    seen = defaultdict(list)
    for rank in range(ranks):
        with make(rank) as run:
            for epoch in range(EPOCHS):
                for step, batch in enumerate(run):
                    # The last batch ends the epoch only once the loop asks for more.
                    pads = run.pads(step)
                    for place, sample in enumerate(batch.tolist()):
                        seen[epoch, sample].append((rank, step, place, bool(pads[place])))
    return seen


def asserted_both_ways(source, seen, ranks):
    """Asks for every sample and for every step, and compares with what was read; gives how often."""
    asked = 0
    for sample in range(len(LAYOUT)):
        for found in when(source, sample, range(EPOCHS)):
            times = [(time.rank, time.step, time.place, time.is_pad) for time in found.occurrences]
            assert sorted(times) == sorted(seen[found.epoch, sample])
            asked += 1
    steps = {(epoch, rank, step) for (epoch, _), times in seen.items() for rank, step, _, _ in times}
    for epoch, rank, step in steps:
        read = at(source, epoch, step, rank)
        for place, (sample, is_pad) in enumerate(zip(read.ids.tolist(), read.pads.tolist(), strict=True)):
            assert (rank, step, place, is_pad) in seen[epoch, sample]
        assert np.array_equal(read.files, LAYOUT.file_of(read.ids))
    assert len({(epoch, rank) for epoch, rank, _ in steps}) == EPOCHS * ranks
    return asked


@pytest.mark.parametrize("tail", ["pad", "drop", "ragged"])
@pytest.mark.parametrize("recipe", ["files", "a chain that repeats samples"])
def test_at_and_when_agree_with_what_two_ranks_really_read_in_three_epochs(recipe, tail):
    seen = really_read(2, lambda rank: loader(recipe, tail, 2, rank))
    assert asserted_both_ways(loader(recipe, tail, 2, 0), seen, 2) == EPOCHS * len(LAYOUT)


def test_they_agree_with_a_run_that_was_resumed_on_another_number_of_ranks():
    state = json.loads(json.dumps(loader("partial", "pad", 4, 0).state_dict(step=1)))
    seen = defaultdict(list)
    for rank in range(2):
        run = loader("partial", "pad", 2, rank)
        run.load_state_dict(state)
        for step in range(run.steps_left):
            for place, sample in enumerate(run.ids(step).tolist()):
                seen[sample].append((rank, step, place))
    source = loader("partial", "pad", 2, 0)
    source.load_state_dict(state)
    unread = 0
    for sample in range(len(LAYOUT)):
        (found,) = when(source, sample, 0)
        assert sorted((t.rank, t.step, t.place) for t in found.occurrences) == sorted(seen[sample])
        unread += len(found.unread)
    assert unread == state["position"] == 16


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("offset", [-1, 1, None], ids=["padded", "rotated", "below the root"])
def test_they_agree_with_a_plain_dataloader_over_a_torch_sampler(drop_last, offset):
    def plain(rank):
        if offset is None:
            recipe = deal_below_the_root()
        else:
            recipe = sk.DistributedSampler(shuffle="files", lanes=2, offset=offset, seed=5)
        sampler = sk.TorchSampler(recipe, Rows(), sk.World(3, rank))
        return torch.utils.data.DataLoader(Rows(), batch_size=4, sampler=sampler, drop_last=drop_last)

    seen = defaultdict(list)
    for rank, run in enumerate(map(plain, range(3))):
        for epoch in range(EPOCHS):
            for step, batch in enumerate(run):
                for place, sample in enumerate(batch.tolist()):
                    seen[epoch, sample].append((rank, step, place))
    for sample in range(len(LAYOUT)):
        for found in when(plain(0), sample, range(EPOCHS)):
            times = [(time.rank, time.step, time.place) for time in found.occurrences]
            assert sorted(times) == sorted(seen[found.epoch, sample])


def test_the_inverse_of_the_delivery_is_right_in_every_small_case():
    cases = 0
    for total, ranks, batch, tail, lanes in product(
        [0, 1, 2, 5, 12, 29], [1, 2, 3, 5], [1, 2, 3], ["pad", "drop", "ragged"], [1, 2, 3, 4]
    ):
        for rotation, start in product({0, 1, ranks}, {0, min(4, total), total}):
            delivery = Delivery(total, start, ranks, batch, tail, rotation, lanes)
            wanted = {
                position: (rank, step, place)
                for rank in range(ranks)
                for step in range(delivery.steps(rank))
                for place, position in enumerate(delivery.positions(rank, step).tolist())
            }
            times = occurrences_of(0, delivery, np.arange(total))
            assert {time.position: (time.rank, time.step, time.place) for time in times} == wanted
            cases += 1
    print(f"{cases} deliveries inverted")
    assert cases > 5_000


@settings(max_examples=150, deadline=None)
@given(case=chains(), tail=st.sampled_from(["pad", "drop", "ragged"]), batch=st.integers(1, 5))
def test_every_legal_chain_can_be_asked(case, tail, batch):
    alone = None if case.dealer is not None else sk.World(1, 0)

    def run(rank):
        world = case.world(rank) or alone
        return sk.Loader(case.dataset, case.sampler(rank), batch_size=batch, tail=tail, world=world)

    seen = defaultdict(list)
    for rank, one in enumerate(map(run, case.shards)):
        one.set_epoch(case.epoch)
        for step in range(len(one)):
            read = at(run(0), case.epoch, step, rank)
            assert read.ids.tolist() == one.ids(step).tolist()
            for place, sample in enumerate(read.ids.tolist()):
                seen[sample].append((rank, step, place, bool(one.pads(step)[place])))
    for sample in range(len(case.layout)):
        (found,) = when(run(0), sample, case.epoch)
        times = [(time.rank, time.step, time.place, time.is_pad) for time in found.occurrences]
        assert sorted(times) == sorted(seen[sample])


HUGE = 10**12


@pytest.mark.parametrize("shuffle", ["global", "partial", "files"])
def test_a_million_million_samples_are_no_matter(shuffle):
    layout = sk.Layout([HUGE // 1000] * 1000)
    sampler = sk.DistributedSampler(shuffle=shuffle, seed=1)
    source = sk.Loader(layout, sampler, batch_size=256, world=sk.World(8, 3))
    last = at(source, epoch=7, step=0, rank=0).num_steps - 1
    for step in (0, 340, 10**8 + 1, last):
        read = at(source, epoch=7, step=step, rank=3)
        for place in (0, len(read.ids) - 1):
            (found,) = when(source, int(read.ids[place]), 7)
            (time,) = found.occurrences
            assert (time.rank, time.step, time.place, time.position) == (
                3,
                step,
                place,
                read.positions[place],
            )


def test_a_config_is_asked_like_a_loader():
    config = sk.load_config(
        {
            "dataset": {"kind": "layout", "sizes": LAYOUT.sizes.tolist()},
            "sampler": {"kind": "distributed", "shuffle": "files", "seed": 5},
            "loader": {"batch_size": 4},
        }
    )
    by_loader, by_config = at(loader("files", "pad", 2, 0), 1, 2, 1), at(config, 1, 2, 1, world=2)
    assert by_config.ids.tolist() == by_loader.ids.tolist()
    assert by_config.fingerprint == by_loader.fingerprint
    assert len(by_loader.fingerprint) == 12
    other = at(loader("partial", "pad", 2, 0), 1, 2, 1)
    assert other.fingerprint != by_loader.fingerprint


@pytest.mark.parametrize(
    ("ask", "error", "words"),
    [
        (lambda run: at(run, 0, 6), sk.OutOfDatasetError, "step: must be in [0, 6) in epoch 0 of rank 0"),
        (lambda run: at(run, 0, -1), sk.OutOfDatasetError, "step"),
        (lambda run: at(run, 0, 0, 2), sk.ArgumentRangeError, "rank: must be in [0, 2), got 2"),
        (lambda run: at(run, -1, 0), sk.ArgumentValueError, "epoch"),
        (lambda run: at(run, 0, 0, start=48), sk.ArgumentRangeError, "start"),
        (lambda run: at(run, 0, 0, world=4), sk.ArgumentValueError, "which has 2 ranks, got 4"),
        (lambda run: when(run, 47, 0), sk.OutOfDatasetError, "sample: outside of a dataset of 47 samples"),
        (lambda run: when(run, 0, "a"), sk.ArgumentTypeError, "epoch"),
        (lambda run: at([1, 2], 0, 0), sk.ArgumentTypeError, "must be a samplerkit Loader"),
    ],
)
def test_what_there_is_not_is_an_error_that_says_what_there_is(ask, error, words):
    with pytest.raises(error) as raised:
        ask(loader("files", "pad", 2, 0))
    assert words in str(raised.value)


def test_a_scan_that_would_take_too_long_is_refused():
    source = sk.Loader(sk.Layout(2**27), sk.RandomSampler(replacement=True), batch_size=1)
    with pytest.raises(sk.InverseTooLargeError):
        when(source, 0, 0)
