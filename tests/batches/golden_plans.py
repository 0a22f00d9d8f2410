"""The frozen plans of the rule batches-1: how a case is evaluated.

A saved state has the number of a batch, so a plan must be the same with every version of samplerkit, Python,
numpy and torch. In `tests/data`, `golden_plans.json` has plans and `golden_packs.json` those of packs, as
they were when the rule was released. None of them changes: a change of any plan, even a better one, is a new
rule id with its own files, and the old ones stay. A new recipe adds cases: lines without batches, which
`python -m tests.batches.golden_plans` completes.
"""

from pathlib import Path

import numpy as np

import samplerkit as sk
from samplerkit.batches.plan import BatchPlan
from tests.batches.laws import listed
from tests.order.golden_vectors import Case, built, complete

FILES = tuple(
    Path(__file__).parents[1] / "data" / name for name in ("golden_plans.json", "golden_packs.json")
)


def lengths_of(size: int) -> list[int]:
    """Lengths by arithmetic, so that the plans do not depend on the generator of another package."""
    return [1 + number * number * 7919 % 97 * (1 + number % 3) for number in range(size)]


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


def evaluated(case: Case) -> Case:
    """Returns the batches of a case: those in `numbers`, or all."""
    plan = planned(case)
    return {"batches": [listed(plan[number]) for number in case.get("numbers", range(len(plan)))]}


if __name__ == "__main__":
    for file in FILES:
        complete(file, {"plans": evaluated})
