"""Benchmark of mixtures: by sources, ids at a time, and who reads.

Run it with `python -m tests.benchmarks.mixtures`. It prints Markdown, as in docs/mixtures.md. Times are
CPU seconds of one thread, the best of several; machines are shared, so ratios are what counts.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import samplerkit as sk
from tests.benchmarks.report import print_header, print_row
from tests.benchmarks.timing import timed

SIZE = 10**7
FROM = 5 * 10**6
LANES = 8


def best(work: Callable[[int], object], count: int, seconds: float = 0.4) -> float:
    """Millions of ids a CPU second, the best of three stretches that go on from one another."""
    rates, at = [], 0
    for _ in range(3):
        begin, done = time.process_time(), 0
        while time.process_time() - begin < seconds / 3:
            work(at)
            at, done = at + 1, done + count
        rates.append(done / (time.process_time() - begin) / 1e6)
    return max(rates)


def orders_of(sources: int) -> dict[str, tuple[sk.Order, int]]:
    """What is measured by name: an order, and the step between the positions of a reader."""
    names = [f"s{number:03}" for number in range(sources)]
    weights = [1 / (number + 1) for number in range(sources)]
    tree = sk.Layout.tree(dict.fromkeys(names, SIZE))
    by_name = dict(zip(names, weights, strict=True))

    def mixed(lanes: int) -> sk.Order:
        mixture = sk.MixtureSampler(dict.fromkeys(names), weights=by_name, num_samples=SIZE, lanes=lanes)
        return mixture.order(tree)

    return {
        "all, 8 lanes": (mixed(LANES), 1),
        "a rank of 8 lanes": (mixed(LANES), LANES),
        "all, 1 lane": (mixed(1), 1),
        "a rank of 8 of 1 lane": (mixed(1), 8),
    }


def first_batch(sources: int) -> float:
    """Milliseconds from a new sampler to the first batch of 256 of a rank, the best of five."""
    names = [f"s{number:03}" for number in range(sources)]
    tree = sk.Layout.tree(dict.fromkeys(names, SIZE))

    def work() -> object:
        mixture = sk.MixtureSampler(
            dict.fromkeys(names), weights=dict.fromkeys(names, 1.0), num_samples=SIZE, lanes=LANES
        )
        return mixture.order(tree)[0 : 256 * LANES : LANES]

    return 1e3 * min(timed(work)[1].processor for _ in range(5))


def main() -> None:
    print_header("M ids a CPU second", "sources", "256 at a time", "8,192", "65,536")
    for sources in (3, 20, 100):
        for name, (order, step) in orders_of(sources).items():
            cells = []
            for count in (256, 8192, 65_536):
                span = count * step

                def read(at: int, order: sk.Order = order, span: int = span, step: int = step) -> object:
                    begin = FROM + at * span % (SIZE - FROM - 2 * span)
                    return order[begin : begin + span : step]

                cells.append(f"{best(read, count):.2f}")
            print_row(name, sources, *cells)
    first = ", ".join(f"{first_batch(sources):.1f} ms of {sources}" for sources in (3, 20, 100))
    print(f"\nFirst batch of 256 from a new sampler on: {first} sources.")


if __name__ == "__main__":
    main()
