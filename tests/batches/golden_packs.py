"""The frozen plans of packs: which they are, and how one is evaluated.

They are to `golden_plans` what the samplers of later are to the first golden vectors: of the same rule, in a
file of their own, which never changes either. `python -m tests.batches.golden_packs` writes it where there
is none.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import samplerkit as sk
from samplerkit.batches.plan import BatchPlan
from samplerkit.batches.recipe import RULE
from tests.batches.golden_plans import LARGE, SIZES, WHY, Case, lengths_of
from tests.batches.pack_laws import Told, told
from tests.order.golden_vectors import built

FILE = Path(__file__).parents[1] / "data" / "golden_packs.json"


def _case(chain: list[Case], epoch: int = 1, **arguments: Any) -> Case:
    return {"recipe": "PackBatches", "arguments": arguments, "chain": chain, "layout": SIZES, "epoch": epoch}


def _link(name: str, **arguments: Any) -> Case:
    return {"sampler": name, "arguments": arguments}


def cases() -> Iterator[Case]:
    """Packs of whole sets and of windows, with every policy; runs in tables, and in networks."""
    everything = [_link("RandomSampler", seed=7)]
    orders = [
        [_link("RandomSampler", seed=7, shuffle="files")],
        [_link("MixtureSampler", weights=[3, 0, 1, 1, 2], num_samples=60, seed=7)],
        [_link("WeightedRandomSampler", weights=list(range(1, 41)), num_samples=50, seed=7)],
        [_link("SequentialSampler")],
    ]
    for epoch in (0, 1):
        yield _case(everything, epoch, seq_len=64, abreast=3)
    for long in ("split", "drop", "truncate"):
        for more in ({}, {"window": 16}):
            yield _case(everything, seq_len=60, packs=2, abreast=2, long=long, length_multiple=4, **more)
    yield _case(everything, seq_len=300, long="raise", num_batches=5)
    for chain in orders:
        yield _case(chain, seq_len=64, window=16, abreast=2)
    large = {"layout": LARGE, "numbers": [0, 1, 17, 400, 1000]}
    yield {**_case(everything, seq_len=256, abreast=8), **large}
    yield {**_case(everything, seq_len=256, abreast=8, window=8192, packs=4), **large}
    yield {**_case(everything, seq_len=256, abreast=8, length_multiple=64), **large}


def planned(case: Case) -> BatchPlan:
    """Makes the plan of a case."""
    dataset = sk.Layout(case["layout"])
    recipe = sk.PackBatches(lengths=lengths_of(len(dataset)), **case["arguments"])
    return recipe.plan(built(case), dataset, case["epoch"])


def evaluated(case: Case) -> list[Told]:
    """Gives the batches of a case: those that it names, or all."""
    plan = planned(case)
    return [told(plan[number]) for number in case.get("numbers", range(len(plan)))]


def recorded() -> dict[str, Any]:
    """Reads the frozen file."""
    frozen: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    return frozen


def main() -> int:
    """Writes the file, one case a line, unless it exists."""
    lines = ",\n".join(json.dumps({**case, "batches": evaluated(case)}) for case in cases())
    text = f'{{\n"why": {json.dumps(WHY)},\n"rule": {json.dumps(RULE)},\n"plans": [\n{lines}\n]\n}}\n'
    try:
        with FILE.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        sys.stderr.write(f"{FILE} is frozen and stays as it is; a changed plan is a new rule id\n")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
