"""What a ledger of 1,000 edits costs: ids a second, the first ids, and the bytes of a state.

Run `python -m tests.benchmarks.ledger`. Every second edit changes the weights of a mixture of three sources
by independent draws, and every second one skips. Times are of the processor, the best of five.
"""

from __future__ import annotations

import json
import time
from functools import partial

import numpy as np

import samplerkit as sk
from tests.benchmarks.timing import timed

EDITS, EVERY, IDS = 1000, 10_000, 8192
CORPUS = sk.Layout.tree({"web": 60_000_000, "code": 30_000_000, "books": 10_000_000})


def ledger(count: int, lanes: int) -> sk.Ledger:
    """A mixture with so many edits."""
    mix = sk.MixtureSampler(
        {"web": None, "code": None, "books": None},
        50_000_000,
        weights={"web": 0.7, "code": 0.2, "books": 0.1},
        lanes=lanes,
    )
    edits = [
        sk.Edit(at=number * EVERY, skip=512)
        if number % 2
        else sk.Edit(at=number * EVERY, weights={"web": 5 + number % 7, "code": 3, "books": 1})
        for number in range(1, count + 1)
    ]
    return sk.Ledger(mix, edits)


def main() -> None:
    """Prints a row for each number of edits and lanes."""
    print("edits  lanes  M ids/s in a row  one rank of 8  first ids, ms  a state, bytes")
    for count in (0, EDITS):
        for lanes in (1, 8):
            begun = time.process_time()
            order = ledger(count, lanes).order(CORPUS)
            first = (order[:256], time.process_time() - begun)[1]
            speeds = []
            for stride in (1, 8):
                places = [
                    start + np.arange(IDS) * stride for start in range(0, EDITS * EVERY, EDITS * EVERY // 64)
                ]
                read = partial(lambda order, places: [order[some] for some in places], order, places)
                best = min(timed(read)[1].processor for _ in range(5))
                speeds.append(len(places) * IDS / best / 1e6)
            loader = sk.Loader(CORPUS_IDS, ledger(count, lanes), batch_size=1000)
            state = len(json.dumps(loader.state_dict(step=20_000)))
            print(
                f"{count:5}  {lanes:5}  {speeds[0]:16.1f}  {speeds[1]:13.1f}  {first * 1e3:13.1f}  {state:14}"
            )


class _Ids:
    layout = CORPUS

    def __len__(self) -> int:
        return len(CORPUS)

    def __getitem__(self, index: int) -> int:
        return index


CORPUS_IDS = _Ids()

if __name__ == "__main__":
    main()
