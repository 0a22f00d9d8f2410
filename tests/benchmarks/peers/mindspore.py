"""MindSpore: its distributed sampler over a source of ids, `skip`, and the start at a step."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import mindspore.dataset as ds
import numpy as np

from tests.benchmarks.peers.cases import BATCH, SEED, SHARD, SHARDS
from tests.benchmarks.peers.measuring import Iteration, Peer, main
from tests.benchmarks.peers.numpy_rows import Rows

AGAIN, AT_STEP = "no state: the epoch again", "`set_init_step`"


class Ids:
    """A source whose rows are their own ids; one-dimensional, as numpy 2 asks for."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> tuple[Any]:
        return (np.array([index]),)


class Columns(Rows):
    """The same as a column."""

    def __getitem__(self, index: int) -> tuple[Any]:
        return (self.rows[index],)


def pipeline(size: int, ranks: int, rank: int, batch: int) -> Any:
    """Makes the batches of one rank."""
    ds.config.set_seed(SEED)
    sampler = ds.DistributedSampler(ranks, rank, shuffle=True)
    ids = ds.GeneratorDataset(Ids(size), "id", sampler=sampler, num_parallel_workers=1)
    return ids.batch(batch, num_parallel_workers=1)


def iterate(batches: Any) -> Iterator[Any]:
    """Begins an epoch."""
    for (ids,) in batches.create_tuple_iterator(num_epochs=1, output_numpy=True):
        yield ids.reshape(-1)


class Mindspore(Peer):
    """What MindSpore offers."""

    packages = ("mindspore", "numpy")
    variants = ("`GeneratorDataset`",)
    rules = (AGAIN, AT_STEP)

    def batches(self, size: int) -> Iterator[Any]:
        return iterate(pipeline(size, SHARDS, SHARD, BATCH))

    def seek(self, size: int) -> Callable[[], Any]:
        middle = size // SHARDS // BATCH // 2
        return lambda: next(iterate(pipeline(size, SHARDS, SHARD, BATCH).skip(middle)))

    def resume(self, size: int) -> Callable[[], Any]:
        def work() -> Any:
            batches = pipeline(size, SHARDS, SHARD, BATCH)
            batches.set_init_step(size // SHARDS // BATCH // 2)
            return next(iterate(batches))

        return work

    def rows(self, count: int, workers: int, variant: str) -> Callable[[], Iterable[Any]]:
        rows = ds.GeneratorDataset(
            Columns(count),
            "row",
            shuffle=True,
            num_parallel_workers=max(1, workers),
            python_multiprocessing=workers > 0,
        )
        batches = rows.batch(BATCH)
        return lambda: batches.create_tuple_iterator(num_epochs=1, output_numpy=True)

    def iterate(self, rule: str, size: int, ranks: int, rank: int, batch: int, state: Any) -> Iteration:
        batches = pipeline(size, ranks, rank, batch)
        if state is not None and rule == AT_STEP:
            batches.set_init_step(state)
        return (ids.tolist() for ids in iterate(batches)), None


if __name__ == "__main__":
    main(Mindspore())
