"""Ids that come from user code: the same on all ranks and after a resume, or an error."""

from __future__ import annotations

import os
import random

import numpy as np
import pytest
import torch

import samplerkit as sk
from samplerkit.compat import mindspore
from tests.chains import under
from tests.numbers import Numbers

SIZE = 24


class Shuffled:
    """An iterable that shuffles by a generator of the process, or one of its own."""

    def __init__(self, shuffle):
        self.shuffle = shuffle

    def __iter__(self):
        ids = [*range(SIZE)]
        self.shuffle(ids)
        return iter(ids)


class WithGenerator(Shuffled):
    """One with a generator of its own, which nobody has seeded."""

    def __init__(self):
        self.generator = np.random.default_rng()
        super().__init__(self.generator.shuffle)


def unseeded():
    """A generator that each process has seeded in its own way: those of torch start with the same seed."""
    generator = torch.Generator()
    generator.seed()
    return generator


class Wrapping(torch.utils.data.Sampler):
    """torch's sampler, wrapped in another one."""

    def __init__(self):
        self.inner = torch.utils.data.RandomSampler(range(SIZE), generator=unseeded())

    def __iter__(self):
        return iter(self.inner)


class OwnSampler(sk.Sampler):
    """MindSpore's way: ids from `__iter__`, at random."""

    def __iter__(self):
        return iter(np.random.permutation(self.dataset_size).tolist())  # noqa: NPY002  # what people write


class SystemRandom(sk.Sampler):
    """Random numbers of the system, which nothing can seed."""

    def __iter__(self):
        return iter(sorted(range(self.dataset_size), key=lambda _: os.urandom(8)))


SAMPLERS = {
    "torch's RandomSampler": lambda: sk.IterSampler(torch.utils.data.RandomSampler(range(SIZE))),
    "torch's, with a generator": lambda: sk.IterSampler(
        torch.utils.data.RandomSampler(range(SIZE), generator=unseeded())
    ),
    "torch's, in another one": lambda: sk.IterSampler(Wrapping()),
    "torch's WeightedRandomSampler": lambda: sk.IterSampler(
        torch.utils.data.WeightedRandomSampler([1.0] * SIZE, SIZE)
    ),
    "numpy's generator": lambda: sk.IterSampler(Shuffled(np.random.shuffle)),
    "Python's generator": lambda: sk.IterSampler(Shuffled(random.shuffle)),
    "a generator of its own": lambda: sk.IterSampler(WithGenerator()),
    "MindSpore's IterSampler": lambda: mindspore.IterSampler(Shuffled(random.shuffle)),
    "a sampler of one's own": OwnSampler,
    "below another one": lambda: under(sk.DistributedSampler(shuffle=True, seed=5), OwnSampler()),
    "a source of a mixture": lambda: sk.MixtureSampler(
        {"a": sk.IterSampler(Shuffled(random.shuffle)), "b": None}, seed=1, num_samples=SIZE
    ),
}
TREE = sk.Layout.tree({"a": sk.Layout(SIZE), "b": sk.Layout(SIZE)})


def loader(name, rank, ranks=2):
    """One rank of a job, in a process that was seeded in its own way."""
    torch.manual_seed(rank + 100)
    random.seed(rank + 200)
    np.random.seed(rank + 300)  # noqa: NPY002  # likewise
    dataset = Numbers(TREE) if "mixture" in name else range(SIZE)
    return sk.Loader(dataset, SAMPLERS[name](), batch_size=2, world=sk.World(ranks, rank))


def ids_of(loader, steps=None):
    ids = []
    for batch in loader:
        ids += batch.tolist()
        if loader.step == steps:
            break
    return ids


@pytest.mark.parametrize("name", SAMPLERS)
def test_ranks_with_different_seeds_share_the_ids_and_a_resume_reads_the_rest(name):
    order = [*loader(name, 0).order]
    assert order != sorted(order)
    ranks = [loader(name, rank) for rank in range(2)]
    shares = [ids_of(rank, steps=3) for rank in ranks]
    states = [rank.state_dict() for rank in ranks]
    assert states[0] == states[1]
    resumed = loader(name, 0, ranks=1)
    resumed.load_state_dict(states[0])
    assert sorted(shares[0] + shares[1] + ids_of(resumed)) == sorted(order)


def test_epochs_differ_and_the_generators_of_the_process_are_unchanged():
    torch.manual_seed(1)
    expected = torch.rand(2)
    torch.manual_seed(1)
    sampler = torch.utils.data.RandomSampler(range(SIZE))
    orders = [[*sk.IterSampler(sampler).order(SIZE, epoch=epoch)] for epoch in (0, 1, 0)]
    orders.append([*sk.IterSampler(sampler, seed=1).order(SIZE)])
    assert torch.rand(2).equal(expected)
    assert orders[0] == orders[2]
    assert len({tuple(order) for order in orders}) == 3


READERS = {
    "Loader": lambda sampler, world: sk.Loader(range(SIZE), sampler, batch_size=2, world=world),
    "TorchSampler": lambda sampler, world: sk.TorchSampler(sampler, range(SIZE), world),
    "TensorLoader": lambda sampler, world: sk.TensorLoader(
        torch.arange(SIZE), sampler, batch_size=2, world=world
    ),
    "batches": lambda sampler, world: sk.Loader(
        range(SIZE), sampler, batches=sk.TokenBatches(4, lengths=[1] * SIZE, window=8), world=world
    ),
    "a deal above": lambda sampler, world: sk.Loader(
        range(SIZE), under(sk.RandomSampler(), under(sk.DistributedSampler(2, 0), sampler)), batch_size=2
    ),
    "a mixture": lambda sampler, world: sk.Loader(
        Numbers(TREE),
        sk.MixtureSampler({"a": sampler, "b": None}, seed=1, num_samples=SIZE),
        batch_size=2,
        world=world,
    ),
}


@pytest.mark.parametrize("name", READERS)
def test_a_state_after_ids_that_nothing_can_repeat_is_refused(name):
    first = READERS[name](SystemRandom(), sk.World(1, 0))
    iterator = iter(first)
    next(iterator)
    state = first.state_dict()
    other = READERS[name](SystemRandom(), sk.World(1, 0))
    with pytest.raises(sk.StateError, match="differ from those that the sampler yielded") as caught:
        other.load_state_dict(state)
    assert caught.value.field == "ids"
    # At the beginning of an epoch nothing of it was read.
    other.load_state_dict(READERS[name](SystemRandom(), sk.World(1, 0)).state_dict())
    iterator.close()
