"""Benchmark of the core against torch, in one run: speed, DataLoader, first index and seek by n.

Run it with `python -m tests.benchmarks.core`; `--quick` takes a tenth of torch's sizes. It prints Markdown,
as in docs/performance.md. Only ratios count: machines are shared, and times cannot be compared between them.
"""

import argparse
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader
from torch.utils.data import DistributedSampler as TorchDistributedSampler

import samplerkit as sk
from tests.benchmarks.peers.torch_rows import Batches, as_fetched
from tests.benchmarks.timing import in_turns, medians, print_header, print_row, seconds, versions
from tests.chains import under

SHARDS, SHARD, BATCH = 8, 3, 256
READ, SLICE = 1 << 23, 1 << 18
"""How many ids of each order are read for its speed, and how many at once."""


class Numbers(Batches):
    """A dataset of `size` numbers that hands out whole batches."""

    def __init__(self, size: int) -> None:
        self.rows = torch.arange(size)


def alternated(works: dict[str, Callable[[], Any]], repeats: int) -> dict[str, float]:
    """The median seconds of each work after one warm-up."""
    for work in works.values():
        work()
    return medians(in_turns({name: partial(seconds, work) for name, work in works.items()}, repeats))


def our_order(size: int) -> sk.Order:
    """GLOBAL, shard 3 of 8."""
    return sk.DistributedSampler(SHARDS, SHARD, seed=7).order(size)


def orders() -> dict[str, sk.Order]:
    """The measured orders by name: sizes, shuffle modes, and other samplers."""
    sizes = {"10^9": 10**9, "2^29 + 1": 2**29 + 1, "2^30 + 1": 2**30 + 1, "2^40": 2**40}
    by_mode = {f"GLOBAL, n = {name}": sk.RandomSampler(seed=7).order(size) for name, size in sizes.items()}
    layout = sk.Layout([100_000] * 10_000)
    for mode in sk.Shuffle:
        order = sk.DistributedSampler(SHARDS, SHARD, shuffle=mode).order(layout)
        by_mode[f"{mode.value.upper()}, shard {SHARD} of {SHARDS}, n = 10^9 in 10,000 files"] = order
    draws = np.random.default_rng(7)
    weights, labels = draws.random(1_000_000), draws.integers(0, 1000, 1_000_000)
    parts = {"web": 7, "code": 2, "books": 1}
    tree = sk.Layout.tree({name: share * 10**8 for name, share in parts.items()})
    subset = under(sk.SubsetSampler(np.arange(0, 10**7, 2)), sk.RandomSampler(seed=2))
    chain = under(sk.DistributedSampler(SHARDS, SHARD, seed=1), subset)
    folds = under(sk.RandomSampler(seed=1), sk.FoldSampler(10, 0))
    mixture = sk.MixtureSampler({name: sk.RandomSampler(seed=3) for name in parts}, weights=parts)
    return {
        **by_mode,
        "with replacement, n = 10^9": sk.RandomSampler(replacement=True).order(10**9),
        "weighted, 10^6 weights": sk.WeightedRandomSampler(weights, READ).order(1_000_000),
        "weighted without replacement, 10^6 weights": sk.WeightedRandomSampler(
            weights, replacement=False
        ).order(1_000_000),
        "PK, 1,000 classes of about 1,000": sk.PKSampler(1000, shuffle=True, labels=labels).order(1_000_000),
        "mixture of three, n = 10^9": mixture.order(tree),
        f"a chain of three, shard {SHARD} of {SHARDS}, n = 10^7": chain.order(10**7),
        "GLOBAL over nine folds of ten, n = 10^7": folds.order(10**7),
    }


