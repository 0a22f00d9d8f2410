"""Loaders, samplers and datasets that the doctor checks; those in threads and in trainers by name."""

import functools
import os
import random
import tempfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    DistributedSampler,
    IterableDataset,
    SequentialSampler,
    get_worker_info,
)

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

    def __init__(self, fetch="ranges"):
        self.layout = sk.Layout([100] * 16)
        if fetch is not None:  # only shards can be read in two ways
            self.fetch = fetch

    def __len__(self):
        return 1600

    def shard_bytes(self):
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


def in_packs(seq_len, lengths=TOKENS, **more):
    return in_batches(sk.PackBatches(seq_len, lengths=lengths, **more))


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


class Lines(Epochs):
    """Lines of an open file: each read moves its position for all threads."""

    def __init__(self):
        super().__init__(0)
        self.lines = Path(__file__).open(encoding="utf-8")  # noqa: SIM115  # as in users' datasets

    def __del__(self):
        self.lines.close()


class CopiedLines(Lines):
    """Each thread has a file of its own."""

    def copy_for_thread(self):
        return CopiedLines()


class Noisy(Epochs):
    """Draws from a generator of the process."""

    def __init__(self, draw):
        super().__init__(0)
        self.draw = draw

    def __getitem__(self, index):
        return index, self.draw()


class Flipped(Epochs):
    """Draws in its own code while it is read."""

    def __getitem__(self, index):
        return index, np.random.rand()  # noqa: NPY002  # the mistake


def drawn():
    return torch.rand(2)


def in_threads(dataset):
    return ours(sk.RandomSampler(), dataset, num_workers=2, workers="threads")


PLANTED_IN_THREADS = {
    "not-thread-safe: an open file that threads share": lambda: in_threads(Lines()),
    "not-thread-safe: one in a part of a tree": lambda: in_threads(
        sk.TreeDataset({"web": Lines(), "more": ROWS})
    ),
    "generator-shared: a generator of the process in threads": lambda: in_threads(Flipped(0)),
    "generator-shared: a transform that draws in threads": lambda: in_threads(Noisy(random.random)),
    "generator-shared: one that draws from torch": lambda: in_threads(Noisy(drawn)),
    "generator-shared: the dataset's own generator in threads": lambda: in_threads(
        Noisy(np.random.default_rng(7).random)
    ),
}

HEALTHY_IN_THREADS = {
    "threads that draw by positions": lambda: in_threads(Noisy(lambda: sk.draw_rng().random())),
    "threads with a file each": lambda: in_threads(CopiedLines()),
    "threads over files": lambda: in_threads(of_eight(8)),
    "processes that draw": lambda: ours(sk.RandomSampler(), Flipped(0), num_workers=2),
}


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
