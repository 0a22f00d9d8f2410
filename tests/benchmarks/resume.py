"""Benchmark of resuming: from a loaded state to the ids of the first batch, by order and by position.

Run it with `python -m tests.benchmarks.resume`. It prints Markdown, as it stands in docs/performance.md. No
sample is read: what is measured is the cost of finding the place. Peers are in the benchmark of peers.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

import samplerkit as sk
from tests.benchmarks.report import print_header, print_row, versions
from tests.benchmarks.timing import seconds

SHARDS, SHARD, BATCH = 8, 3, 256
REPEATS = 25
TARGET_MS = 10


def chain() -> sk.Sampler:
    """A distributed sampler over a shuffled range."""
    sampler = sk.DistributedSampler(seed=7)
    child = sk.RandomSampler(seed=8)
    child.add_child(sk.SequentialSampler(start_index=1000))
    sampler.add_child(child)
    return sampler


def files(size: int) -> sk.Layout:
    """Ten thousand files, whose sizes differ by one sample at most."""
    whole, rest = divmod(size, 10_000)
    return sk.Layout(whole + (np.arange(10_000) < rest))


RECIPES: dict[str, tuple[Callable[[], sk.Sampler], Callable[[int], sk.Layout]]] = {
    "GLOBAL": (lambda: sk.DistributedSampler(seed=7), sk.Layout),
    "PARTIAL, 10,000 files": (lambda: sk.DistributedSampler(shuffle="partial", seed=7), files),
    "a chain of three": (chain, sk.Layout),
}
SIZES = {"10^6": 10**6, "10^9": 10**9, "2^40": 2**40}


def milliseconds(work: Callable[[], Any], repeats: int) -> float:
    """The median time of some calls, after two to warm up."""
    work()
    work()
    return statistics.median(seconds(work) for _ in range(repeats)) * 1e3


def ours(recipe: Callable[[], sk.Sampler], layout: sk.Layout, position: int) -> float:
    """Milliseconds of a new loader that loads a state and evaluates its first batch."""
    world = sk.World(SHARDS, SHARD)
    # A batch of one on one rank, so that a step is a position.
    writer = sk.Loader(layout, recipe(), batch_size=1, world=sk.World(1, 0))
    state = json.loads(json.dumps(writer.state_dict(step=position)))
    assert state["position"] == position

    def resume() -> None:
        loader = sk.Loader(layout, recipe(), batch_size=BATCH, world=world)
        loader.load_state_dict(state)
        loader.ids(0)

    return milliseconds(resume, REPEATS)


def report() -> None:
    """Prints a table of our times, by order, size and position."""
    places = {"0": lambda n: 0, "10^3": lambda n: 10**3, "10^6": lambda n: 10**6 if n > 10**6 else None}
    places |= {"n / 2": lambda n: n // 2, "n - 1": lambda n: n - 1}
    print(f"\n### Resuming: a new loader, a loaded state, the ids of the first batch of {BATCH}\n")
    print(f"Median milliseconds of {REPEATS}, shard {SHARD} of {SHARDS}, by the position of the state.\n")
    print_header("order", "n", *places)
    worst = 0.0
    for name, (recipe, layout_of) in RECIPES.items():
        for written, size in SIZES.items():
            layout, row = layout_of(size), []
            for place in places.values():
                # The chain leaves out the first thousand samples.
                order_size = len(recipe().undealt_order(layout))
                position = place(order_size)
                if position is None:
                    row.append("")
                    continue
                taken = ours(recipe, layout, position)
                worst = max(worst, taken)
                row.append(f"{taken:.2f}")
            print_row(name, written, *row)
    print(f"\nThe slowest of them takes {worst:.1f} ms; the target is at most {TARGET_MS} ms.")


def main() -> None:
    """Runs the benchmark."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    torch.set_num_threads(1)
    print(versions("numpy", "torch", "samplerkit"))
    report()


if __name__ == "__main__":
    main()
