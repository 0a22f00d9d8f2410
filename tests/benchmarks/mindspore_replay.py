"""What replaying MindSpore costs: `python -m tests.benchmarks.mindspore_replay [SAMPLES]`.

For each sampler: seconds for epoch 0, the most memory meanwhile in arrays of n int64, seconds for epoch 5 at
once, and for epoch 6 while epoch 5 is held.
"""

from __future__ import annotations

import sys
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
from torch.utils.data import ConcatDataset

import samplerkit as sk
from samplerkit.compat import mindspore as ds

Case = tuple[Callable[[], sk.Sampler], Any]


def cases(size: int) -> dict[str, Case]:
    """The samplers over `size` samples, by name."""
    weights = np.random.default_rng(0).random(size) + 0.1
    files = sk.Layout([size // 1000] * 1000)
    parts = ConcatDataset([range(size // 4), range(size // 4), range(size // 2)])  # type: ignore[arg-type]
    found: dict[str, Case] = {
        "random": (ds.RandomSampler, size),
        "random, replacement": (lambda: ds.RandomSampler(replacement=True), size),
        "distributed": (lambda: ds.DistributedSampler(8, 3), size),
        "subset": (lambda: ds.SubsetRandomSampler(np.arange(size)), size),
        "weighted": (lambda: ds.WeightedRandomSampler(weights), size),
        "weighted, distinct": (lambda: ds.WeightedRandomSampler(weights, replacement=False), size),
        "random over 3 parts": (ds.RandomSampler, parts),
        "files, replacement": (lambda: ds.RandomSampler(replacement=True), files),
    }
    for mode in ("global", "files", "infile", "partial"):
        found[f"files, random {mode}"] = (lambda mode=mode: ds.RandomSampler(shuffle=mode), files)
        found[f"files, distributed {mode}"] = (
            lambda mode=mode: ds.DistributedSampler(8, 3, shuffle=mode),
            files,
        )
    return found


def seconds(sampler: sk.Sampler, dataset: Any, epoch: int) -> tuple[float, sk.Order]:
    """Makes an order, and tells how long it took."""
    start = time.perf_counter()
    order = sampler.order(dataset, epoch)
    return time.perf_counter() - start, order


def main(size: int = 10**6) -> None:
    """Measures and prints a table."""
    print(f"n = {size}\n{'sampler':28} {'epoch 0':>8} {'arrays':>7} {'epoch 5':>8} {'then 6':>8}")
    for name, (make, dataset) in cases(size).items():
        sampler = make()
        first = seconds(sampler, dataset, 0)[0]
        tracemalloc.start()
        sampler.order(dataset, 0)
        arrays = tracemalloc.get_traced_memory()[1] / 8 / size
        tracemalloc.stop()
        fifth, held = seconds(sampler, dataset, 5)
        sixth = seconds(sampler, dataset, 6)[0]
        print(f"{name:28} {first:7.2f}s {arrays:7.1f} {fifth:7.2f}s {sixth:7.2f}s")
        del held


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
