"""Packs of documents: how dense, how fast, and how many documents are cut.

Run it with `python -m tests.benchmarks.packs`. Targets: the histogram of 10^9 documents packs in at most
.1 s, any pack of a whole set is found in at most .2 ms, a segment costs at most .7 us. Seconds are those of
the processor, the median of several; the first epoch counts, with all tables that it makes.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import samplerkit as sk
from samplerkit.batches.lengths import Histogram
from samplerkit.batches.packs.best_fit import Fit
from samplerkit.batches.packs.pack_plan import PackedSet
from samplerkit.batches.plan import BatchPlan
from samplerkit.order.typing import Ids
from tests.benchmarks import batches
from tests.benchmarks.batches import chats, text
from tests.benchmarks.report import print_header, print_row
from tests.benchmarks.timing import timed

OURS: dict[str, dict[str, Any]] = {
    "whole set": {},
    "whole set, length_multiple=8": {"length_multiple": 8},
    "windows of 65,536": {"window": 65_536},
}
_REPEATS = 5
_AT_ONCE = 512


documents = partial(batches.documents, longest=100_000)
LENGTHS = {"documents": documents, "text": text, "chats": chats}


def clocked(work: Callable[[], Any], repeats: int = _REPEATS) -> tuple[Any, float]:
    """What some work gives, and the median of its seconds of the processor."""
    found = [timed(work) for _ in range(repeats)]
    return found[-1][0], float(np.median([used.processor for _, used in found]))


def read(plan: BatchPlan) -> tuple[int, int]:
    """Looks at all packs: how many segments there are, and how many documents are cut."""
    segments = cut = 0
    begin = 0
    while plan.has(begin):
        # As a loop reads: nothing is looked at twice to find out how many packs there are.
        end = begin + _AT_ONCE
        while not plan.has(end - 1):
            end -= 1
        parts = plan.samples(np.arange(begin, end)).segments
        segments += len(parts)
        cut += int((parts.is_last & (parts.starts > 0)).sum())
        begin = end
    return segments, cut


def print_ours(title: str, lengths: Ids, seq_len: int, arguments: dict[str, Any]) -> None:
    """Prints the row of a recipe of ours."""
    recipe = sk.PackBatches(seq_len, lengths=lengths, abreast=8, **arguments)
    sampler = sk.RandomSampler(seed=7)
    plans, start = clocked(lambda: recipe.over(sampler, lengths.size))
    (segments, cut), seconds = clocked(lambda: read(plans.plan(0)), 3)
    plan = plans.plan(0)
    numbers = np.random.default_rng(1).integers(0, len(plan), 400).tolist()
    each = (
        [clocked(lambda number=number: plan[number], 1)[1] for number in numbers] if not plan.window else []
    )
    print_row(
        f"samplerkit, {title}",
        f"{len(plan):,}",
        f"{int(lengths.sum()) / (len(plan) * seq_len):.5f}",
        f"{100 * cut / lengths.size:.1f} %",
        f"{(start + seconds) / lengths.size * 1e9:,.0f}",
        f"{seconds / segments * 1e9:,.0f}",
        f"{np.median(each) * 1e6:.0f}" if each else "-",
    )


def main() -> None:
    """Prints the time of a large histogram, and a table for each distribution of lengths."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=200_000)
    parser.add_argument("--seq-len", type=int, default=8192)
    parser.add_argument("--lengths", choices=LENGTHS, nargs="*", default=["documents"])
    arguments = parser.parse_args()
    seq_len = arguments.seq_len
    drawn = documents(np.random.default_rng(0), 4_000_000)
    values, counts = np.unique(drawn, return_counts=True)
    histogram = Histogram(values[::-1].copy(), counts[::-1] * 250, "")
    packed, seconds = clocked(lambda: PackedSet(histogram, Fit(seq_len, 1, "split")))
    print(f"the histogram of {histogram.total:,} documents: {packed.num_packs:,} packs in {seconds:.3f} s")
    for distribution in arguments.lengths:
        lengths = LENGTHS[distribution](np.random.default_rng(0), arguments.samples)
        print(f"\n{distribution}, {lengths.size:,} documents, packs of {seq_len:,} tokens\n")
        costs = "ns a document", "a segment", "us, any pack"
        print_header("", "packs", "density", "documents cut", *costs)
        for title, chosen in OURS.items():
            print_ours(title, lengths, seq_len, chosen)


if __name__ == "__main__":
    main()
