"""Any torch sampler, dealt: the same draws on every rank, its states, and what is refused."""

import itertools
import json
import random

import numpy as np
import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader, WeightedRandomSampler
from torch.utils.data import DistributedSampler as Torchs

import samplerkit as sk
from samplerkit.compat.torch import DistributedSampler, distributed
from samplerkit.order.permutation import CHUNK
from tests.compat.any_samplers import (
    ANY,
    IN_ORDER,
    MAKE,
    WEIGHTS,
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


def test_generators_are_restored_after_an_error():
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
def test_draws_on_a_gpu_are_the_same(holds):
    weights, read = torch.arange(1.0, 1001.0, device="cuda"), []
    for rank in range(4):
        torch.cuda.manual_seed(random.randrange(2**32))
        own = None if holds == "no generator" else torch.Generator("cuda").manual_seed(rank)
        before = torch.cuda.get_rng_state()
        read.append(list(distributed(WeightedRandomSampler(weights, 400, generator=own), 4, rank)))
        assert torch.cuda.get_rng_state().equal(before)
    assert dealt_back(read) == list(distributed(WeightedRandomSampler(weights, 400, generator=own), 1, 0))


def test_a_dataloader_receives_whole_batches():
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


@pytest.mark.parametrize("name", ANY)
@pytest.mark.parametrize("new_ranks", [1, 2, 3])
def test_a_state_resumes_with_any_number_of_ranks(name, new_ranks):
    whole = shares(name, 1, epoch=4)[0]
    for cut in {0, 1, len(whole) // 4, (len(whole) - 1) // 2}:
        for rank in range(2):
            sampler = distributed(ANY[name](), 2, rank)
            sampler.set_epoch(4)
            list(itertools.islice(sampler, cut))
            state = json.loads(json.dumps(sampler.state_dict()))
        rests = []
        for rank in range(new_ranks):
            scramble()
            sampler = distributed(ANY[name](), new_ranks, rank)
            sampler.load_state_dict(state)
            rests.append(list(sampler))
        assert dealt_back(rests)[: len(whole) - 2 * cut] == whole[2 * cut :]


def test_a_state_of_other_draws_is_refused():
    state = distributed(WeightedRandomSampler(WEIGHTS, 50), 2, 0).state_dict()
    others = {
        "sampler": distributed(WeightedRandomSampler(WEIGHTS[::-1], 50), 2, 0),
        "dataset": distributed(WeightedRandomSampler(WEIGHTS, 51), 2, 0),
        "seed": distributed(WeightedRandomSampler(WEIGHTS, 50), 2, 0, seed=1),
        "tail": distributed(WeightedRandomSampler(WEIGHTS, 50), 2, 0, drop_last=True),
    }
    for field, sampler in others.items():
        with pytest.raises(sk.StateError) as raised:
            sampler.load_state_dict(state)
        assert raised.value.field == field


class Endless(torch.utils.data.Sampler):
    def __iter__(self):
        return itertools.count()


@pytest.mark.parametrize(
    ("sampler", "error"),
    [
        (Torchs(range(10), 2, 0), sk.CompositionError),
        (DistributedSampler(range(10), 2, 0), sk.CompositionError),
        (BatchSampler(Torchs(range(10), 2, 0), 2, False), sk.CompositionError),
        (sk.RandomSampler(), sk.ArgumentTypeError),
        (DataLoader(range(10)), sk.ArgumentTypeError),
        (iter([1, 2]), sk.ArgumentTypeError),
        ((index for index in range(3)), sk.ArgumentTypeError),
        (5, sk.ArgumentTypeError),
        ("abc", sk.ArgumentTypeError),
        (None, sk.ArgumentTypeError),
    ],
)
def test_samplers_that_cannot_be_dealt_are_refused_at_construction(sampler, error):
    with pytest.raises(error, match="sampler"):
        distributed(sampler, 2, 0)


@pytest.mark.parametrize(
    ("draws", "error"),
    [
        ([1.5], None),
        ([True], sk.ArgumentTypeError),
        ([3, -1], sk.ArgumentRangeError),
        ([*[1] * CHUNK, [2]], sk.ArgumentTypeError),
    ],
    ids=["no ids", "a bool", "a negative one", "something else later"],
)
def test_draws_are_checked(draws, error):
    sampler = distributed(draws, 1, 0)
    if error is None:
        assert list(sampler) == draws  # anything but ids is handed on as it is
        return
    with pytest.raises(error):
        list(sampler)


def test_a_sampler_without_an_end_is_refused(monkeypatch):
    monkeypatch.setattr("samplerkit.compat.torch.any_sampler.LONGEST_ITERATION", 100_000)
    with pytest.raises(sk.DatasetError, match="does not end after"):
        list(distributed(Endless(), 2, 0))


@pytest.mark.parametrize(
    ("chosen", "error"),
    [
        ({"seed": -1}, sk.ArgumentValueError),
        ({"seed": "1"}, sk.ArgumentTypeError),
        ({"drop_last": 1}, sk.ArgumentTypeError),
        ({"num_replicas": "2"}, sk.ArgumentTypeError),
        ({"num_replicas": 2, "rank": 2}, sk.ArgumentRangeError),
    ],
)
def test_bad_arguments_are_refused_at_once(chosen, error):
    with pytest.raises(error):
        distributed([1, 2, 3], **chosen)
