"""Every kind of loader that a device loader is put around, over a few numbers; which threads load."""

import threading

import numpy as np
import torch
from torch.utils.data import DataLoader, IterableDataset
from torchdata.stateful_dataloader import StatefulDataLoader

import samplerkit as sk
from samplerkit.loading.device.loader import DeviceLoader

SIZE, BATCH = 23, 3
BATCHES = 8


class Shuffled(torch.utils.data.Sampler):
    """As torch's distributed sampler: another order for each epoch that is set."""

    def __init__(self):
        self.epoch = 0

    def __len__(self):
        return SIZE

    def __iter__(self):
        yield from np.random.default_rng(self.epoch).permutation(SIZE).tolist()

    def set_epoch(self, epoch):
        self.epoch = epoch


class Stream(IterableDataset):
    """Has no length and no state."""

    def __iter__(self):
        return iter(range(SIZE))


class StatefulStream(IterableDataset):
    """Resumes from its state."""

    def __init__(self):
        self.at = 0

    def __iter__(self):
        while self.at < SIZE:
            self.at += 1
            yield self.at - 1
        self.at = 0

    def state_dict(self):
        return {"at": self.at}

    def load_state_dict(self, state):
        self.at = state["at"]


def epoch_order(epoch):
    return np.random.default_rng(epoch).permutation(SIZE).tolist()


def read(loader):
    return [sample for batch in loader for sample in batch.tolist()]


def ours(**options):
    return sk.Loader(range(SIZE), sk.RandomSampler(seed=5), batch_size=BATCH, **options)


def plain(**options):
    return DataLoader(range(SIZE), BATCH, sampler=Shuffled(), **options)


KINDS = {
    "samplerkit's loader": ours,
    "samplerkit's loader with workers": lambda: ours(num_workers=2, persistent_workers=True),
    "a plain loader": lambda: DataLoader(range(SIZE), BATCH),
    "a plain loader over a stream": lambda: DataLoader(Stream(), BATCH),
    "a plain loader with samplerkit's sampler": lambda: DataLoader(
        range(SIZE), BATCH, sampler=sk.TorchSampler(sk.RandomSampler(seed=5), range(SIZE))
    ),
    "torchdata's loader": lambda: StatefulDataLoader(range(SIZE), BATCH),
    "torchdata's loader with workers": lambda: StatefulDataLoader(range(SIZE), BATCH, num_workers=2),
    "torchdata's loader over a stateful stream": lambda: StatefulDataLoader(StatefulStream(), BATCH),
    "torchdata's loader with samplerkit's sampler": lambda: StatefulDataLoader(
        range(SIZE), BATCH, sampler=sk.TorchSampler(sk.RandomSampler(seed=5), range(SIZE))
    ),
    "a list": lambda: list(torch.arange(SIZE).split(BATCH)),
}

SHUFFLING = {name for name in KINDS if "samplerkit" in name}


def wrap(kind, **options):
    return DeviceLoader(KINDS[kind](), "cpu", **options)


def loading_threads():
    """The names of the loading threads that are alive."""
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("samplerkit-device")]
