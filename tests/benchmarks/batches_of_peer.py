"""Reads epochs in the batches of a peer, in the peer's own interpreter: what `batches` measures.

    PYTHON -m tests.benchmarks.batches_of_peer RULE LENGTHS.npy FOLDER

It imports numpy and the one peer, nothing of samplerkit. FOLDER gets the ids of each epoch and where its
batches end, once as one process reads them, and once for 8 and for 64 ranks where these read other batches.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from importlib.metadata import version
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np

BUDGET = 32_768
BATCH_SIZE = 64
EPOCHS = 12
RANKS = (8, 64)

Batches = Iterator[list[int]]


class LengthGrouped:
    """`LengthGroupedSampler` as the Trainer makes it: batches of one size, dealt whole to the ranks."""

    package = "transformers"

    def __init__(self, lengths: np.ndarray) -> None:
        self._torch = importlib.import_module("torch")
        self._sampler = importlib.import_module("transformers.trainer_pt_utils").LengthGroupedSampler
        self._lengths = lengths.tolist()

    def epoch(self, epoch: int) -> Batches:
        generator = self._torch.Generator().manual_seed(epoch)
        ids = list(self._sampler(BATCH_SIZE, lengths=self._lengths, generator=generator))
        return (ids[at : at + BATCH_SIZE] for at in range(0, len(ids), BATCH_SIZE))

    def ranks(self, ranks: int) -> list[Batches] | None:
        return None

    def restored(self, batches: int) -> Callable[[], list[int]]:
        # The Trainer draws the epoch's ids again, and lets what was read pass.
        def read() -> list[int]:
            iterator = self.epoch(0)
            for _ in range(batches):
                next(iterator)
            return next(iterator)

        return read


class DynamicBucketing:
    """lhotse's `DynamicBucketingSampler` with 30 buckets; a token is a second of a cut."""

    package = "lhotse"

    def __init__(self, lengths: np.ndarray) -> None:
        warnings.filterwarnings("ignore", category=UserWarning)
        lhotse = importlib.import_module("lhotse")
        self._sampler = importlib.import_module("lhotse.dataset").DynamicBucketingSampler
        self._cuts = lhotse.CutSet.from_cuts(
            lhotse.MonoCut(id=str(number), start=0.0, duration=float(length), channel=0)
            for number, length in enumerate(lengths.tolist())
        )

    def _made(self, rank: int = 0, ranks: int = 1) -> Any:
        return self._sampler(
            self._cuts,
            max_duration=float(BUDGET),
            num_buckets=30,
            shuffle=True,
            seed=0,
            rank=rank,
            world_size=ranks,
        )

    def epoch(self, epoch: int) -> Batches:
        sampler = self._made()
        sampler.set_epoch(epoch)
        return (_ids(batch) for batch in sampler)

    def ranks(self, ranks: int) -> list[Batches] | None:
        return [(_ids(batch) for batch in self._made(rank, ranks)) for rank in range(ranks)]

    def restored(self, batches: int) -> Callable[[], list[int]]:
        sampler = self._made()
        iterator = iter(sampler)
        for _ in range(batches):
            next(iterator)
        state = sampler.state_dict()

        def read() -> list[int]:
            fresh = self._made()
            fresh.load_state_dict(state)
            return _ids(next(iter(fresh)))

        return read


def _ids(batch: Iterable[Any]) -> list[int]:
    # A cut that fills a rank up a second time has another id: `7_dup0`.
    return [int(cut.id.partition("_")[0]) for cut in batch]


RULES = {"LengthGroupedSampler": LengthGrouped, "DynamicBucketingSampler": DynamicBucketing}
"""The rules by name; the environment has the package of one."""


def save(path: Path, batches: list[list[int]]) -> None:
    """Writes the ids of batches, and where each begins and the last one ends."""
    edges = np.append(0, np.cumsum([len(batch) for batch in batches]))
    np.savez(path, ids=np.array([one for batch in batches for one in batch], dtype=np.int64), edges=edges)


def main(name: str, lengths: str, folder: str) -> None:
    """Reads all epochs."""
    rule = RULES[name](np.load(lengths))
    target = Path(folder)
    batches: list[list[int]] = []
    seconds = 0.0
    for epoch in range(EPOCHS):
        begin = time.perf_counter()
        batches = list(rule.epoch(epoch))
        seconds = seconds or time.perf_counter() - begin
        save(target / f"epoch-{epoch}.npz", batches)
    for ranks in RANKS:
        dealt = rule.ranks(ranks)
        if dealt is not None:
            # Step by step, as the ranks stand side by side.
            save(
                target / f"ranks-{ranks}.npz",
                [batch for step in zip_longest(*dealt, fillvalue=[]) for batch in step],
            )
    read = rule.restored(len(batches) // 2)
    begin = time.perf_counter()
    read()
    restore = time.perf_counter() - begin
    row = {"package": rule.package, "version": version(rule.package), "seconds": seconds, "restore": restore}
    print(json.dumps(row))


if __name__ == "__main__":
    main(*sys.argv[1:])
