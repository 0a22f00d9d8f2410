"""One rank of a job, in which samplers and worlds say which shard of how many it reads.

Run as `python -m tests.ranks RANKS tests.loading.sharded_ranks FOLDER`. It writes, for each case, the samples
that the rank received, or the error that it met.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch.distributed

import samplerkit as sk
from samplerkit.compat.torch import distributed
from samplerkit.loading.job import agreement

SAMPLES = 16

Numbers = Callable[[int, int], tuple[int, int]]
"""From a rank and the number of ranks to the shard and the number of shards that it is told to read."""

NUMBERS: dict[str, Numbers] = {
    "the job's": lambda rank, ranks: (rank, ranks),
    "a fixed shard": lambda rank, ranks: (0, ranks),
    "twice the ranks": lambda rank, ranks: (rank, 2 * ranks),
    "two ranks a shard": lambda rank, ranks: (rank // 2, max(2, ranks // 2)),
    "the ranks backwards": lambda rank, ranks: (ranks - 1 - rank, ranks),
}


def readers(shard: int, shards: int) -> dict[str, Callable[[], Iterable[Any]]]:
    """Gives by name all that reads a shard."""
    sampler = sk.DistributedSampler(shards, shard, seed=3)
    below = sk.DistributedSampler(shards, shard, seed=3)
    slices = sk.SequentialSampler()
    slices.add_child(below)
    world, data = sk.World(shards, shard), range(SAMPLES)
    return {
        "Loader": lambda: sk.Loader(data, sampler, batch_size=2),
        "Loader of a world": lambda: sk.Loader(data, sk.RandomSampler(), batch_size=2, world=world),
        "Loader of a chain": lambda: sk.Loader(data, slices, batch_size=2),
        "TensorLoader": lambda: sk.TensorLoader(torch.arange(SAMPLES), sampler, batch_size=2),
        "TorchSampler": lambda: sk.TorchSampler(sampler, SAMPLES),
        "DataLoader": lambda: torch.utils.data.DataLoader(data, 2, sampler=sk.TorchSampler(sampler, data)),
        "TorchBatchSampler": lambda: sk.TorchBatchSampler(sk.TorchSampler(sampler, SAMPLES), 2),
        "ShardedSampler": lambda: distributed(data, shards, shard),
    }


def received(make: Callable[[], Iterable[Any]]) -> dict[str, Any]:
    """Reads an epoch."""
    try:
        return {"samples": [int(sample) for entry in make() for sample in torch.as_tensor(entry).reshape(-1)]}
    except sk.DisagreementError as error:
        return {"error": str(error)}


def main() -> None:
    """Reads by each reader with each pair of numbers."""
    folder = Path(sys.argv[1])
    agreement._LONGEST_PAUSE = 0.1  # a rank waits twice as long after each of some twenty disagreements
    torch.distributed.init_process_group("gloo")
    rank, ranks = torch.distributed.get_rank(), torch.distributed.get_world_size()
    outcomes = {
        f"{reader}, {numbers}": received(make)
        for numbers, told in NUMBERS.items()
        for reader, make in readers(*told(rank, ranks)).items()
    }
    (folder / f"{rank}.json").write_text(json.dumps(outcomes))
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
