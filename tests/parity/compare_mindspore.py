"""Compares ours with MindSpore itself: python -m tests.parity.compare_mindspore INTERPRETER [CHAINS [SEED]].

INTERPRETER is a python that has mindspore==2.10.0; CHAINS is how many random chains are compared. MindSpore
runs in a process of its own and only writes its ids, so that its environment need not be ours. Exits with
0 if all are the same, with 1 if one differs, and with 0 and the reason if MindSpore is missing.
"""

import json
import sys
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import samplerkit as sk
from tests.compat import mindspore_chains as chains
from tests.parity.interpreters import answers, peer_version

RUNNER = Path(__file__).with_name("run_mindspore.py")
DEFAULT_CHAINS = 400
TIME_LIMIT = 200
FILE_MODES = ["global", "files", "infile", "partial", "adaptive"]


def random_case(random: Random) -> dict[str, Any]:
    """Draws a dataset of one of the four kinds, a chain, a seed and a number of epochs."""
    kind = random.choice(["mappable", "mappable", "labelled", "mindrecord", "mindrecord", "concat"])
    case = {"seed": random.choice([0, 1, 2**31, 2**32 - 2, random.randrange(2**32)]), "num_epochs": 3}
    if kind == "mappable":
        size = random.choice([1, 2, random.randrange(3, 40), random.randrange(40, 3000)])
        return {**case, "dataset": {"kind": kind, "n": size}, "sampler": _chain(random, size)}
    if kind == "labelled":
        labels = sorted(random.randrange(4) for _ in range(random.randrange(1, 30)))
        arguments = {"num_val": random.randrange(1, 5), "shuffle": random.random() < 0.5}
        return {
            **case,
            "dataset": {"kind": kind, "labels": labels},
            "sampler": {"type": "PK", "args": arguments},
        }
    sizes = [random.randrange(1, 30) for _ in range(random.randrange(2, 6))]
    if kind == "mindrecord":
        dataset = {"kind": kind, "file_sizes": sizes}
        return {**case, "dataset": dataset, "sampler": _over_files(random, sum(sizes))}
    sampler = {"type": "Random", "args": {}} if random.random() < 0.5 else _distributed(random, [False])
    return {**case, "dataset": {"kind": kind, "parts": sizes}, "sampler": sampler}


def _distributed(random: Random, shuffles: list[Any]) -> dict[str, Any]:
    shards = random.randrange(1, 9)
    arguments = {
        "num_shards": shards,
        "shard_id": random.randrange(shards),
        "shuffle": random.choice(shuffles),
    }
    return {"type": "Distributed", "args": arguments}


def _link(random: Random, size: int) -> dict[str, Any]:
    num_samples = random.choice([None, None, random.randrange(1, 2 * size + 1)])
    indices = [random.randrange(size) for _ in range(random.randrange(1, size + 1))]
    kinds: list[tuple[str, dict[str, Any]]] = [
        ("Sequential", {"start_index": random.randrange(size), "num_samples": num_samples}),
        ("Random", {"num_samples": num_samples}),
        ("Random", {"replacement": True, "num_samples": num_samples}),
        ("Subset", {"indices": indices, "num_samples": num_samples}),
        ("SubsetRandom", {"indices": indices, "num_samples": num_samples}),
        ("WeightedRandom", {"weights": [random.random() + 0.01 for _ in range(size)]}),
        ("WeightedRandom", {"weights": [random.random() + 0.01 for _ in range(size)], "replacement": False}),
    ]
    name, arguments = random.choice(kinds)
    return {"type": name, "args": arguments}


def _chain(random: Random, size: int) -> dict[str, Any]:
    if random.random() < 0.5:
        link = _distributed(random, [True, False])
        link["args"]["num_samples"] = random.choice([None, random.randrange(1, size + 1)])
        link["args"]["offset"] = random.choice([-1, -1, random.randrange(link["args"]["num_shards"] + 1)])
    else:
        link = _link(random, size)
    if random.random() < 0.6:
        # The child has to yield as many as the parent was made for.
        child = random.choice(
            [
                {"type": "Random", "args": {}},
                {"type": "Sequential", "args": {}},
                {"type": "SubsetRandom", "args": {"indices": random.sample(range(size), size)}},
            ]
        )
        link = {**link, "child": child}
    return link


def _over_files(random: Random, size: int) -> dict[str, Any]:
    draw = random.random()
    if draw < 0.5:
        return _distributed(random, [True, False, *FILE_MODES])
    if draw < 0.8:
        return {"type": "Random", "args": {"shuffle": random.choice(FILE_MODES)}}
    if draw < 0.9:
        arguments = {"replacement": random.random() < 0.5, "num_samples": random.randrange(1, 2 * size)}
        return {"type": "Random", "args": arguments}
    indices = random.sample(range(size), random.randrange(1, size + 1))
    return {"type": "SubsetRandom", "args": {"indices": indices}}


def outcome(case: dict[str, Any], theirs: dict[str, Any]) -> str:
    """Compares ours on one case: `same`, why there is nothing to compare, or `DIFFERENT`."""
    ours = [chains.read(case, epoch, 0, quirks=True) for epoch in range(case["num_epochs"])]
    if "error" in theirs:
        return (
            "MindSpore refuses, so do we"
            if isinstance(ours[0], sk.SamplerkitError)
            else "only MindSpore refuses"
        )
    if all(chains.is_recorded(ids, read) for ids, read in zip(ours, theirs["epochs"], strict=True)):
        return "same"
    if all(isinstance(ids, sk.NotSupportedError) for ids in ours):
        return "a quirk that we refuse"
    return "DIFFERENT"


def main(interpreter: str, count: int = DEFAULT_CHAINS, seed: int = 0) -> int:
    """Compares `count` random chains and prints the results."""
    version = peer_version(interpreter, "mindspore")
    if version is None:
        return 0
    random = Random(seed)  # cases, no secrets
    cases = [random_case(random) for _ in range(count)]
    results: Counter[tuple[str, str]] = Counter()
    for case, theirs in zip(cases, answers(interpreter, RUNNER, cases, TIME_LIMIT), strict=True):
        result = outcome(case, theirs)
        results[case["dataset"]["kind"], result] += 1
        if result == "DIFFERENT":
            print(f"{result}: {json.dumps(case)}\n  MindSpore: {theirs}")
    print(f"MindSpore {version}, {count} random chains:")
    for (kind, result), number in sorted(results.items()):
        print(f"  {kind:10} {result}: {number}")
    same = sum(number for (_, result), number in results.items() if result == "same")
    different = sum(number for (_, result), number in results.items() if result == "DIFFERENT")
    # A comparison that compares next to nothing is no pass.
    return 1 if different or same < 0.8 * count else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], *map(int, sys.argv[2:])))
