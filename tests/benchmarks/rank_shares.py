"""What a rank reads of each source of nine mixtures.

Run it with `python -m tests.benchmarks.rank_shares`: 2 to 256 ranks, three minutes. It prints Markdown, as in
docs/mixtures.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from samplerkit.order.keys import Key
from samplerkit.order.mixing.source_draws import SourceDraws
from samplerkit.order.mixing.weights import thresholds
from samplerkit.order.typing import Ids
from tests.benchmarks.report import print_header, print_row

RANKS = (2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 24, 32, 64, 100, 128, 256)
NINE = {
    "[1, 1]": [1, 1],
    "[3, 1]": [3, 1],
    "[.7, .2, .1]": [0.7, 0.2, 0.1],
    "[.5, .3, .15, .05]": [0.5, 0.3, 0.15, 0.05],
    "[.9, .09, .01]": [0.9, 0.09, 0.01],
    "[.613, .287, .1]": [0.613, 0.287, 0.1],
    "ten by Zipf": [1 / rank for rank in range(1, 11)],
    "[sqrt 2, 1, pi]": [math.sqrt(2), 1, math.pi],
    "64 equal ones": [1] * 64,
}
BATCH = 32
BATCHES = 20_000
DUE = 20
"""Reads of a source that are due to a rank, from which on it counts as unseen when there are none."""


@dataclass(frozen=True)
class Shares:
    """What the ranks of one job read of one mixture.

    Args:
        off: the largest distance of a rank's share from the weight.
        unseen: how many times a rank never reads a source of which `DUE` reads are due.
        variance: of a batch's count of a source, over that of independent draws; the largest of the sources.
        rms: of the distance of a rank's count of a source from its share, in samples, over all batches.
        most: the largest such distance.
    """

    off: float
    unseen: int
    variance: float
    rms: float
    most: float


def drawn(weights: list[float], length: int, lanes: int, seed: int = 0) -> Ids:
    """The source of each position, drawn in so many lanes."""
    rows, lane = np.divmod(np.arange(length), lanes)
    return SourceDraws(Key(seed, 0, 0, "dice")).sources(lane, rows, thresholds(weights))


def shares_of(source: Ids, weights: list[float], ranks: int) -> Shares:
    """Deals positions to ranks like cards, and looks at each rank's batches."""
    dealt = source.reshape(-1, BATCH, ranks)
    due = np.array(weights) / sum(weights)
    off = unseen = variance = squares = most = 0.0
    for number, share in enumerate(due.tolist()):
        counts = np.count_nonzero(dealt == number, axis=1)
        reads = BATCH * len(counts)
        off = max(off, float(np.abs(counts.sum(axis=0) / reads - share).max()))
        unseen += np.count_nonzero(counts.sum(axis=0) == 0) if share * reads >= DUE else 0
        apart = float(np.mean((counts - BATCH * share) ** 2))
        variance = max(variance, apart / (BATCH * share * (1 - share)))
        prefix = np.cumsum(counts, axis=0) - BATCH * share * np.arange(1, len(counts) + 1)[:, None]
        squares = max(squares, float(np.mean(prefix**2)))
        most = max(most, float(np.abs(prefix).max()))
    return Shares(off, int(unseen), variance, math.sqrt(squares), most)


def looked_at(weights: list[float], ranks: int, batches: int = BATCHES) -> dict[str, Shares]:
    """Looks at one mixture on so many ranks: in one lane, and in a lane a rank."""
    length = max(8, batches // ranks) * BATCH * ranks
    sources = {
        "one lane": drawn(weights, length, 1),
        "a lane a rank": drawn(weights, length, ranks),
    }
    return {name: shares_of(source, weights, ranks) for name, source in sources.items()}


def table() -> None:
    """Prints the worst of all ranks of each mixture."""
    figures = "a rank's share is off by", "never seen", "variance of a batch", "a rank's prefix is off, rms"
    print_header("", *figures)
    for title, weights in NINE.items():
        found = [looked_at(weights, ranks) for ranks in RANKS]
        for name in found[0]:
            cells = [one[name] for one in found]
            off, unseen = max(one.off for one in cells), sum(one.unseen for one in cells)
            variance, rms = max(one.variance for one in cells), max(one.rms for one in cells)
            print_row(f"{title}, {name}", f"{off:.3f}", unseen, f"{variance:.2f}", f"{rms:,.1f}")


if __name__ == "__main__":
    table()
