"""Batches of real packages beside ours: each runs in an interpreter of its own, over the same lengths.

    python -m venv hf && hf/bin/pip install torch transformers
    python -m venv lhotse && lhotse/bin/pip install torch lhotse urllib3
    python -m tests.benchmarks.batches_peers LengthGroupedSampler=hf/bin/python \
        DynamicBucketingSampler=lhotse/bin/python

The columns are those of `tests.benchmarks.batches`, and the seconds from a state in the middle of an epoch
to the next batch, in a process that has the package, the lengths and (ours) the table of an earlier start.
Where a package deals to ranks by a rule of its own, imbalance is that of its own ranks.
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np

import samplerkit as sk
from samplerkit.order.typing import Ids
from tests.benchmarks.batches import BUDGET, COLUMNS, LENGTHS, imbalance, measured, ours
from tests.benchmarks.batches_of_peer import RANKS, RULES
from tests.benchmarks.report import print_header, print_row
from tests.benchmarks.timing import answer_of, timed

SECONDS = 3600
OURS = {"as by default": {}, "pool=16": {"pool": 16}, "windows of 65,536": {"window": 65_536}}


def of_peer(name: str, python: Path, lengths: Ids, folder: Path) -> tuple[str, ...]:
    """Lets a peer read, and gives the row of what it read."""
    np.save(folder / "lengths.npy", lengths)
    asked = name, folder / "lengths.npy", folder
    try:
        said = answer_of("batches_of_peer", *asked, python=python, timeout=SECONDS)
    except RuntimeError as error:
        return name, f"failed: {error}"

    def rule(epoch: int) -> tuple[Ids, Ids]:
        return _read(folder / f"epoch-{epoch}.npz")

    row = measured(f"{said['package']} {said['version']}, {name}", rule, lengths)
    row = replace(row, nanoseconds=said["seconds"] / lengths.size * 1e9)
    dealt = [folder / f"ranks-{ranks}.npz" for ranks in RANKS]
    if all(path.exists() for path in dealt):
        costs = [_costs(lengths, *_read(path)) for path in dealt]
        pairs = [
            [imbalance(cost[kind], ranks) for cost, ranks in zip(costs, RANKS, strict=True)]
            for kind in (0, 1)
        ]
        row = replace(row, tokens=pairs[0], attention=pairs[1])
        # Over the budget in any of the deals: a rank has one memory, whatever the number of ranks.
        over = max(int((cost[0] > BUDGET).sum()) for cost in costs)
        row = replace(row, over=max(row.over, over))
    return *row.cells, f"{said['restore']:.3f}"


def of_ours(title: str, arguments: dict[str, object], lengths: Ids, folder: Path) -> tuple[str, ...]:
    """Gives the row of a recipe of ours."""
    row = measured(f"samplerkit, {title}", ours(lengths, **arguments), lengths)
    np.save(folder / "lengths.npy", lengths)

    def plan(known: tuple[int, int] = (0, 0)) -> sk.batches.plan.BatchPlan:
        recipe = sk.TokenBatches(BUDGET, lengths=folder / "lengths.npy", abreast=64, **arguments)
        return recipe.over(sk.RandomSampler(seed=7), lengths.size, folder=folder / "kept").plan(3, known)

    saved = plan()
    middle = len(saved) // 2
    known = saved.window_of(middle)
    restored, used = timed(lambda: plan(known)[middle])
    assert np.array_equal(restored, saved[middle])
    return *row.cells, f"{used.clock:.3f}"


def _read(path: Path) -> tuple[Ids, Ids]:
    with np.load(path) as found:
        return found["ids"], found["edges"]


def _costs(lengths: Ids, ids: Ids, edges: Ids) -> tuple[Ids, Ids]:
    """The padded tokens of batches and their squares; 0 for a rank that has none."""
    counts = np.diff(edges)
    longest = np.zeros(counts.size, dtype=np.int64)
    if ids.size:
        longest[counts > 0] = np.maximum.reduceat(lengths[ids], edges[:-1][counts > 0])
    return counts * longest, counts * longest * longest


def main() -> None:
    """Prints a table for each distribution of lengths."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("peers", nargs="*", metavar="RULE=PYTHON", help=f"RULE is one of {', '.join(RULES)}")
    parser.add_argument("--samples", type=int, default=100_000)
    parser.add_argument("--lengths", choices=LENGTHS, nargs="*", default=["text", "chats"])
    arguments = parser.parse_args()
    for distribution in arguments.lengths:
        lengths = LENGTHS[distribution](np.random.default_rng(0), arguments.samples)
        print(f"\n{distribution}, {lengths.size:,} samples, budget {BUDGET:,} tokens, abreast 64\n")
        print_header(*COLUMNS, "restore s")
        for peer in arguments.peers:
            name, _, python = peer.partition("=")
            with tempfile.TemporaryDirectory() as folder:
                # As it was said: an environment's interpreter is a link, which must not be followed.
                print_row(*of_peer(name, Path(python).absolute(), lengths, Path(folder)))
        for title, chosen in OURS.items():
            with tempfile.TemporaryDirectory() as folder:
                print_row(*of_ours(title, chosen, lengths, Path(folder)))


if __name__ == "__main__":
    main()
