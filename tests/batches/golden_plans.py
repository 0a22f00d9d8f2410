"""The frozen plans of the rule batches-1: which they are, and how one is evaluated.

A saved state names a batch by its number, so a plan must stay as it is under every version of samplerkit,
Python, numpy and torch. `golden_plans.json` in `tests/data` holds plans, `golden_packs.json` those of packs,
as they were when the rule was released. Neither changes: a change of any plan, an improvement included, is a
new rule id with plans of its own, and the old one stays. `python -m tests.batches.golden_plans` writes a file
where there is none.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import samplerkit as sk
from samplerkit.batches.plan import BatchPlan
from samplerkit.batches.recipe import RULE
from tests.batches.laws import listed
from tests.order.golden_vectors import built

_DATA = Path(__file__).parents[1] / "data"

WHY = (
    "Frozen plans of the rule named here. This file must never change: saved states and resumed runs "
    "rest on it. A change of any plan is a new rule id with a file of its own, and the old one stays."
)

Case = dict[str, Any]

SIZES = [9, 0, 14, 7, 10]
LARGE = 50_000


def lengths_of(size: int) -> list[int]:
    """Lengths by arithmetic: no generator of another package stands between the file and the rule."""
    return [1 + number * number * 7919 % 97 * (1 + number % 3) for number in range(size)]


def _case(recipe: str, chain: list[Case], epoch: int = 1, **arguments: Any) -> Case:
    return {"recipe": recipe, "arguments": arguments, "chain": chain, "layout": SIZES, "epoch": epoch}


def _link(name: str, **arguments: Any) -> Case:
    return {"sampler": name, "arguments": arguments}


def cases() -> Iterator[Case]:
    """Static plans and plans of windows, of every recipe and policy."""
    everything = [_link("RandomSampler", seed=7)]
    orders = [
        [_link("RandomSampler", seed=7, shuffle="files")],
        [_link("DistributedSampler", num_shards=2, shard_id=0, seed=7, shuffle="partial", partial_size=5)],
        [_link("MixtureSampler", weights=[3, 0, 1, 1, 2], num_samples=60, seed=7)],
        [_link("WeightedRandomSampler", weights=list(range(1, 41)), num_samples=50, seed=7)],
        [_link("SequentialSampler")],
    ]
    subset = [
        _link("SubsetSampler", indices=list(range(0, 40, 3))),
        _link("DistributedSampler", num_shards=2, shard_id=1, seed=7),
    ]
    for epoch in (0, 1):
        yield _case("TokenBatches", everything, epoch, max_tokens=400, pool=1, abreast=3)
    for short in ("merge", "keep", "drop"):
        yield _case("TokenBatches", everything, max_tokens=600, pool=2, waste=0.1, abreast=2, short=short)
    for long in ("drop", "truncate", "alone"):
        yield _case("TokenBatches", everything, max_tokens=150, pool=1, abreast=2, long=long)
        yield _case("TokenBatches", everything, max_tokens=150, window=16, abreast=2, long=long)
    limits = {"max_samples": 6, "count_multiple": 2, "length_multiple": 8, "quadratic": 500}
    yield _case("TokenBatches", everything, max_tokens=900, pool=1, abreast=2, **limits)
    yield _case("TokenBatches", everything, max_tokens=900, window=16, abreast=2, **limits)
    yield _case("TokenBatches", subset, max_tokens=400, pool=1)
    yield _case("TokenBatches", everything, max_tokens=400, pool=1, abreast=2, num_batches=5)
    for chain in orders:
        yield _case("TokenBatches", chain, max_tokens=400, window=16, abreast=4)
    for arguments in ({"short": "merge"}, {"short": "keep"}, {"short": "drop"}, {"window": 16}):
        yield _case(
            "BucketBatches",
            everything,
            boundaries=[50, 100, 300],
            batch_size=[8, 4, 2],
            abreast=2,
            **arguments,
        )
    shapes = [[64, 64 + 32 * (number % 3)] for number in range(40)]
    for arguments in ({"short": "keep"}, {"short": "drop"}, {"window": 16}):
        yield _case("BucketBatches", everything, boundaries=None, batch_size=4, keys=shapes, **arguments)
    labels = [number % 5 for number in range(40)]
    yield _case("ClassBatches", everything, num_class=2, num_val=3, labels=labels, num_batches=12)
    large = {"layout": LARGE, "numbers": [0, 1, 17, 400, 1000]}
    yield {**_case("TokenBatches", everything, max_tokens=4000, abreast=8), **large}
    yield {**_case("TokenBatches", everything, max_tokens=4000, abreast=8, window=8192), **large}
    pairs = [[1 + number % 13, 1 + number % 7] for number in range(40)]
    yield _case("TokenBatches", everything, max_tokens=64, window=20, lengths=pairs)


def cases_of_packs() -> Iterator[Case]:
    """Packs of whole sets and of windows, with every policy; runs in tables, and in networks."""
    everything = [_link("RandomSampler", seed=7)]
    orders = [
        [_link("RandomSampler", seed=7, shuffle="files")],
        [_link("MixtureSampler", weights=[3, 0, 1, 1, 2], num_samples=60, seed=7)],
        [_link("WeightedRandomSampler", weights=list(range(1, 41)), num_samples=50, seed=7)],
        [_link("SequentialSampler")],
    ]
    for epoch in (0, 1):
        yield _case("PackBatches", everything, epoch, seq_len=64, abreast=3)
    for long in ("split", "drop", "truncate"):
        for more in ({}, {"window": 16}):
            yield _case(
                "PackBatches",
                everything,
                seq_len=60,
                packs=2,
                abreast=2,
                long=long,
                length_multiple=4,
                **more,
            )
    yield _case("PackBatches", everything, seq_len=300, long="raise", num_batches=5)
    for chain in orders:
        yield _case("PackBatches", chain, seq_len=64, window=16, abreast=2)
    large = {"layout": LARGE, "numbers": [0, 1, 17, 400, 1000]}
    yield {**_case("PackBatches", everything, seq_len=256, abreast=8), **large}
    yield {**_case("PackBatches", everything, seq_len=256, abreast=8, window=8192, packs=4), **large}
    yield {**_case("PackBatches", everything, seq_len=256, abreast=8, length_multiple=64), **large}


def planned(case: Case) -> BatchPlan:
    """Makes the plan of a case."""
    arguments = dict(case["arguments"])
    dataset = sk.Layout(case["layout"])
    if case["recipe"] in ("TokenBatches", "PackBatches") or arguments.get("boundaries") is not None:
        arguments.setdefault("lengths", lengths_of(len(dataset)))
    if "keys" in arguments:
        arguments["keys"] = np.array(arguments["keys"])
    plan: BatchPlan = getattr(sk, case["recipe"])(**arguments).plan(built(case), dataset, case["epoch"])
    return plan


def evaluated(case: Case) -> list[Any]:
    """Gives the batches of a case: those that it names, or all."""
    plan = planned(case)
    return [listed(plan[number]) for number in case.get("numbers", range(len(plan)))]


FILES = {"golden_plans.json": cases, "golden_packs.json": cases_of_packs}


def recorded(name: str) -> dict[str, Any]:
    """Reads a frozen file."""
    frozen: dict[str, Any] = json.loads((_DATA / name).read_text(encoding="utf-8"))
    return frozen


def write(name: str) -> int:
    """Writes a file, one case a line, unless it exists."""
    lines = ",\n".join(json.dumps({**case, "batches": evaluated(case)}) for case in FILES[name]())
    text = f'{{\n"why": {json.dumps(WHY)},\n"rule": {json.dumps(RULE)},\n"plans": [\n{lines}\n]\n}}\n'
    try:
        with (_DATA / name).open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        sys.stderr.write(f"{name} is frozen and stays as it is; a changed plan is a new rule id\n")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(max(map(write, FILES)))
