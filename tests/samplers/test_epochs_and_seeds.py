"""Every epoch, every seed and every place in a chain has an order of its own."""

from __future__ import annotations

import numpy as np
import pytest

import samplerkit as sk
from tests.testing.links import Rotated, Turning

N = 60

EPOCHS_DIFFER = {
    "random": sk.RandomSampler(),
    "random with replacement": sk.RandomSampler(replacement=True),
    "files": sk.RandomSampler(shuffle="files"),
    "infile": sk.RandomSampler(shuffle="infile"),
    "partial": sk.RandomSampler(shuffle="partial", partial_size=20),
    "adaptive": sk.RandomSampler(shuffle="adaptive"),
    "distributed": sk.DistributedSampler(2, 0),
    "subset random": sk.SubsetRandomSampler(list(range(0, N, 2))),
    "weighted": sk.WeightedRandomSampler([1.0] * N),
    "weighted without replacement": sk.WeightedRandomSampler([1.0] * N, 30, replacement=False),
    "pk": sk.PKSampler(9, labels=[i % 3 for i in range(N)]),
    "iterable with set_epoch": sk.IterSampler(Turning(list(range(N)))),
    "of the user": Rotated(),
}


@pytest.mark.parametrize("sampler", EPOCHS_DIFFER.values(), ids=EPOCHS_DIFFER.keys())
def test_every_epoch_has_an_order_of_its_own(sampler):
    layout = sk.Layout([10] * (N // 10))
    orders = [tuple(sampler.order(layout, epoch)) for epoch in range(6)]
    assert len(set(orders)) == 6
    assert tuple(sampler.order(layout)) == orders[0]


@pytest.mark.parametrize("name", [name for name in EPOCHS_DIFFER if name[:4] not in {"iter", "of t"}])
def test_every_seed_has_an_order_of_its_own(name):
    sampler = EPOCHS_DIFFER[name]
    arguments = sampler.arguments()
    layout = sk.Layout([10] * (N // 10))
    orders = [tuple(type(sampler)(**{**arguments, "seed": seed}).order(layout)) for seed in range(6)]
    assert len(set(orders)) == 6
    assert tuple(sampler.order(layout)) == orders[0]


def test_two_samplers_of_one_seed_in_a_chain_shuffle_differently():
    alone = np.asarray(sk.RandomSampler(seed=5).order(50))
    parent = sk.RandomSampler(seed=5)
    parent.add_child(sk.RandomSampler(seed=5))
    assert np.asarray(parent.order(50)).tolist() != alone[alone].tolist()
