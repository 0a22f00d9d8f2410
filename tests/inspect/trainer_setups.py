"""Trainers with the attributes that the doctor reads; tests/trainers/test_check.py has the real ones."""

from __future__ import annotations

from types import SimpleNamespace

from torch.utils.data import BatchSampler, DataLoader, SequentialSampler

import samplerkit as sk
from tests.inspect.setups import FOUR, ROWS, bridged, in_batches, ours, tokens


def of_transformers(loader, *, ignore_data_skip=False):
    arguments = SimpleNamespace(ignore_data_skip=ignore_data_skip)
    return SimpleNamespace(args=arguments, get_train_dataloader=lambda: loader)


def of_composer(loader, *, spin_dataloaders=True):
    return SimpleNamespace(spin_dataloaders=spin_dataloaders, state=SimpleNamespace(train_dataloader=loader))


def of_lightning(loader):
    return SimpleNamespace(fit_loop=None, train_dataloader=loader)


def dispatched(sampler):
    """A loader with the attributes of one that Accelerate makes with `dispatch_batches=True`."""
    loader = DataLoader(ROWS, batch_sampler=BatchSampler(sampler, 8, drop_last=False))
    loader.slice_fn, loader.state = None, SimpleNamespace(num_processes=4)
    return loader


WINDOWS = {"pool": 1, "window": 100}

PLANTED_IN_TRAINERS = {
    "double-sharding: a dispatcher over a sampler that deals": lambda: dispatched(
        sk.TorchSampler(None, ROWS, FOUR)
    ),
    "skipped-twice: a Loader in a Trainer that skips": lambda: of_transformers(ours(sk.RandomSampler())),
    "skipped-twice: the bridge in a Trainer that skips": lambda: of_transformers(bridged(sk.RandomSampler())),
    "skipped-twice: a Loader in a Composer that skips": lambda: of_composer(ours(sk.RandomSampler())),
    "batches-counted: windows in a Trainer that counts": lambda: of_transformers(
        in_batches(tokens(**WINDOWS)), ignore_data_skip=True
    ),
    "batches-counted: windows in Lightning": lambda: of_lightning(in_batches(tokens(**WINDOWS))),
    "reads-everything: a Loader with a world of one rank": lambda: sk.Loader(
        ROWS, sk.RandomSampler(seed=7), batch_size=8, world=sk.World(1, 0)
    ),
}

HEALTHY_IN_TRAINERS = {
    "a dispatcher that deals alone": lambda: dispatched(SequentialSampler(ROWS)),
    "a Loader in a Trainer that leaves skipping to it": lambda: of_transformers(
        ours(sk.RandomSampler(seed=7)), ignore_data_skip=True
    ),
    "a Loader in a Composer that leaves skipping to it": lambda: of_composer(
        ours(sk.RandomSampler(seed=7)), spin_dataloaders=False
    ),
    "windows in a Composer, which counts nothing": lambda: of_composer(
        in_batches(tokens(**WINDOWS)), spin_dataloaders=False
    ),
    "a plan over the whole set in Lightning": lambda: of_lightning(in_batches(tokens())),
}
