"""The frozen orders of the algorithm samplerkit-1: how a case is evaluated, and how new ones are completed.

Trained models, saved states and resumed runs depend on orders that are the same with every version of
samplerkit, Python, numpy and torch, on every machine. `tests/data/golden_vectors.json` has the orders as they
were when the algorithm was released. They must never change: a change of any order, even a better one, is a
new algorithm id with its own file, and the old one stays. A new sampler adds cases: lines without ids, which
`python -m tests.order.golden_vectors` completes.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

import samplerkit as sk
from samplerkit.order.keys import Key
from samplerkit.order.mixing.source_counts import SourceCounts
from samplerkit.order.mixing.source_draws import SourceDraws
from samplerkit.order.mixing.weights import thresholds
from samplerkit.order.sequences import Permuted
from tests.order.reference_draws import draws_of_rows

FILE = Path(__file__).parents[1] / "data" / "golden_vectors.json"

Case = dict[str, Any]

ROWS = [*range(24), 255, 256, 4095, 4096, 65_537, 10**9, 10**15, (1 << 38) - 1]
SHARES: list[list[float]] = [[1, 1], [3, 1], [0.7, 0.2, 0.1], [2**0.5, 1, 3.14159], [0, 1, 1e-30], [1] * 20]
TREE = {"web": [50, 70, 30], "code": 40, "books": {"old": [9, 11], "new": 20}}


def built(case: Case) -> sk.Sampler:
    """Builds the samplers of an order; the first of its chain reads the dataset."""
    root: sk.Sampler | None = None
    for link in case["chain"]:
        parent: sk.Sampler = getattr(sk, link["sampler"])(**link["arguments"])
        parent.add_child(root)
        root = parent
    assert root is not None
    return root


def recorded(file: Path = FILE) -> dict[str, Any]:
    """Reads a frozen file."""
    frozen: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return frozen


def layout_of(tree: Any) -> sk.Layout:
    """The layout of a nested mapping of sizes."""
    if not isinstance(tree, dict):
        return sk.Layout(tree)
    return sk.Layout.tree({name: layout_of(part) for name, part in tree.items()})


def permuted(case: Case) -> Case:
    """A permutation at the positions of a case."""
    values = Permuted(case["size"], Key(**case["key"])).ids_at(np.array(case["positions"]))
    return {"values": values.tolist()}


def ordered(case: Case) -> Case:
    """The order of a chain: at the positions of a case, or all of it."""
    order = built(case).order(sk.Layout(case["layout"]), case["epoch"])
    return {"ids": order[np.array(case["positions"])].tolist() if "positions" in case else list(order)}


def drawn(case: Case) -> Case:
    """The draws of rows of a lane, and the sources and turns that they read by several weights."""
    key = case["key"]
    draws = SourceDraws(Key(key["seed"], key["epoch"], 0, "dice"), key["index"])
    lanes, rows = np.full(len(ROWS), key["lane"]), np.array(ROWS)
    reads = [
        [part.tolist() for part in SourceCounts(draws, thresholds(weights)[None]).read(lanes, rows)]
        for weights in SHARES
    ]
    return {"values": draws_of_rows(draws, lanes, rows).tolist(), "reads": reads}


def mixed(case: Case) -> Case:
    """The ids that a mixture over a tree reads in two epochs."""
    mixture = sk.load_config({"sampler": case["sampler"]}).sampler
    return {"ids": [mixture.order(layout_of(TREE), epoch)[:].tolist() for epoch in (0, 3)]}


EVALUATE: Mapping[str, Callable[[Case], Case]] = {
    "permutations": permuted,
    "orders": ordered,
    "source draws": drawn,
    "trees": mixed,
}
"""Evaluates a case with the present code, by section of the file."""


def complete(file: Path, evaluate: Mapping[str, Callable[[Case], Case]]) -> None:
    """Evaluates the cases of a frozen file that have no results yet, and leaves the others unchanged."""
    sections = []
    for name, content in json.loads(file.read_text(encoding="utf-8")).items():
        text = json.dumps(content)
        if name in evaluate:
            lines = ",\n".join(json.dumps({**case, **evaluate[name](case), **case}) for case in content)
            text = f"[\n{lines}\n]"
        sections.append(f"{json.dumps(name)}: {text}")
    file.write_text("{\n" + ",\n".join(sections) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    complete(FILE, EVALUATE)
