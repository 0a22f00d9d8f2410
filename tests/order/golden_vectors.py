"""The frozen orders of the algorithm samplerkit-1: which they are, how one is evaluated, and the writer.

A trained model, a saved state and a resumed run all rest on an order being the same under every version of
samplerkit, Python, numpy and torch, on every machine. `tests/data/golden_vectors.json` holds orders as they
were when the algorithm was released. The file must never change: a change of any order, an improvement
included, is a new algorithm id with vectors of its own, and the old one stays.
`python -m tests.order.golden_vectors` writes the file where there is none.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import samplerkit as sk
from samplerkit.order.keys import ALGORITHM, Key
from samplerkit.order.mixing.source_counts import SourceCounts
from samplerkit.order.mixing.source_draws import SourceDraws
from samplerkit.order.mixing.weights import thresholds
from samplerkit.order.permutation import Permutation

FILE = Path(__file__).parents[1] / "data" / "golden_vectors.json"

WHY = (
    "Frozen orders of the algorithm named here. This file must never change: saved states and resumed runs "
    "rest on it. A change of any order is a new algorithm id with a file of its own, and the old one stays."
)

Case = dict[str, Any]

SIZES = [1, 5, 257, 4096, 4097, 10**6, 2**31 - 1, 2**31, 2**32 - 1, 2**32 + 1, 10**12, 2**62]
SIZES_OF_FILES = [5, 0, 9, 1, 14, 3, 3, 8]
LARGE_FILES = [5000, 300, 2**31 + 7, 4097]
LABELS = [0, 2, 1, 1, 0, 2, 2, 1, 0, 0]
WEIGHTS = [1.0, 0.25, 0.0, 3.0, 1e-6, 2.5, 1.0, 1.0, 0.5, 7.0]
ROWS = [*range(24), 255, 256, 4095, 4096, 65_537, 10**9, 10**15, (1 << 38) - 1]
SHARES = [[1, 1], [3, 1], [0.7, 0.2, 0.1], [2**0.5, 1, 3.14159], [0, 1, 1e-30], [1] * 20]
TREE = {"web": [50, 70, 30], "code": 40, "books": {"old": [9, 11], "new": 20}}


def _positions(n: int) -> list[int]:
    near_both_ends = [*range(12), *range(n - 12, n)]
    between = [n * part // 13 for part in range(13)]
    return sorted({position for position in [*near_both_ends, *between] if 0 <= position < n})


def permutations() -> Iterator[Case]:
    """Permutations of many sizes at selected positions, for several keys."""
    keys = [(0, 0, 0, "global"), (7, 3, 0, "global"), (2**64 - 1, 2**63 - 1, 2, "subset")]
    for seed, epoch, depth, role in keys:
        for n in SIZES:
            key = {"seed": seed, "epoch": epoch, "depth": depth, "role": role}
            yield {"size": n, "key": key, "positions": _positions(n)}


def _link(name: str, **arguments: Any) -> Case:
    return {"sampler": name, "arguments": arguments}


def _modes() -> Iterator[Case]:
    for mode in sk.Shuffle:
        for lanes in (1, 3):
            arguments = {"seed": 7, "lanes": lanes, "partial_size": 6, "adaptive_threshold": 40}
            root = _link("DistributedSampler", num_shards=1, shard_id=0, shuffle=mode.value, **arguments)
            yield {"layout": SIZES_OF_FILES, "epoch": 2, "chain": [root]}
    for mode in ("infile", "partial"):
        root = _link("RandomSampler", shuffle=mode, seed=7, lanes=2, partial_size=2**31)
        yield {"layout": LARGE_FILES, "epoch": 2, "chain": [root], "positions": _positions(sum(LARGE_FILES))}


def _samplers() -> Iterator[Case]:
    for shard in range(3):
        for offset in (-1, 0, 2):
            root = _link("DistributedSampler", num_shards=3, shard_id=shard, offset=offset, seed=1)
            yield {"layout": 10, "epoch": 0, "chain": [root]}
    for root in (
        _link("SequentialSampler", start_index=2, num_samples=5),
        _link("RandomSampler", seed=1),
        _link("RandomSampler", seed=1, num_samples=4),
        _link("RandomSampler", seed=1, replacement=True),
        _link("SubsetSampler", indices=[7, 2, 7, 0]),
        _link("SubsetRandomSampler", indices=[7, 2, 9, 0, 4], seed=1),
        _link("WeightedRandomSampler", weights=WEIGHTS, num_samples=40, seed=1),
        _link("WeightedRandomSampler", weights=WEIGHTS, num_samples=9, replacement=False, seed=1),
        _link("PKSampler", num_val=4, labels=LABELS, seed=1),
        _link("PKSampler", num_val=4, labels=LABELS, shuffle=True, seed=1),
        _link("IterSampler", sampler=[5, 1, 8], num_samples=2),
    ):
        for epoch in (0, 1):
            yield {"layout": 10, "epoch": epoch, "chain": [root]}


def _mixtures() -> Iterator[Case]:
    for shares in ([3, 0, 1, 1, 2, 1, 1, 4], None):
        for epoch in (0, 1):
            root = _link("MixtureSampler", weights=shares, seed=1, stop="all")
            yield {"layout": SIZES_OF_FILES, "epoch": epoch, "chain": [root]}


def _chains() -> Iterator[Case]:
    chain = [
        _link("DistributedSampler", num_shards=2, shard_id=1, shuffle="infile", seed=7, offset=0),
        _link("RandomSampler", seed=7, num_samples=15),
        _link("SubsetRandomSampler", indices=[14, 3, 3, 0, 8], seed=7),
        _link("DistributedSampler", num_shards=2, shard_id=0, seed=7),
    ]
    for depth in range(1, len(chain) + 1):
        yield {"layout": SIZES_OF_FILES, "epoch": 5, "chain": chain[:depth]}


def _pools() -> Iterator[Case]:
    for mode in ("partial", "adaptive"):
        for lanes, partial_size in ((1, 6), (3, 4), (2, 100)):
            arguments = {"seed": 7, "lanes": lanes, "partial_size": partial_size, "adaptive_threshold": 40}
            yield {
                "layout": SIZES_OF_FILES,
                "epoch": 2,
                "chain": [_link("RandomSampler", shuffle=mode, pools=2, **arguments)],
            }
    for partial_size in (5000, 2**31, 2**62):
        root = _link("RandomSampler", shuffle="partial", pools=2, seed=7, lanes=2, partial_size=partial_size)
        yield {"layout": LARGE_FILES, "epoch": 2, "chain": [root], "positions": _positions(sum(LARGE_FILES))}


def orders() -> Iterator[Case]:
    """Every mode over a layout with lanes, every sampler, and chains of them; the first reads the dataset."""
    yield from _modes()
    yield from _samplers()
    yield from _chains()
    yield from _mixtures()
    yield from _pools()
    yield from _repeated_and_parted()
    yield from _blocks()


def _repeated_and_parted() -> Iterator[Case]:
    """Samplers that repeat and part, alone and in chains."""
    files = SIZES_OF_FILES
    fold = {"num_folds": 3, "fold": 1, "seed": 7}
    leaves = [
        _link("RepeatSampler", repeats=3),
        _link("RepeatSampler", repeats=2, num_samples=9),
        _link("RepeatFactorSampler", factors=[1 + number % 7 * 0.37 for number in range(sum(files))], seed=7),
        _link("WindowSampler", size=3),
        _link("WindowSampler", size=4, stride=3, num_samples=6),
        _link("FoldSampler", **fold),
        _link("FoldSampler", **fold, held_out=True),
        _link("FoldSampler", **fold, labels=[number % 4 for number in range(sum(files))], held_out=True),
        _link("FoldSampler", **fold, groups=[number * number % 11 for number in range(sum(files))]),
        _link("FoldSampler", **fold, by_files=True, held_out=True),
    ]
    for leaf in leaves:
        for epoch in (0, 1):
            yield {"layout": files, "epoch": epoch, "chain": [leaf]}
    parted = [_link("FoldSampler", **fold, by_files=True), _link("WindowSampler", size=2)]
    for chain in (
        [*parted, _link("RandomSampler", shuffle="partial", partial_size=5, lanes=2, seed=7)],
        [*parted, _link("RandomSampler", seed=7), _link("RepeatSampler", repeats=2)],
        [leaves[2], _link("RandomSampler", seed=7)],
        [leaves[5], _link("FoldSampler", **fold)],
    ):
        yield {"layout": files, "epoch": 2, "chain": chain}
    root = _link("FoldSampler", num_folds=10, fold=3, seed=7)
    yield {"layout": 2**40, "epoch": 0, "chain": [root], "positions": _positions(2**39)}


def _blocks() -> Iterator[Case]:
    """Blocks in every kind of order, cut into windows, with pools that fit and that do not."""
    files, large = [32, 0, 8, 24, 16], [2**31, 2**33 + 8, 4096]
    children = [
        [],
        [_link("SequentialSampler", start_index=2)],
        [_link("RandomSampler", shuffle="partial", partial_size=3, lanes=2, seed=7)],
        [_link("MixtureSampler", weights=[3, 0, 1, 1, 2], num_samples=13, seed=7)],
    ]
    for child in children:
        for pool, pieces in ((64, 8), (3, 8), (3, 4), (3, 1), (1, 2)):
            root = _link("BlockSampler", pool=pool, seed=7, windows_per_block=pieces)
            yield {"layout": files, "epoch": 2, "chain": [*child, root]}
    for pieces in (8, 2):
        root = _link("BlockSampler", pool=1024, seed=7, windows_per_block=pieces)
        yield {"layout": large, "epoch": 2, "chain": [root], "positions": _positions(sum(large))}
    root = _link("DistributedSampler", num_shards=2, shard_id=1, shuffle=False)
    yield {"layout": files, "epoch": 1, "chain": [_link("BlockSampler", windows_per_block=4), root]}


def permuted(case: Case) -> list[int]:
    """Evaluates a case of `permutations`."""
    values = Permutation(case["size"], Key(**case["key"])).forward(np.array(case["positions"]))
    return values.tolist()


def built(case: Case) -> sk.Sampler:
    """Builds the samplers of a case of `orders`."""
    root: sk.Sampler | None = None
    for link in case["chain"]:
        parent: sk.Sampler = getattr(sk, link["sampler"])(**link["arguments"])
        parent.add_child(root)
        root = parent
    assert root is not None
    return root


def ordered(case: Case) -> list[int]:
    """Evaluates a case of `orders`: at its positions, or all of it."""
    order = built(case).order(sk.Layout(case["layout"]), case["epoch"])
    return order[case["positions"]].tolist() if "positions" in case else list(order)


def recorded() -> dict[str, Any]:
    """Reads the frozen file."""
    frozen: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    return frozen


def layout_of(tree: Any) -> sk.Layout:
    """The layout of a nested mapping of sizes."""
    if not isinstance(tree, dict):
        return sk.Layout(tree)
    return sk.Layout.tree({name: layout_of(part) for name, part in tree.items()})


def _trees() -> Iterator[Case]:
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
    }


def trees() -> Iterator[Case]:
    """Mixtures over a tree, with the ids of two epochs."""
    for sampler in _trees():
        mixture = sk.load_config({"sampler": sampler}).sampler
        ids = [mixture.order(layout_of(TREE), epoch)[:].tolist() for epoch in (0, 3)]
        yield {"sampler": sampler, "ids": ids}


def source_draws() -> Iterator[Case]:
    """The draws of rows of a lane, and what they read by several weights."""
    for seed, epoch, index in ((0, 0, 0), (2**64 - 1, 2**40 - 1, 12_345)):
        dice = SourceDraws(Key(seed, epoch, 0, "dice"), index)
        for lane in (0, 2**24 - 1):
            lanes, rows = np.full(len(ROWS), lane), np.array(ROWS)
            reads = [
                [part.tolist() for part in SourceCounts(dice, thresholds(weights)[None]).read(lanes, rows)]
                for weights in SHARES
            ]
            key = {"seed": seed, "epoch": epoch, "index": index, "lane": lane}
            yield {"key": key, "values": dice.values(lanes, rows).tolist(), "reads": reads}


def evaluated() -> dict[str, Any]:
    """Evaluates all cases with the code as it is now."""
    return {
        "why": WHY,
        "algorithm": ALGORITHM,
        "permutations": [{**case, "values": permuted(case)} for case in permutations()],
        "orders": [{**case, "ids": ordered(case)} for case in orders()],
        "source draws": list(source_draws()),
        "trees": list(trees()),
    }


def main() -> int:
    """Writes the file, one case a line, unless it exists."""
    sections = []
    for name, content in evaluated().items():
        if isinstance(content, list):
            lines = ",\n".join(json.dumps(case) for case in content)
            sections.append(f"{json.dumps(name)}: [\n{lines}\n]")
        else:
            sections.append(f"{json.dumps(name)}: {json.dumps(content)}")
    try:
        with FILE.open("x", encoding="utf-8") as file:
            file.write("{\n" + ",\n".join(sections) + "\n}\n")
    except FileExistsError:
        sys.stderr.write(f"{FILE} is frozen and stays as it is; a changed order is a new algorithm id\n")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
