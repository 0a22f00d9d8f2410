"""Compares runs that configs describe with Megatron's own samplers, whose file comes with its repository.

    python -m tests.parity.compare_megatron_samplers FILE [SETTINGS [SEED]]

FILE is `megatron/training/datasets/data_samplers.py`. Its two classes are taken out and run as they stand:
the rest of it, and the wheel of megatron-core, are not needed. Random settings are read by each of its ranks,
of `cyclic` into the next epoch too, and by loaders made by `load_config`. Exits with 1 where one differs.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import torch

import samplerkit as sk

CLASSES = ("MegatronPretrainingSampler", "MegatronPretrainingRandomSampler")


def classes_of(path: Path) -> SimpleNamespace:
    """Takes the two samplers out of Megatron's file."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    tree.body = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name in CLASSES]
    names: dict[str, Any] = {"torch": torch, "RandomSeedDataset": type("None", (), {})}
    exec(compile(tree, str(path), "exec"), names)  # noqa: S102  # Megatron's own code, which the caller names
    return SimpleNamespace(single=names[CLASSES[0]], cyclic=names[CLASSES[1]])


def random_setting(random: Random) -> dict[str, Any]:
    """Draws a run: how many samples there are, and where it stands."""
    micro, ranks, steps = random.randrange(1, 6), random.randrange(1, 6), random.randrange(1, 12)
    step, kind = micro * ranks, random.choice(["single", "cyclic", "cyclic sharded"])
    total = step * steps + random.randrange(step)
    consumed = random.randrange(total) if kind == "single" else step * random.randrange(3 * steps)
    return {"kind": kind, "total": total, "micro": micro, "ranks": ranks, "consumed": consumed}


def theirs(classes: SimpleNamespace, setting: dict[str, Any], rank: int) -> list[list[int]]:
    """The batches of a rank over there, to the end of the epoch; of `cyclic` those of the next one too."""
    total, consumed, micro, ranks = (setting[name] for name in ("total", "consumed", "micro", "ranks"))
    if setting["kind"] == "single":
        return list(classes.single(total, consumed, micro, rank, ranks))
    is_sharded = setting["kind"] == "cyclic sharded"
    active = total - total % (micro * ranks)
    rest = list(classes.cyclic(None, total, consumed, micro, rank, ranks, is_sharded))
    following = consumed - consumed % active + active
    # Unsharded, ranks may get a batch more than others: that is no step.
    steps = (active - consumed % active) // (micro * ranks)
    again = list(classes.cyclic(None, total, following, micro, rank, ranks, is_sharded))
    return rest[:steps] + again[: active // (micro * ranks)]


def ours(setting: dict[str, Any], rank: int) -> list[list[int]]:
    """The batches of a rank of a loader that a config describes, over as many epochs."""
    kind = "megatron_single" if setting["kind"] == "single" else "megatron_cyclic"
    sampler: dict[str, Any] = {
        "kind": kind,
        "micro_batch_size": setting["micro"],
        "data_parallel_size": setting["ranks"],
        "consumed_samples": setting["consumed"],
    }
    if setting["kind"] == "cyclic":
        sampler["data_sharding"] = False
    config = sk.load_config({"sampler": sampler, "loader": {"batch_size": setting["micro"], "tail": "drop"}})
    loader = config.make_loader(range(setting["total"]), world=sk.World(setting["ranks"], rank))
    epochs = 1 if kind == "megatron_single" else 2
    return [batch.tolist() for _ in range(epochs) for batch in loader]


def main(path: str, count: int = 300, seed: int = 0) -> int:
    """Compares random settings, and prints how many."""
    classes, random = classes_of(Path(path)), Random(seed)
    settings, batches = Counter[str](), 0
    for _ in range(count):
        setting = random_setting(random)
        for rank in range(setting["ranks"]):
            expected, found = theirs(classes, setting, rank), ours(setting, rank)
            if expected != found:
                print(f"DIFFERENT: {setting}, rank {rank}\n  Megatron: {expected}\n  ours: {found}")
                return 1
            batches += len(found)
        settings[setting["kind"]] += 1
    print(f"{count} runs, {batches:,} micro-batches equal: {dict(settings)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], *map(int, sys.argv[2:])))
