"""torch: `DistributedSampler` and `DataLoader`, which have no state."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

import torch
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler

from tests.benchmarks.peers.cases import BATCH, SEED, SHARD, SHARDS
from tests.benchmarks.peers.measuring import NotOffered, main
from tests.benchmarks.peers.torch_rows import VARIANTS, Sized

AGAIN, SKIPPED = "no state: the epoch again", "batches skipped by hand"


class Torch:
    """What torch itself offers."""

    def versions(self) -> dict[str, str]:
        return {"torch": torch.__version__}

    def batches(self, size: int) -> Iterator[list[int]]:
        sampler: Any = DistributedSampler(Sized(size), SHARDS, SHARD, seed=SEED)  # type: ignore[arg-type]
        return iter(BatchSampler(sampler, BATCH, drop_last=False))

    def seek(self, size: int) -> Callable[[], Any]:
        sampler: Any = DistributedSampler(Sized(size), SHARDS, SHARD, seed=SEED)  # type: ignore[arg-type]
        middle = len(sampler) // 2
        return lambda: list(islice(iter(sampler), middle, middle + BATCH))

    def resume(self, size: int) -> Callable[[], Any]:
        raise NotOffered("no state; see seek")

    def variants(self) -> list[str]:
        return list(VARIANTS)

    def rows(self, count: int, workers: int, variant: str) -> Callable[[], Iterable[Any]]:
        kind, collate = VARIANTS[variant]
        dataset: Any = kind(count)
        loader = DataLoader(dataset, BATCH, shuffle=True, num_workers=workers, collate_fn=collate)
        return lambda: loader

    def rules(self) -> list[str]:
        return [f"`DistributedSampler`, {AGAIN}", f"`DistributedSampler`, {SKIPPED}"]

    def read(
        self, rule: str, size: int, ranks: int, batch: int, states: list[Any] | None, steps: int | None
    ) -> tuple[list[int], list[Any]]:
        skipped = states[0] if states is not None and rule.endswith(SKIPPED) else 0
        received: list[int] = []
        for rank in range(ranks):
            sampler: Any = DistributedSampler(Sized(size), ranks, rank, seed=SEED)  # type: ignore[arg-type]
            loader = DataLoader(Sized(size), batch, sampler=sampler, collate_fn=list)  # type: ignore[arg-type]
            stop = None if steps is None else skipped + steps
            for ids in islice(loader, skipped, stop):
                received += ids
        return received, [steps] * ranks


if __name__ == "__main__":
    main(Torch())
