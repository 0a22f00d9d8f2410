"""`samplerkit.compat.torch.distributed`: any torch sampler, the same draws on every rank."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest
import torch
from torch.utils.data import (
    DataLoader,
    RandomSampler,
    WeightedRandomSampler,
)
from torch.utils.data import DistributedSampler as Torchs

from samplerkit.compat.torch import distributed
from tests.compat.any_samplers import (
    ANY,
    BY_EPOCH,
    IN_ORDER,
    MAKE,
    OwnGenerators,
    dealt_back,
    scramble,
    shares,
)


@pytest.mark.parametrize("name", ANY)
@pytest.mark.parametrize("ranks", [2, 3, 8])
def test_all_ranks_deal_the_same_draws(name, ranks):
    whole = shares(name, 1)[0]
    padded, dropped = shares(name, ranks), shares(name, ranks, drop_last=True)
    assert dealt_back(padded) == (whole * ranks)[: -(-len(whole) // ranks) * ranks]
    assert dealt_back(dropped) == whole[: len(whole) // ranks * ranks]


@pytest.mark.parametrize("name", MAKE)
def test_epochs_and_seeds_differ_and_repeat(name):
    first = shares(name, 2)
    assert shares(name, 2) == first
    assert shares(name, 2, epoch=1) != first
    assert shares(name, 2, seed=1) != first
    assert shares(name, 2, seed=1) != shares(name, 2, epoch=1)


@pytest.mark.parametrize("name", BY_EPOCH)
def test_a_sampler_that_knows_epochs_is_told(name):
    assert shares(name, 2, epoch=7)[0][0] == (7 if name == "by its epoch" else [7, 8, 9, 10])


def test_a_plain_sampler_does_differ_between_ranks():
    """The negative control of the tests above."""
    read = []
    for rank in range(2):
        scramble()
        read.append(list(RandomSampler(range(40)))[rank::2])
    assert sorted(sum(read, [])) != list(range(40))


def test_weighted_draws_keep_their_weights():
    drawn = Counter()
    for epoch in range(40):
        for rank in range(2):
            sampler = distributed(WeightedRandomSampler([1.0, 3.0], 1000), 2, rank)
            sampler.set_epoch(epoch)
            drawn.update(sampler)
    assert drawn.total() == 40_000
    assert abs(drawn[0] / 40_000 - 0.25) < 0.01  # 4.6 standard deviations


def states(sampler):
    held = vars(sampler)
    yield torch.get_rng_state().tolist()
    yield repr(np.random.get_state())  # noqa: NPY002  # the generator that users draw from
    yield random.getstate()
    if isinstance(sampler, OwnGenerators):
        yield held["torch"].get_state().tolist()
        yield held["numpy"].bit_generator.state
        yield repr(held["legacy"].get_state())
        yield held["python"].getstate()
    elif isinstance(held.get("generator"), torch.Generator):
        yield held["generator"].get_state().tolist()


@pytest.mark.parametrize("name", ANY)
def test_no_generator_is_left_in_another_state(name):
    inner = ANY[name]()
    before = list(states(inner)) if not isinstance(inner, list) else []
    dealt = distributed(inner, 2, 0)
    reading = iter(dealt)
    next(reading)
    assert before == (list(states(inner)) if before else [])
    list(reading)
    assert before == (list(states(inner)) if before else [])


def test_generators_are_given_back_after_an_error_too():
    class Failing(torch.utils.data.Sampler):
        def __iter__(self):
            yield int(torch.randint(5, ()))
            raise KeyError("lost")

    before = torch.get_rng_state()
    with pytest.raises(KeyError, match="lost"):
        list(distributed(Failing(), 2, 0))
    assert torch.get_rng_state().equal(before)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="draws on a GPU, and there is none")
@pytest.mark.parametrize("holds", ["no generator", "a generator"])
def test_draws_on_a_gpu_are_the_same_too(holds):
    weights, read = torch.arange(1.0, 1001.0, device="cuda"), []
    for rank in range(4):
        torch.cuda.manual_seed(random.randrange(2**32))
        own = None if holds == "no generator" else torch.Generator("cuda").manual_seed(rank)
        before = torch.cuda.get_rng_state()
        read.append(list(distributed(WeightedRandomSampler(weights, 400, generator=own), 4, rank)))
        assert torch.cuda.get_rng_state().equal(before)
    assert dealt_back(read) == list(distributed(WeightedRandomSampler(weights, 400, generator=own), 1, 0))


def test_batches_go_to_a_dataloader_whole():
    whole = shares("batches", 1)[0]
    batches = [distributed(MAKE["batches"](), 2, rank) for rank in range(2)]
    read = [[batch.tolist() for batch in DataLoader(range(40), batch_sampler=sampler)] for sampler in batches]
    assert dealt_back(read) == [*whole, whole[0]]
    assert batches[0].batch_size == 6


def test_trainers_see_a_distributed_sampler():
    sampler = distributed(MAKE["weighted"](), 3, 1, drop_last=True)
    assert isinstance(sampler, Torchs)
    assert (sampler.num_replicas, sampler.rank, sampler.total_size, sampler.shuffle) == (3, 1, 99, True)
    assert not distributed(IN_ORDER["batches in order"](), 3, 1).shuffle


def test_without_a_job_one_process_reads_everything(monkeypatch):
    for name in ("RANK", "WORLD_SIZE", "SLURM_PROCID"):
        monkeypatch.delenv(name, raising=False)
    assert list(distributed(range(5))) == [0, 1, 2, 3, 4]
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert list(distributed(range(5))) == [1, 3, 0]
