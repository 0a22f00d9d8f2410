"""The time machine agrees with what loaders read, in both directions."""

from __future__ import annotations

import json
from functools import partial

import numpy as np
import pytest
import torch.utils.data
from hypothesis import given, settings
from hypothesis import strategies as st

import samplerkit as sk
from samplerkit.inspect import check
from samplerkit.inspect.doctor.findings import KINDS
from samplerkit.inspect.plan import plan
from samplerkit.inspect.time_machine import at, when
from tests.chains import under
from tests.inspect.reported_steps import reported_steps
from tests.numbers import Numbers
from tests.testing.strategies import chains

LAYOUT = sk.Layout([9, 0, 17, 4, 11, 6])
ROWS = Numbers(LAYOUT)


def partial_on(ranks, rank):
    sampler = sk.RandomSampler(shuffle="partial", partial_size=8, seed=5)
    return sk.Loader(ROWS, sampler, batch_size=4, world=sk.World(ranks, rank))


def resumed(rank):
    """A rank of two, of a run in which four ranks had read a step."""
    run = partial_on(2, rank)
    run.load_state_dict(json.loads(json.dumps(partial_on(4, 0).state_dict(step=1))))
    return run


def plain(offset, drop_last, rank):
    recipe = under(sk.RandomSampler(seed=3), sk.DistributedSampler(shuffle="files", seed=5))
    if offset is not None:
        recipe = sk.DistributedSampler(shuffle="files", lanes=2, offset=offset, seed=5)
    sampler = sk.TorchSampler(recipe, ROWS, sk.World(3, rank))
    return torch.utils.data.DataLoader(ROWS, batch_size=4, sampler=sampler, drop_last=drop_last)


RUNS = {
    "resumed on another number of ranks": (2, resumed),
    **{
        f"a plain DataLoader, {name}, {drop_last=}": (3, partial(plain, offset, drop_last))
        for name, offset, drop_last in (
            ("padded", -1, False),
            ("rotated", 1, True),
            ("below the root", None, False),
        )
    },
}


@pytest.mark.parametrize(("ranks", "make"), RUNS.values(), ids=RUNS.keys())
def test_at_and_when_agree_with_what_all_ranks_read_in_three_epochs(ranks, make):
    for _, reported, batch in reported_steps(make, ranks, range(3)):
        assert reported.ids.tolist() == batch.tolist()
        assert np.array_equal(reported.files, LAYOUT.file_of(reported.ids))


@pytest.mark.parametrize("offset", [-1, 1])
def test_samples_that_a_plain_dataloader_drops_are_in_no_figure(offset):
    recipe = sk.DistributedSampler(shuffle="global", offset=offset)
    sampler = sk.TorchSampler(recipe, ROWS, sk.World(3, 0))
    planned = plan(torch.utils.data.DataLoader(ROWS, batch_size=5, sampler=sampler, drop_last=True))
    assert (planned.steps, planned.epoch_samples, planned.dropped, planned.pads) == (3, 45, 2, 0)


def test_samples_read_before_a_resume_are_unread():
    unread = [when(resumed(0), sample, 0)[0].unread for sample in range(len(LAYOUT))]
    assert sorted(position for positions in unread for position in positions) == list(range(16))


@settings(max_examples=30, deadline=None)
@given(case=chains(), tail=st.sampled_from(["pad", "drop", "ragged"]), batch=st.integers(1, 5))
def test_every_legal_chain_can_be_inspected(case, tail, batch):
    alone = None if case.dealer is not None else sk.World(1, 0)

    def run(rank):
        world = case.world(rank) or alone
        rows = Numbers(case.layout)
        loader = sk.Loader(rows, case.sampler(rank), batch_size=batch, tail=tail, world=world)
        loader.set_epoch(case.epoch)
        return loader

    steps, pads = [len(run(rank)) for rank in case.shards], 0
    for _, reported, read in reported_steps(run, len(steps), [case.epoch]):
        assert reported.ids.tolist() == read.tolist()
        pads += reported.pads.sum()
    planned = plan(run(0), epoch=case.epoch)
    assert (planned.fewest_steps, planned.steps, planned.pads) == (min(steps), max(steps), pads)
    assert all(finding.code in KINDS for finding in check(run(0)))


HUGE = 10**12


@pytest.mark.parametrize("shuffle", ["global", "partial", "files"])
def test_an_epoch_of_1e12_samples_is_inspected_without_a_search(shuffle):
    layout = sk.Layout([HUGE // 1000] * 1000)
    sampler = sk.DistributedSampler(shuffle=shuffle, seed=1)
    source = sk.Loader(layout, sampler, batch_size=256, world=sk.World(8, 3))
    last = at(source, epoch=7, step=0, rank=0).num_steps - 1
    for step in (0, 340, 10**8 + 1, last):
        read = at(source, epoch=7, step=step, rank=3)
        for place in (0, len(read.ids) - 1):
            (result,) = when(source, int(read.ids[place]), 7)
            (time,) = result.occurrences
            assert (time.rank, time.step, time.place, time.position) == (
                3,
                step,
                place,
                read.positions[place],
            )
