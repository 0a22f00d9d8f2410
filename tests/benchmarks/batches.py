"""Batches of samples of different lengths: padding, how ranks differ, who meets whom.

Run it with `python -m tests.benchmarks.batches [--samples 1000000]`. It prints Markdown. Efficiency is real
tokens over padded ones, fill is real tokens over batches times the budget. Imbalance is what all steps cost
by their most expensive rank, over what they cost by the mean rank: in padded tokens, and in their squares,
as attention costs. Mixing is distinct companions over companions met, of 200 samples in 12 epochs: 1 means
new ones each time. Restore is seconds from a state in the middle of an epoch to the next batch, in a process
that has the lengths and the table of an earlier start.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import samplerkit as sk
from samplerkit.batches.plan import BatchPlan
from samplerkit.order.typing import Ids
from tests.benchmarks.report import print_header, print_row
from tests.benchmarks.timing import timed

BUDGET = 32_768
BATCH_SIZE = 64
EPOCHS = 12
RANKS = (8, 64)
COLUMNS = (
    "rule",
    "efficiency",
    "fill",
    "over budget",
    "padded 8 / 64",
    "attention 8 / 64",
    "mixing",
    "ns",
    "restore s",
)
PROBES = 200

Rule = Callable[[int], tuple[Ids, Ids]]
"""Gives the ids of an epoch, batch after batch, and the edges of the batches."""


def text(generator: np.random.Generator, count: int) -> Ids:
    """Web text in tokens, as in C4."""
    return np.clip(generator.lognormal(5.65, 1.02, count), 8, 4096).astype(np.int64)


def speech(generator: np.random.Generator, count: int) -> Ids:
    """Read speech in frames."""
    lengths = np.where(
        generator.random(count) < 0.68,
        generator.normal(1470, 120, count),
        generator.uniform(150, 1500, count),
    )
    return np.clip(lengths, 130, 3500).astype(np.int64)


def documents(generator: np.random.Generator, count: int) -> Ids:
    """Documents with a heavy tail, cut at the budget."""
    lengths = np.where(
        generator.random(count) < 0.9,
        generator.lognormal(6.1, 1.1, count),
        1500 * (1 + generator.pareto(1.15, count)),
    )
    return np.clip(lengths, 10, BUDGET).astype(np.int64)


def chats(generator: np.random.Generator, count: int) -> Ids:
    """Three kinds of samples that hardly meet: one-line answers, conversations, pasted files."""
    kind = generator.choice(3, count, p=[0.55, 0.35, 0.1])
    lengths = np.choose(
        kind,
        [
            generator.geometric(0.04, count),
            generator.gamma(4.0, 220.0, count),
            generator.normal(6000, 900, count),
        ],
    )
    return np.clip(lengths, 2, 8192).astype(np.int64)


OURS: dict[str, dict[str, Any]] = {
    "whole set, as by default": {},
    "whole set, pool=16": {"pool": 16},
    "whole set, pool=4": {"pool": 4},
    "whole set, waste=.02, pool=16": {"waste": 0.02, "pool": 16},
    "windows of 65,536": {"window": 65_536},
    "windows of 16,384": {"window": 16_384},
}
LENGTHS = {"text": text, "speech": speech, "documents": documents, "chats": chats}


def random_batches(lengths: Ids) -> Rule:
    """Batches of one size of a shuffled set."""
    return lambda epoch: (np.random.default_rng(epoch).permutation(lengths.size), _even(lengths.size))


def ours(lengths: Ids, **arguments: Any) -> Rule:
    """The plans of a recipe."""
    recipe = sk.TokenBatches(BUDGET, lengths=lengths, abreast=64, **arguments)
    plans = recipe.over(sk.RandomSampler(seed=7), lengths.size)

    def made(epoch: int) -> tuple[Ids, Ids]:
        plan = plans.plan(epoch)
        parts = [plan.samples(np.arange(at, min(at + 1024, len(plan)))) for at in range(0, len(plan), 1024)]
        sizes = np.concatenate([np.diff(part.edges) for part in parts])
        return np.concatenate([part.ids for part in parts]), np.append(0, np.cumsum(sizes))

    return made


def _even(count: int) -> Ids:
    return np.append(np.arange(0, count, BATCH_SIZE), count)


def imbalance(costs: Ids, ranks: int) -> float:
    """Gives what whole steps cost by their most expensive rank, over what they cost by the mean one."""
    steps = costs[: costs.size // ranks * ranks].reshape(-1, ranks).astype(np.float64)
    return float(steps.max(axis=1).sum() / steps.mean(axis=1).sum())


def mixing(rule: Rule, size: int) -> float:
    """Gives distinct companions over companions met."""
    probes = np.random.default_rng(1).choice(size, PROBES, replace=False)
    met: list[list[Ids]] = [[] for _ in probes]
    for epoch in range(EPOCHS):
        ids, edges = rule(epoch)
        where = np.empty(size, dtype=np.int64)
        where[ids] = np.arange(size)
        for number, place in enumerate(where[probes].tolist()):
            batch = int(np.searchsorted(edges, place, side="right")) - 1
            companions = ids[edges[batch] : edges[batch + 1]]
            met[number].append(companions[companions != probes[number]])
    parts = [np.concatenate(several) for several in met]
    return float(np.mean([np.unique(part).size / part.size for part in parts if part.size]))


def print_measured(name: str, rule: Rule, lengths: Ids, restore: float = float("nan")) -> None:
    """Prints the row of a rule."""
    (ids, edges), used = timed(lambda: rule(0))
    assert np.array_equal(np.sort(ids), np.arange(lengths.size)), name
    counts = np.diff(edges)
    longest = np.maximum.reduceat(lengths[ids], edges[:-1])
    padded = counts * longest
    total = int(lengths.sum())
    imbalances = [
        " / ".join(f"{imbalance(cost, ranks):.3f}" for ranks in RANKS) for cost in (padded, padded * longest)
    ]
    print_row(
        name,
        f"{total / int(padded.sum()):.3f}",
        f"{total / (counts.size * BUDGET):.3f}",
        f"{int((padded > BUDGET).sum()):,} of {counts.size:,}",
        *imbalances,
        f"{mixing(rule, lengths.size):.3f}",
        f"{used.clock / lengths.size * 1e9:.0f}",
        f"{restore:.3f}",
    )


def restore_seconds(arguments: dict[str, Any], lengths: Ids, folder: Path) -> float:
    """Gives the seconds from a state of a recipe of ours to the batch in the middle of an epoch."""
    np.save(folder / "lengths.npy", lengths)

    def plan(known: tuple[int, int] = (0, 0)) -> BatchPlan:
        recipe = sk.TokenBatches(BUDGET, lengths=folder / "lengths.npy", abreast=64, **arguments)
        return recipe.over(sk.RandomSampler(seed=7), lengths.size, folder=folder / "kept").plan(3, known)

    saved = plan()
    middle = len(saved) // 2
    known = saved.window_of(middle)
    restored, used = timed(lambda: plan(known)[middle])
    assert np.array_equal(restored, saved[middle])
    return used.clock


def main() -> None:
    """Prints a table for each distribution of lengths."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=100_000)
    parser.add_argument("--lengths", choices=LENGTHS, nargs="*", default=list(LENGTHS))
    arguments = parser.parse_args()
    for distribution in arguments.lengths:
        lengths = LENGTHS[distribution](np.random.default_rng(0), arguments.samples)
        print(f"\n{distribution}, {lengths.size:,} samples, budget {BUDGET:,} tokens, abreast 64\n")
        print_header(*COLUMNS)
        print_measured(f"random, {BATCH_SIZE} samples", random_batches(lengths), lengths)
        for title, chosen in OURS.items():
            with tempfile.TemporaryDirectory() as folder:
                restore = restore_seconds(chosen, lengths, Path(folder))
            print_measured(f"samplerkit, {title}", ours(lengths, **chosen), lengths, restore)


if __name__ == "__main__":
    main()
