"""Loaders, samplers and datasets that the doctor checks."""

from __future__ import annotations

import functools
import os
import random
import tempfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch
from torch.utils.data import DataLoader, DistributedSampler, IterableDataset, get_worker_info

import samplerkit as sk
from samplerkit.compat.partially_shuffle import DistributedSamplerViaLocallyShuffle
from samplerkit.compat.webdataset import WebDataset
from samplerkit.storage.files.dataset import FileDataset

ROWS = range(1000)
FOUR = sk.World(4, 1)


class Epochs:
    """A dataset with an epoch of its own."""

    def __init__(self, epoch):
        self.epoch = epoch

    def __len__(self):
        return 1000

    def __getitem__(self, index):
        return index

    def set_epoch(self, epoch):
        self.epoch = epoch


class Shards:
    """A dataset of remote shards, with the attributes that the doctor reads."""

    is_remote = True

    max_cache_bytes = None

    def __init__(self, fetch="ranges", fails=False):
        self.layout = sk.Layout([100] * 16)
        self.fails = fails
        if fetch is not None:  # only shards can be read in two ways
            self.fetch = fetch

    def __len__(self):
        return 1600

    def shard_bytes(self):
        if self.fails:
            raise sk.DatasetError("https://host/0.tar", "cannot be reached")
        return np.full(16, 5 << 20)


class Stream(IterableDataset):
    """A stream that is not split."""

    def __init__(self, shards=64):
        self.num_shards = shards

    def __iter__(self):
        return iter(range(100))


class SplitStream(Stream):
    """A stream that is split by workers and ranks."""

    def __iter__(self):
        info, rank, world_size = get_worker_info(), 0, 4
        workers = 1 if info is None else info.num_workers
        return iter(range(rank, 100, world_size * workers))


class Dealt(torch.utils.data.Sampler):
    """A user's wrapper that deals the ids of another sampler."""

    def __init__(self, sampler, num_replicas, rank):
        self.sampler, self.num_replicas, self.rank = sampler, num_replicas, rank

    def __iter__(self):
        return iter(list(self.sampler)[self.rank :: self.num_replicas])

    def __len__(self):
        return len(self.sampler) // self.num_replicas


class FromNumpy(torch.utils.data.Sampler):
    """A user's sampler that shuffles by numpy's process-wide state, or by its own generator."""

    def __init__(self, generator=None):
        self.generator_of_numpy = generator

    def __iter__(self):
        own = self.generator_of_numpy
        return iter((np.random if own is None else np.random.default_rng(own)).permutation(100).tolist())

    def __len__(self):
        return 100


class Advancing(FromNumpy):
    """A user's sampler that advances the epoch by itself, as accelerate's does."""

    epoch = 0

    def __iter__(self):
        yield from np.random.default_rng(self.epoch).permutation(100).tolist()
        self.set_epoch(self.epoch + 1)

    def set_epoch(self, epoch):
        self.epoch = epoch


class Endless(torch.utils.data.Sampler):
    """A sampler without a length."""

    def __iter__(self):
        return iter(range(100))


class Unsized(Endless):
    """A sampler whose `__len__` raises, the other way that torch documents."""

    def __len__(self):
        raise NotImplementedError


class DrawsFromPython(sk.Sampler):
    """A user's samplerkit sampler that uses Python's process-wide state."""

    def draw(self, layout, context):
        return random.sample(range(len(layout)), len(layout))


def of_torch(rank=1, rows=ROWS, epoch=1, ranks=4, **options):
    sampler = DistributedSampler(rows, num_replicas=ranks, rank=rank, **options)
    sampler.set_epoch(epoch)
    return sampler


def ours(sampler, dataset=ROWS, world=FOUR, batch_size=8, **options):
    return sk.Loader(dataset, sampler, batch_size=batch_size, world=world, **options)


def of_files(sizes, world=FOUR, workers=0, **options):
    return ours(sk.RandomSampler(**options), sk.Layout(sizes), world, num_workers=workers)


def of_eight(max_files=4):
    return FileDataset([f"{number}.npz" for number in range(8)], "npz", [100] * 8, max_files=max_files)


def of_eight_shards(max_shards):
    urls = [f"https://nowhere.example/{number}.tar" for number in range(8)]
    return sk.TarDataset(urls, lengths=[100] * 8, max_shards=max_shards, fetch="shards")


def with_list(entries, workers):
    rows = Epochs(0)
    rows.paths = [None] * entries
    return DataLoader(rows, num_workers=workers)


def bridged(sampler, dataset=ROWS, world=FOUR, make=DataLoader, **options):
    return make(dataset, batch_size=8, sampler=sk.TorchSampler(sampler, dataset, world), **options)


def restored():
    loader = bridged(sk.RandomSampler(), world=sk.World(1, 0), num_workers=2)
    state = ours(sk.RandomSampler(), world=sk.World(1, 0)).state_dict(step=3)
    loader.sampler.load_state_dict({**state})
    return loader


CLASSES = np.arange(1000) // 100


def by_class(sampler, **options):
    return ours(sampler, world=sk.World(1, 0), **options)


TOKENS = [1 + number * 7 % 30 for number in range(1000)]


def tokens(budget=240, **more):
    return sk.TokenBatches(budget, **{"lengths": TOKENS, "pool": 4, **more})


def in_batches(recipe, rows=ROWS, sampler=None, **more):
    return sk.Loader(rows, sampler or sk.RandomSampler(seed=7), batches=recipe, world=FOUR, **more)


class Texts:
    """Documents of given lengths."""

    def __init__(self, lengths):
        self.lengths = np.array(lengths)

    def __len__(self):
        return self.lengths.size

    def __getitem__(self, index):
        return np.zeros(self.lengths[index], dtype=np.int64)


def mixed(web, wiki, num_samples=400, **more):
    return sk.MixtureSampler(
        {"web": None, "wiki": None}, num_samples, weights={"web": web, "wiki": wiki}, **more
    )


@functools.cache
def folder():
    """A folder for the files of these loaders, removed when the process ends."""
    return tempfile.TemporaryDirectory()


def windows(*sizes, cut=False, **options):
    """Windows of 100 tokens of files of uint16."""
    place = Path(tempfile.mkdtemp(dir=folder().name))
    for number, size in enumerate(sizes):
        np.save(place / f"{number}.npy", np.zeros(size, np.uint16))
        if cut:
            os.truncate(place / f"{number}.npy", size)
    return sk.TokenDataset(str(place / "*.npy"), 100, **options)


def of_drop_in(sampler, rows=ROWS):
    sampler.set_epoch(1)
    return DataLoader(rows, 8, sampler=sampler)


def files_drop_in():
    """A loader whose dataset has no length, and whose epochs advance by themselves."""
    files = [f"{number}.npz" for number in range(8)]
    dataset = SimpleNamespace(files=files)
    sampler = DistributedSamplerViaLocallyShuffle(dataset, "npz", 4, 1, files_len=dict.fromkeys(files, 100))
    return DataLoader(dataset, batch_size=None, sampler=sampler)


def shards_drop_in():
    place = tempfile.mkdtemp(dir=folder().name)
    with sk.TarWriter(f"{place}/%d.tar", samples_per_shard=1) as writer:
        for number in range(8):
            writer.write({"__key__": f"{number}", "txt": "a"})
    return WebDataset(f"{place}/{{0..7}}.tar", cache=place)
