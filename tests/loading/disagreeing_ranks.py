"""One rank of a job whose ranks read orders that may not fit together.

Run as `python -m tests.ranks RANKS tests.loading.disagreeing_ranks FOLDER`. It writes, for each case, the
samples that the rank received, or the error that it met.
"""

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import torch.distributed

import samplerkit as sk
from samplerkit.compat.torch import distributed
from samplerkit.loading import agreement
from tests.chains import under
from tests.numbers import Numbers

SAMPLES = 16

Shard = Callable[[int, int], tuple[int, int]]
"""From a rank and the number of ranks to the shard and the number of shards that it reads."""

SHARDS: dict[str, Shard] = {
    "the job's": lambda rank, ranks: (rank, ranks),
    "a fixed shard": lambda rank, ranks: (0, ranks),
    "twice the ranks": lambda rank, ranks: (rank, 2 * ranks),
    "two ranks a shard": lambda rank, ranks: (rank // 2, max(2, ranks // 2)),
    "the ranks backwards": lambda rank, ranks: (ranks - 1 - rank, ranks),
}


def readers(shard: int | None, shards: int | None) -> dict[str, Callable[[], Iterable[Any]]]:
    """Gives by name all that reads a shard, or that of this process in its job."""
    sampler = sk.DistributedSampler(shards, shard, seed=3)
    slices = under(sk.SequentialSampler(), sk.DistributedSampler(shards, shard, seed=3))
    data = range(SAMPLES)
    return {
        "Loader": lambda: sk.Loader(data, sampler, batch_size=2),
        "Loader of a chain": lambda: sk.Loader(data, slices, batch_size=2),
        "TensorLoader": lambda: sk.TensorLoader(torch.arange(SAMPLES), sampler, batch_size=2),
        "TorchSampler": lambda: sk.TorchSampler(sampler, SAMPLES),
        "TorchBatchSampler": lambda: sk.TorchBatchSampler(sk.TorchSampler(sampler, SAMPLES), 2),
        "ShardedSampler": lambda: distributed(data, shards, shard),
    }


def resumed(*, seed: int = 0, sizes: tuple[int, ...] = (12, 12), step: int = 2, batch: int = 2) -> sk.Loader:
    """A loader that resumes from a checkpoint of one rank; nobody waits for its time limit."""
    sampler, layout = sk.RandomSampler(seed=seed), sk.Layout(sizes)
    saved = sk.Loader(layout, sampler, batch_size=4, world=sk.World(1, 0)).state_dict(step=step)
    again = sk.Loader(Numbers(layout), sampler, batch_size=batch, agreement_seconds=10_000)
    again.load_state_dict(saved)
    return again


RESUMED: dict[str, dict[str, Any]] = {
    "same": {},
    "position": {"step": 3},
    "seed": {"seed": 1},
    "dataset": {"sizes": (11, 13)},
    "batch_size": {"batch": 4},
}
"""What differs on the last rank."""


def edited(skip: int) -> Iterator[Any]:
    """The batches of a loader that is edited after its first step, from the third on."""
    ledger = sk.Ledger(sk.RandomSampler(seed=0))
    loader = sk.Loader(range(SAMPLES), ledger, batch_size=1, agreement_seconds=10_000)
    for batch in loader:
        yield batch
        if loader.step == 1:
            loader.edit(at=2 * loader.world.num_shards, skip=skip)


class SystemRandom:
    """Ids in an order that nothing can repeat."""

    def __iter__(self) -> Iterator[int]:
        return iter(sorted(range(SAMPLES), key=lambda _: os.urandom(8)))


def cases(rank: int, ranks: int) -> Iterator[tuple[str, Callable[[], Iterable[Any]]]]:
    """Gives all that a rank reads, by name."""
    for name, shard in SHARDS.items():
        for reader, make in readers(*shard(rank, ranks)).items():
            yield f"{reader}, {name}", make
    for name, differs in RESUMED.items():
        yield name, lambda differs=differs: resumed(**(differs if rank == ranks - 1 else {}))
    yield "edits", lambda: edited(1 + rank)
    iterables = {
        "torch's sampler": torch.utils.data.RandomSampler(range(SAMPLES)),
        "the system": SystemRandom(),
    }
    for name, ids in iterables.items():
        yield name, lambda ids=ids: sk.Loader(range(SAMPLES), sk.IterSampler(ids), batch_size=2)


def read_epoch(make: Callable[[], Iterable[Any]]) -> dict[str, Any]:
    """Reads an epoch, or what comes before an error."""
    samples: list[int] = []
    try:
        for entry in make():
            samples += torch.as_tensor(entry).reshape(-1).tolist()
    except sk.DisagreementError as error:
        return {"samples": samples, "error": str(error)}
    return {"samples": samples}


def main() -> None:
    """Reads in each case, seeded by the rank."""
    # A rank waits twice as long after each of some thirty disagreements, and before it looks for others.
    agreement._LONGEST_PAUSE = agreement._UNLISTED_SECONDS = 0.03
    torch.distributed.init_process_group("gloo")
    rank, ranks = torch.distributed.get_rank(), torch.distributed.get_world_size()
    torch.manual_seed(rank)
    outcomes = {}
    for name, make in cases(rank, ranks):
        outcomes[name] = read_epoch(make)
        torch.distributed.barrier()
    (Path(sys.argv[1]) / f"{rank}.json").write_text(json.dumps(outcomes))
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
