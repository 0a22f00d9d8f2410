"""Batches of samples of unlike lengths: what is padded, how ranks differ, and who meets whom.

    python -m tests.benchmarks.batches
    python -m tests.benchmarks.batches --samples 1000000 --ours

Beside samplerkit stand random batches, and our own implementations of two rules that others made
common: that of Hugging Face's `LengthGroupedSampler` (random runs of 50 batches, each sorted by length)
and that of fairseq's `batch_by_size` (all sorted by length, cut by a budget, batches shuffled). They
measure no package.

Efficiency is real tokens over padded ones, fill is real tokens over batches times the budget. Imbalance
is what all steps cost by their most expensive rank, over what they cost by the mean rank: in padded
tokens, and in their squares, as attention costs. Mixing is distinct companions over companions met, of 200
samples in 12 epochs: 1 means new ones each time.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

import samplerkit as sk
from samplerkit.order.typing import Ids
from tests.benchmarks.report import print_header, print_row
from tests.benchmarks.timing import timed

BUDGET = 32_768
BATCH_SIZE = 64
EPOCHS = 12
COLUMNS = "rule", "efficiency", "fill", "over budget", "padded 8 / 64", "attention 8 / 64", "mixing", "ns"
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


def documents(generator: np.random.Generator, count: int, longest: int = BUDGET) -> Ids:
    """Documents with a heavy tail, cut at the budget."""
    lengths = np.where(
        generator.random(count) < 0.9,
        generator.lognormal(6.1, 1.1, count),
        1500 * (1 + generator.pareto(1.15, count)),
    )
    return np.clip(lengths, 10, longest).astype(np.int64)


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


LENGTHS = {"text": text, "speech": speech, "documents": documents, "chats": chats}


@dataclass(frozen=True)
class Row:
    """The figures of a rule.

    Args:
        name: of the rule.
        efficiency: real tokens over padded ones.
        fill: real tokens over batches times the budget.
        over: batches over the budget.
        batches: all batches.
        tokens: the imbalance in padded tokens, at 8 and at 64 ranks.
        attention: the imbalance in their squares.
        mixing: distinct companions over companions.
        nanoseconds: of one epoch, a sample.
    """

    name: str
    efficiency: float
    fill: float
    over: int
    batches: int
    tokens: list[float]
    attention: list[float]
    mixing: float
    nanoseconds: float

    @property
    def cells(self) -> tuple[str, ...]:
        """Those of a table."""
        over = f"{self.over:,} of {self.batches:,}" if self.over else "0"
        pairs = (" / ".join(f"{one:.3f}" for one in both) for both in (self.tokens, self.attention))
        shares = f"{self.efficiency:.3f}", f"{self.fill:.3f}"
        return self.name, *shares, over, *pairs, f"{self.mixing:.3f}", f"{self.nanoseconds:.0f}"


def random_batches(lengths: Ids) -> Rule:
    """Batches of one size of a shuffled set."""
    return lambda epoch: (np.random.default_rng(epoch).permutation(lengths.size), _even(lengths.size))


def length_grouped(lengths: Ids) -> Rule:
    """The rule of Hugging Face's LengthGroupedSampler: sorted within random runs of up to 50 batches."""

    def made(epoch: int) -> tuple[Ids, Ids]:
        shuffled = np.random.default_rng(epoch).permutation(lengths.size)
        run = BATCH_SIZE * max(1, min(lengths.size // (BATCH_SIZE * 4), 50))
        keys = (-lengths[shuffled], np.arange(lengths.size) // run)
        ids = shuffled[np.lexsort(keys)]
        # The longest of all comes first, so that a lack of memory shows at once.
        longest = int(np.argmax(lengths[ids]))
        ids[[0, longest]] = ids[[longest, 0]]
        return ids, _even(lengths.size)

    return made


def sorted_budget(lengths: Ids, multiple: int = 8) -> Rule:
    """The rule of fairseq's batch_by_size: sorted, cut where the budget is full, batches shuffled."""

    def made(epoch: int) -> tuple[Ids, Ids]:
        generator = np.random.default_rng(epoch)
        shuffled = generator.permutation(lengths.size)
        ids = shuffled[np.argsort(lengths[shuffled], kind="stable")]
        batches = list(_cut_by_budget(ids, lengths[ids].tolist(), multiple))
        dealt = [batches[number] for number in generator.permutation(len(batches))]
        return np.concatenate(dealt), np.append(0, np.cumsum([batch.size for batch in dealt]))

    return made


def _cut_by_budget(ids: Ids, ascending: list[int], multiple: int) -> Iterator[Ids]:
    begin = 0
    while begin < len(ascending):
        end = begin
        while end < len(ascending) and (end + 1 - begin) * ascending[end] <= BUDGET:
            end += 1
        count = end - begin
        if count > multiple and end < len(ascending):
            count -= count % multiple
        yield ids[begin : begin + count]
        begin += count


def ours(lengths: Ids, **arguments: object) -> Rule:
    """The plans of a recipe."""
    recipe = sk.TokenBatches(BUDGET, lengths=lengths, abreast=64, **arguments)  # type: ignore[arg-type]
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


def measured(name: str, rule: Rule, lengths: Ids) -> Row:
    """Measures a rule."""
    (ids, edges), used = timed(lambda: rule(0))
    assert np.array_equal(np.sort(ids), np.arange(lengths.size)), name
    counts = np.diff(edges)
    longest = np.maximum.reduceat(lengths[ids], edges[:-1])
    padded = counts * longest
    total = int(lengths.sum())
    return Row(
        name,
        total / int(padded.sum()),
        total / (counts.size * BUDGET),
        int((padded > BUDGET).sum()),
        counts.size,
        [imbalance(padded, ranks) for ranks in (8, 64)],
        [imbalance(padded * longest, ranks) for ranks in (8, 64)],
        mixing(rule, lengths.size),
        used.clock / lengths.size * 1e9,
    )


def rules(lengths: Ids, *, only_ours: bool) -> dict[str, Rule]:
    """The rules by name."""
    others: dict[str, Rule] = {
        f"random, {BATCH_SIZE} samples": random_batches(lengths),
        "rule of LengthGroupedSampler (ours)": length_grouped(lengths),
        "rule of fairseq, multiple 8 (ours)": sorted_budget(lengths),
    }
    return {
        **({} if only_ours else others),
        "whole set, as by default": ours(lengths),
        "whole set, pool=16": ours(lengths, pool=16),
        "whole set, pool=4": ours(lengths, pool=4),
        "whole set, waste=.02, pool=16": ours(lengths, waste=0.02, pool=16),
        "windows of 65,536": ours(lengths, window=65_536),
        "windows of 16,384": ours(lengths, window=16_384),
    }


def main() -> None:
    """Prints a table for each distribution of lengths."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--samples", type=int, default=100_000)
    parser.add_argument("--lengths", choices=LENGTHS, nargs="*", default=list(LENGTHS))
    parser.add_argument("--ours", action="store_true", help="leave the other rules out")
    arguments = parser.parse_args()
    for name in arguments.lengths:
        lengths = LENGTHS[name](np.random.default_rng(0), arguments.samples)
        print(f"\n{name}, {lengths.size:,} samples, budget {BUDGET:,} tokens, abreast 64\n")
        print_header(*COLUMNS)
        for title, rule in rules(lengths, only_ours=arguments.ours).items():
            print_row(*measured(title, rule, lengths).cells)


if __name__ == "__main__":
    main()
