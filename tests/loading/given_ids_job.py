"""One rank of a job whose orders come from iterables: `tests.ranks` runs it. It prints what it read."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed

import samplerkit as sk

SAMPLES = 64


class OfTheSystem:
    """Ids in an order that nothing can repeat."""

    def __iter__(self) -> Iterator[int]:
        return iter(sorted(range(SAMPLES), key=lambda _: os.urandom(8)))


def outcome(iterable: Any) -> dict[str, Any]:
    loader = sk.Loader(range(SAMPLES), sk.IterSampler(iterable), batch_size=8)
    try:
        return {"read": [id for batch in loader for id in batch.tolist()]}
    except sk.DisagreementError as error:
        return {"error": str(error)}


def main() -> None:
    """Reads by torch's sampler, with another seed on each rank, and by ids that differ."""
    torch.distributed.init_process_group("gloo")
    torch.manual_seed(int(os.environ["RANK"]))
    outcomes = [outcome(torch.utils.data.RandomSampler(range(SAMPLES))), outcome(OfTheSystem())]
    print(json.dumps(outcomes), flush=True)
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()
