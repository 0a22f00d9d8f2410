"""Grain: a shuffle with random access, and its elastic iterator."""

import json
import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Any

logging.getLogger("absl").setLevel(logging.ERROR)

import grain  # noqa: E402  # it logs at import that there is no jax

from tests.benchmarks.peers.cases import BATCH, SEED, SHARD, SHARDS  # noqa: E402
from tests.benchmarks.peers.measuring import Iteration, Peer, main  # noqa: E402
from tests.benchmarks.peers.numpy_rows import Rows  # noqa: E402

SLICED, ELASTIC = "slices of a `MapDataset`", "`ElasticIterator`"
ONE_THREAD = grain.ReadOptions(num_threads=1, prefetch_buffer_size=16)
"""Faster than the default of 16 threads where a sample costs nothing to read."""
READS = {"`MapDataset`, one thread": ONE_THREAD, "`MapDataset`, 16 threads": grain.ReadOptions()}


def sliced(size: int, ranks: int, rank: int, batch: int) -> Any:
    """Makes the batches of one rank, with random access."""
    return grain.MapDataset.range(size).shuffle(seed=SEED)[rank::ranks].batch(batch)


def iterator_of(rule: str, size: int, ranks: int, rank: int, batch: int) -> Any:
    """Makes the iterator of one rank."""
    if rule == SLICED:
        return iter(sliced(size, ranks, rank, batch).to_iter_dataset(ONE_THREAD))
    options = grain.sharding.ShardOptions(shard_index=rank, shard_count=ranks)
    shuffled = grain.MapDataset.range(size).shuffle(seed=SEED)
    return iter(grain.experimental.ElasticIterator(shuffled, batch * ranks, options))


class Grain(Peer):
    """What Grain offers."""

    packages = ("grain", "numpy")
    variants = tuple(READS)
    rules = (SLICED, ELASTIC)

    def batches(self, size: int) -> Iterator[Any]:
        return iterator_of(SLICED, size, SHARDS, SHARD, BATCH)

    def seek(self, size: int) -> Callable[[], Any]:
        batches = sliced(size, SHARDS, SHARD, BATCH)
        return lambda: batches[len(batches) // 2]

    def resume(self, size: int) -> Callable[[], Any]:
        first = self.batches(size)
        next(first)
        state = first.get_state()  # type: ignore[attr-defined]
        state["next_index"] = size // SHARDS // BATCH // 2

        def work() -> Any:
            resumed: Any = self.batches(size)
            resumed.set_state(state)
            return next(resumed)

        return work

    def rows(self, count: int, workers: int, variant: str) -> Callable[[], Iterable[Any]]:
        batches = grain.MapDataset.source(Rows(count)).shuffle(seed=SEED).batch(BATCH)
        dataset = batches.to_iter_dataset(READS[variant])
        if workers:
            dataset = dataset.mp_prefetch(grain.multiprocessing.MultiprocessingOptions(num_workers=workers))
        return lambda: dataset

    def iterate(self, rule: str, size: int, ranks: int, rank: int, batch: int, state: Any) -> Iteration:
        batches = iterator_of(rule, size, ranks, rank, batch)
        if state is not None:
            batches.set_state(json.loads(state))
        return (ids.tolist() for ids in batches), batches.get_state


if __name__ == "__main__":
    main(Grain())
