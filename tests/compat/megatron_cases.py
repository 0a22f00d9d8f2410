"""The recorded builds and micro-batches of Megatron-LM, and the same builds by samplerkit.

`tests/data/megatron_golden.json.gz` holds 300 builds and 100 settings of the samplers of megatron-core
0.16.1. A build names the tokens of all sequences of its corpora; of each part it has the number of samples,
and a digest of the JSON of all of them, each a list of spans.
"""

from __future__ import annotations

import gzip
import hashlib
import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from samplerkit.compat.megatron.samples import BlendedSamples, Cut

GOLDEN = Path(__file__).parents[1] / "data" / "megatron_golden.json.gz"
PARTS = ("train", "valid", "test")


@cache
def recorded(kind: str) -> list[dict[str, Any]]:
    """Reads the `cases` or the `samplers`."""
    with gzip.open(GOLDEN, "rt", encoding="utf-8") as file:
        cases: list[dict[str, Any]] = json.load(file)[kind]
    return cases


def built(case: dict[str, Any], part: str) -> BlendedSamples:
    """Builds a part of a recorded case."""
    cut = Cut(case["seq_len"], case["seed"], int(case["extra"]), case["keep_partial"] and part == "valid")
    return BlendedSamples(
        [np.array(lengths, dtype=np.int32) for lengths in case["lengths"]],
        case["weights"],
        case["sizes"][PARTS.index(part)],
        cut,
        split=case["split"],
        part=part,
        surplus=case["surplus"],
    )


def spans(samples: BlendedSamples) -> list[list[list[int]]]:
    """Returns for each sample its spans of document, offset and length; of a blend, also the corpus."""
    columns = samples.spans(np.arange(len(samples)))
    rows = np.stack(columns[2 if samples.dataset_index is None else 1 :], axis=1).tolist()
    by_sample: list[list[list[int]]] = [[] for _ in range(len(samples))]
    for number, row in zip(columns.rows.tolist(), rows, strict=True):
        by_sample[number].append(row)
    return by_sample


def digest(by_sample: list[list[list[int]]]) -> str:
    """Returns the digest of spans, as in a recording."""
    return hashlib.sha256(json.dumps(by_sample, separators=(",", ":")).encode()).hexdigest()
