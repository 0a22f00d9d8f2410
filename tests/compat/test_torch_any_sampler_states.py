"""`samplerkit.compat.torch.distributed`: any torch sampler, its states, and what it refuses."""

from __future__ import annotations

import itertools
import json

import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    WeightedRandomSampler,
)
from torch.utils.data import DistributedSampler as Torchs

import samplerkit as sk
from samplerkit.compat.torch import DistributedSampler, distributed
from tests.compat.any_samplers import (
    ANY,
    WEIGHTS,
    dealt_back,
    scramble,
    shares,
)


@pytest.mark.parametrize("name", ANY)
@pytest.mark.parametrize("new_ranks", [1, 2, 3])
def test_a_state_goes_on_with_any_number_of_ranks(name, new_ranks):
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
def test_what_cannot_be_dealt_is_refused_at_once(sampler, error):
    with pytest.raises(error, match="sampler"):
        distributed(sampler, 2, 0)


def test_a_sampler_of_one_rank_is_no_dealing_one():
    assert list(distributed(Torchs(range(6), 1, 0, shuffle=False), 2, 1)) == [1, 3, 5]


@pytest.mark.parametrize(
    ("draws", "error"),
    [([1.5], None), ([True], sk.ArgumentTypeError), ([3, -1], sk.ArgumentRangeError), ([1, [2]], TypeError)],
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
    with pytest.raises(sk.DatasetError, match="yields more than"):
        list(distributed(Endless(), 2, 0))


@pytest.mark.parametrize(
    ("chosen", "error"),
    [
        ({"seed": -1}, sk.ArgumentValueError),
        ({"seed": "1"}, sk.ArgumentTypeError),
        ({"drop_last": 1}, sk.ArgumentTypeError),
        ({"num_replicas": "2"}, sk.ArgumentTypeError),
    ],
)
def test_bad_arguments_are_refused_at_once(chosen, error):
    with pytest.raises(error):
        distributed([1, 2, 3], **chosen)
    with pytest.raises(sk.ArgumentRangeError):
        list(distributed([1, 2, 3], 2, 2))
