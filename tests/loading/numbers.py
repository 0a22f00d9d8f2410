"""A dataset of numbers, and a loader of it."""

from typing import Any

import samplerkit as sk

WORKERS: dict[str, Any] = {}
"""The workers of a loader of numbers without `num_workers`: `each_worker_kind` sets them for a test."""


class Numbers:
    """Sample i is i, with the epoch that was set."""

    def __init__(self, size):
        self.size = size
        self.epoch = None

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        return index, self.epoch

    def set_epoch(self, epoch):
        self.epoch = epoch


def ids_of(loader):
    return [[index for index, _ in batch] for batch in loader]


def epoch_ids(size, epoch=0, seed=3):
    """The ids of an epoch as a random sampler orders them."""
    return sk.RandomSampler(seed=seed).order(size, epoch)[:].tolist()


def numbers_loader(size=10, **options):
    sampler = options.pop("sampler", sk.RandomSampler(seed=3))
    workers = {} if "num_workers" in options else WORKERS
    return sk.Loader(Numbers(size), sampler, **{"batch_size": 3, "collate_fn": list, **workers, **options})
