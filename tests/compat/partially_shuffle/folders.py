"""Folders of npz files, a dataset and a reader, as users of PartiallyShuffle have them."""

import os
from collections import Counter

import numpy as np

from samplerkit.compat.partially_shuffle import (
    DistributedSamplerViaLocallyShuffle,
    DistributedSamplerViaLocallyShuffleV2,
)
from tests.storage.files.folders import write_npz

VERSIONS = {1: DistributedSamplerViaLocallyShuffle, 2: DistributedSamplerViaLocallyShuffleV2}
EQUAL = [25] * 64
UNEQUAL = [1 + 7 * number % 41 for number in range(64)]


class Dataset:
    """A dataset whose items the sampler has read: it only joins the arrays of the files.

    `file_reader` returns a reader as in the original's README, which here also records the files that it
    read or counted, and its processes.
    """

    def __init__(self, files):
        self.files = [str(file) for file in files]
        self.resets = 0
        self.read: list[str] = []
        self.counted: list[str] = []
        self.processes: set[int] = set()

    def file_reader(self, type):
        assert type == "npz"

        def npz_reader(filename, get_data=False):
            (self.read if get_data else self.counted).append(filename)
            self.processes.add(os.getpid())
            with np.load(filename) as loaded:
                data, length = {}, 0
                for key in loaded:
                    data[key] = loaded[key]
                    length = length or len(data[key])
                    if not get_data:
                        return length
            return data, length

        return npz_reader

    def reset(self):
        self.resets += 1

    def __getitem__(self, item):
        arrays, labels, files = item
        assert labels is None
        assert len(arrays) == len(files)
        return {key: np.concatenate([part[key] for part in arrays]) for key in arrays[0]}

    def collate(self, items):
        """Returns the one item of a batch: a DataLoader with a batch size of 1 needs a collate function."""
        return items[0]


def make_dataset(folder, sizes):
    return Dataset(write_npz(folder, sizes))


def make_sampler(dataset, ranks=1, rank=0, *, version=1, shuffle_buffer=60, batch_size=8, **named):
    reader = named.pop("reader", None) or dataset.file_reader("npz")
    positional = (dataset, reader, ranks, rank, named.pop("shuffle", True), shuffle_buffer, None, batch_size)
    return VERSIONS[version](*positional, **named)


def ids_of(item):
    """The ids of an item, file after file."""
    return [int(id) for arrays in item[0] for id in arrays["id"]]


def items_of(sampler):
    """The ids of each item of an epoch."""
    return [ids_of(item) for item in sampler]


def flat(items):
    return [id for ids in items for id in ids]


def all_ranks(dataset, ranks, epoch=0, **named):
    """Returns the items of ids that each rank reads in an epoch."""
    read = []
    for rank in range(ranks):
        sampler = make_sampler(dataset, ranks, rank, **named)
        sampler.set_epoch(epoch)
        read.append(items_of(sampler))
    return read


def repeats(read, size):
    """Returns how many samples were read twice; checks that each was read once or twice."""
    counts = Counter(id for items in read for id in flat(items))
    assert set(counts) == set(range(size))
    assert set(counts.values()) <= {1, 2}
    return sum(count == 2 for count in counts.values())
