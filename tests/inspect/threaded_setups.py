"""Setups with threads: with one mistake each, named by the code of its finding, and without."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import torch

import samplerkit as sk
from tests.inspect.setups import ROWS, Epochs, of_eight, ours


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


def drawn_by_position():
    return sk.draw_rng().random()


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
    "threads that draw by positions": lambda: in_threads(Noisy(drawn_by_position)),
    "threads with a file each": lambda: in_threads(CopiedLines()),
    "threads over files": lambda: in_threads(of_eight(8)),
    "processes that draw": lambda: ours(sk.RandomSampler(), Flipped(0), num_workers=2),
}