def report_speed(torch_size: int) -> None:
    """Prints ids a second, next to those of torch and of numpy without an order."""
    by_name = orders()
    table = np.random.default_rng(7).permutation(READ)

    def read(order: sk.Order) -> Callable[[], Any]:
        count = min(len(order), READ)
        start = min(len(order) // 3, len(order) - count)
        return lambda: [
            order[p : min(p + SLICE, start + count)].size for p in range(start, start + count, SLICE)
        ]

    def per_id(name: str) -> int:
        return torch_size if name == "torch" else min(len(by_name[name]), READ) if name in by_name else READ

    works: dict[str, Callable[[], Any]] = {
        "torch": lambda: torch.randperm(torch_size),
        "an arange": lambda: [np.arange(p, p + SLICE).size for p in range(0, READ, SLICE)],
        "a gather": lambda: [table[table[p : p + SLICE]].size for p in range(0, READ, SLICE)],
    } | {name: read(order) for name, order in by_name.items()}
    rates = {name: per_id(name) / taken for name, taken in alternated(works, 5).items()}
    names = {
        "torch": f"`torch.randperm({torch_size:,})`, whole",
        "an arange": "numpy: an `arange`, the least that ids can cost",
        "a gather": f"numpy: a gather from a permutation of {READ:,}, held as a list",
    }
    print(f"\n### Ids per second, one thread, {READ:,} positions in slices of {SLICE:,}\n")
    print_header("order", "M ids/s", "times `torch.randperm`", "of an arange", "of a gather")
    for name, rate in rates.items():
        torchs, arange, gather = (rate / rates[other] for other in ("torch", "an arange", "a gather"))
        shown = f"{rate / 1e6:.1f}", f"{torchs:.1f}", f"{arange:.3f}", f"{gather:.2f}"
        print_row(names.get(name, name), *shown)


def report_loader() -> None:
    size = 1_000_000
    dataset = Numbers(size)

    def epoch(loader: Any) -> Callable[[], Any]:
        return lambda: sum(1 for _ in loader)

    sampler = sk.TorchSampler(sk.DistributedSampler(SHARDS, SHARD, seed=7), dataset)
    plain = sk.TorchSampler(sk.DistributedSampler(SHARDS, SHARD, seed=7), dataset)
    torch_sampler = TorchDistributedSampler(dataset, SHARDS, SHARD, seed=7)
    taken = alternated(
        {
            "torch's DistributedSampler": epoch(
                DataLoader(dataset, BATCH, sampler=torch_sampler, collate_fn=as_fetched)
            ),
            "TorchBatchSampler": epoch(
                DataLoader(dataset, batch_sampler=sk.TorchBatchSampler(sampler, BATCH), collate_fn=as_fetched)
            ),
            "TorchSampler": epoch(DataLoader(dataset, BATCH, sampler=plain, collate_fn=as_fetched)),
        },
        9,
    )
    theirs = taken["torch's DistributedSampler"]
    print(
        f"\n### A whole epoch through a DataLoader\n\nn = {size:,}, shard {SHARD} of {SHARDS} "
        f"({size // SHARDS:,} samples), batch {BATCH}, 0 workers, a dataset with `__getitems__`, a collate "
        "function that returns the batch as the dataset built it.\n"
    )
    print_header("sampler", "k samples/s", "times torch")
    for name, rate in taken.items():
        print_row(name, f"{size / SHARDS / rate / 1e3:,.0f}", f"{theirs / rate:.1f}")


def report_curve() -> None:
    print(f"\n### Cost against n, GLOBAL, shard {SHARD} of {SHARDS}, one thread\n")
    print_header("n", "first index", "seek", f"next batch of {BATCH}", "M ids/s")
    for size in (10**4, 10**5, 10**6, 10**7, 10**8, 10**9, 2**32, 10**10, 10**11, 2**40):
        order = our_order(size)
        middle = len(order) // 2
        count = min(len(order) - middle, 1 << 21)
        taken = alternated(
            {
                "first": lambda size=size: our_order(size)[0],  # type: ignore[misc]
                "seek": lambda order=order, middle=middle: order[middle],  # type: ignore[misc]
                "batch": lambda order=order, middle=middle: order[middle : middle + BATCH],  # type: ignore[misc]
                "read": lambda order=order, middle=middle, count=count: [  # type: ignore[misc]
                    order[p : p + 262_144].size for p in range(middle, middle + count, 262_144)
                ],
            },
            9,
        )
        times = (f"{taken[name] * 1e6:.0f} us" for name in ("first", "seek", "batch"))
        print_row(f"{size:,}", *times, f"{count / taken['read'] / 1e6:.1f}")


def main() -> None:
    """Runs the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="torch at n = 10^7 in place of 10^8")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch_size = 10**7 if options.quick else 10**8
    print(versions("numpy", "torch", "samplerkit"))
    report_speed(torch_size)
    report_loader()
    report_curve()


if __name__ == "__main__":
    main()
