"""The frozen orders of samplerkit-2: dice, streams over trees, and `once`, as they were when released.

`python -m tests.order.golden_dice` writes `tests/data/golden_dice.json` where it is not there, and refuses to
write over it: saved states and resumed runs rest on it. A change of any order is a new algorithm id.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import samplerkit as sk
from samplerkit.order.dice import Dice
from samplerkit.order.keys import DICE_ALGORITHM, Key
from samplerkit.order.turns import Turns
from samplerkit.order.weights import thresholds

FILE = Path(__file__).parents[1] / "data" / "golden_dice.json"

Case = dict[str, Any]

ROWS = [*range(24), 255, 256, 4095, 4096, 65_537, 10**9, 10**15, (1 << 38) - 1]
WEIGHTS = [[1, 1], [3, 1], [0.7, 0.2, 0.1], [2**0.5, 1, 3.14159], [0, 1, 1e-30], [1] * 20]
TREE = {"web": [50, 70, 30], "code": 40, "books": {"old": [9, 11], "new": 20}}


def layout_of(tree: Any) -> sk.Layout:
    """The layout of a nested mapping of sizes."""
    if not isinstance(tree, dict):
        return sk.Layout(tree)
    return sk.Layout.tree({name: layout_of(part) for name, part in tree.items()})


def mixtures() -> Iterator[Case]:
    """Configs of samplers over the tree."""
    books = {"kind": "mixture", "weights": {"old": 1, "new": 2}, "sources": {"old": None, "new": None}}
    web = {"kind": "random", "shuffle": "partial", "partial_size": 7, "seed": 3}
    weights = {"web": 0.5, "code": 0.2, "books": 0.3}
    trees = {"web": web, "code": {"kind": "subset", "indices": [3, 1, 2]}, "books": {**books, "seed": 5}}
    plain = dict.fromkeys(weights)
    for lanes in (1, 4):
        yield {"kind": "mixture", "num_samples": 60, "weights": weights, "sources": plain, "lanes": lanes}
        yield {"kind": "mixture", "num_samples": 60, "weights": weights, "sources": trees, "lanes": lanes}
        yield {"kind": "mixture", "stop": "once", "sources": plain, "lanes": lanes, "seed": 7}
    yield {
        "kind": "mixture",
        "num_samples": 60,
        "weights": weights,
        "sources": trees,
        "passes": "restart",
        "seed": 9,
    }
    yield {
        "kind": "mixture",
        "num_samples": 60,
        "weights": [1, 2, 0, 1, 1, 1, 1],
        "algorithm": DICE_ALGORITHM,
    }


def ordered(sampler: Case, epoch: int) -> list[int]:
    """The ids of an epoch."""
    order = sk.load_config({"sampler": sampler}).sampler.order(layout_of(TREE), epoch)
    return [int(id) for id in order[:]]


def cases() -> Iterator[Case]:
    """All cases with what they give now."""
    for seed, epoch, index in ((0, 0, 0), (2**64 - 1, 2**40 - 1, 12_345)):
        dice = Dice(Key(seed, epoch, 0, "dice"), index)
        for lane in (0, 2**24 - 1):
            lanes, rows = np.full(len(ROWS), lane), np.array(ROWS)
            values = dice.values(lanes, rows).tolist()
            reads = [
                [part.tolist() for part in Turns(dice, thresholds(weights)[None]).read(lanes, rows)]
                for weights in WEIGHTS
            ]
            key = {"seed": seed, "epoch": epoch, "index": index, "lane": lane}
            yield {"key": key, "values": values, "reads": reads}
    for sampler in mixtures():
        yield {"sampler": sampler, "ids": [ordered(sampler, epoch) for epoch in (0, 3)]}


def main() -> int:
    """Writes the file; 1 if it is there."""
    if FILE.exists():
        print(f"{FILE.name} is frozen", file=sys.stderr)
        return 1
    lines = ",\n".join(json.dumps(case) for case in cases())
    FILE.write_text(f'{{"algorithm": "{DICE_ALGORITHM}", "cases": [\n{lines}\n]}}\n', encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
