"""torch: `DistributedSampler` and `DataLoader`, which have no state."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

from torch.utils.data import BatchSampler, DataLoader, DistributedSampler

from tests.benchmarks.peers.cases import BATCH, SEED, SHARD, SHARDS
from tests.benchmarks.peers.measuring import Iteration, Peer, main
from tests.benchmarks.peers.torch_rows import VARIANTS, Sized, rows_by

AGAIN, SKIPPED = "no state: the epoch again", "batches skipped by hand"


class Torch(Peer):
    """What torch itself offers."""

    packages = ("torch",)
    variants = tuple(VARIANTS)
    rules = (f"`DistributedSampler`, {AGAIN}", f"`DistributedSampler`, {SKIPPED}")
    lacks: Mapping[str, str] = {"resume": "no state; see seek"}

    def batches(self, size: int) -> Iterator[list[int]]:
        sampler: Any = DistributedSampler(Sized(size), SHARDS, SHARD, seed=SEED)  # type: ignore[arg-type]
        return iter(BatchSampler(sampler, BATCH, drop_last=False))

    def seek(self, size: int) -> Callable[[], Any]:
        sampler: Any = DistributedSampler(Sized(size), SHARDS, SHARD, seed=SEED)  # type: ignore[arg-type]
        middle = len(sampler) // 2
        return lambda: list(islice(iter(sampler), middle, middle + BATCH))

    def rows(self, count: int, workers: int, variant: str) -> Callable[[], Iterable[Any]]:
        return rows_by(DataLoader, count, workers, variant)

    def iterate(self, rule: str, size: int, ranks: int, rank: int, batch: int, state: Any) -> Iteration:
        sampler: Any = DistributedSampler(Sized(size), ranks, rank, seed=SEED)  # type: ignore[arg-type]
        loader: Any = DataLoader(Sized(size), batch, sampler=sampler, collate_fn=list)  # type: ignore[arg-type]
        return islice(loader, state if rule.endswith(SKIPPED) else 0, None), None


if __name__ == "__main__":
    main(Torch())
