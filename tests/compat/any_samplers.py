"""Torch samplers of all kinds, and the reading of their shares, for the tests of `distributed`."""

import itertools
import random

import numpy as np
import torch
from torch.utils.data import (
    BatchSampler,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)
from torchdata.stateful_dataloader.sampler import RandomSampler as TorchdataRandomSampler

from samplerkit.compat.torch import distributed

WEIGHTS = [1.0 + index for index in range(40)]


def generator():
    # A seed of its own on each call, as ranks may have.
    return torch.Generator().manual_seed(random.randrange(2**32))


class OwnGenerators(torch.utils.data.Sampler):
    """A user's sampler that draws from three libraries, by generators of its own."""

    def __init__(self):
        self.torch, self.numpy, self.python = generator(), np.random.default_rng(), random.Random()
        self.legacy = np.random.RandomState()

    def __iter__(self):
        yield from torch.randint(40, (5,), generator=self.torch).tolist()
        yield from self.numpy.integers(40, size=5)
        yield from self.legacy.randint(0, 40, size=5)
        yield from (self.python.randrange(40) for _ in range(5))

    def __len__(self):
        return 20


class ProcessWide(torch.utils.data.Sampler):
    """A user's sampler that draws lazily from the generators of the process."""

    def __iter__(self):
        for _ in range(5):
            yield torch.randint(40, ())
            yield np.random.randint(40)  # noqa: NPY002  # users do
            yield random.randrange(40)

    def __len__(self):
        return 15


class ByItsEpoch(torch.utils.data.Sampler):
    """A user's sampler that knows epochs."""

    epoch = None

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        yield from range(self.epoch, self.epoch + 10)

    def __len__(self):
        return 10


class OfParts(torch.utils.data.Sampler):
    """A user's sampler made of others."""

    def __init__(self):
        self.parts = [RandomSampler(range(20), generator=generator()), SubsetRandomSampler(range(20, 40))]

    def __iter__(self):
        return itertools.chain(*self.parts)

    def __len__(self):
        return 40


MAKE = {
    "random": lambda: RandomSampler(range(40)),
    "replacement with a generator": lambda: RandomSampler(
        range(40), replacement=True, num_samples=100, generator=generator()
    ),
    "subset": lambda: SubsetRandomSampler(range(5, 30)),
    "weighted": lambda: WeightedRandomSampler(WEIGHTS, 101),
    "weighted with a generator": lambda: WeightedRandomSampler(WEIGHTS, 101, generator=generator()),
    "torchdata's random": lambda: TorchdataRandomSampler(range(40)),
    "own generators": OwnGenerators,
    "process-wide": ProcessWide,
    "of parts": OfParts,
    "batches": lambda: BatchSampler(RandomSampler(range(40)), 6, drop_last=False),
    "batches of weighted draws": lambda: BatchSampler(
        WeightedRandomSampler(WEIGHTS, 101, generator=generator()), 6, drop_last=True
    ),
}
IN_ORDER = {
    "sequential": lambda: SequentialSampler(range(41)),
    "batches in order": lambda: BatchSampler(SequentialSampler(range(41)), 6, drop_last=False),
    "a list": lambda: [5, 3, 9, 1],
}
BY_EPOCH = {
    "by its epoch": ByItsEpoch,
    "batches by their epoch": lambda: BatchSampler(ByItsEpoch(), 4, drop_last=False),
}
ANY = {**MAKE, **IN_ORDER, **BY_EPOCH}


def scramble():
    """Seeds the process-wide generators randomly, as in the ranks of a job."""
    number = random.SystemRandom().randrange(2**32)
    random.seed(number)
    np.random.seed(number)  # noqa: NPY002  # the generator that users draw from
    torch.manual_seed(number)


def shares(name, ranks, epoch=0, **chosen):
    """Returns what each rank reads, each with its own sampler and process-wide generators."""
    read = []
    for rank in range(ranks):
        scramble()
        sampler = distributed(ANY[name](), num_replicas=ranks, rank=rank, **chosen)
        sampler.set_epoch(epoch)
        read.append(list(sampler))
        assert len(sampler) == sampler.num_samples == len(read[-1])
    return read


def dealt_back(read):
    return [item for row in itertools.zip_longest(*read) for item in row]
