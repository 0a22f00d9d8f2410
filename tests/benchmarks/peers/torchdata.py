"""torchdata: `StatefulDataLoader` over its `StatefulDistributedSampler`."""

import copy
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from torchdata.stateful_dataloader import StatefulDataLoader
from torchdata.stateful_dataloader.sampler import BatchSampler, StatefulDistributedSampler

from tests.benchmarks.peers.cases import BATCH, SEED, SHARD, SHARDS
from tests.benchmarks.peers.measuring import Iteration, Peer, loaded, main
from tests.benchmarks.peers.torch_rows import VARIANTS, Sized, rows_by


def loader_of(size: int, ranks: int, rank: int, batch: int) -> Any:
    """Makes the loader of one rank."""
    dataset: Any = Sized(size)
    sampler = StatefulDistributedSampler(dataset, ranks, rank, seed=SEED)
    return StatefulDataLoader(dataset, batch, sampler=sampler, collate_fn=list)


def state_after(size: int, steps: int) -> dict[str, Any]:
    """Gives the state of a loader after some batches: that after one batch, with its counters set.

    To read half of a large epoch first would take longer than what is measured; a test compares the two.
    """
    loader = loader_of(size, SHARDS, SHARD, BATCH)
    next(iter(loader))
    state = copy.deepcopy(loader.state_dict())
    state["_num_yielded"] = state["_sampler_iter_yielded"] = steps
    state["_sampler_iter_state"]["samples_yielded"] = steps * BATCH
    state["_sampler_iter_state"]["sampler_state"]["yielded"] = steps * BATCH
    return state


class Torchdata(Peer):
    """What torchdata offers on top of torch."""

    packages = ("torchdata", "torch")
    variants = tuple(VARIANTS)
    rules = ("`StatefulDistributedSampler`",)
    lacks: Mapping[str, str] = {"seek": "by its state only"}

    def batches(self, size: int) -> Iterator[list[int]]:
        sampler = StatefulDistributedSampler(Sized(size), SHARDS, SHARD, seed=SEED)  # type: ignore[arg-type]
        return iter(BatchSampler(sampler, BATCH, drop_last=False))

    def resume(self, size: int) -> Callable[[], Any]:
        state = state_after(size, size // SHARDS // BATCH // 2)
        return loaded(lambda: loader_of(size, SHARDS, SHARD, BATCH), state)

    def rows(self, count: int, workers: int, variant: str) -> Callable[[], Iterable[Any]]:
        return rows_by(StatefulDataLoader, count, workers, variant)

    def iterate(self, rule: str, size: int, ranks: int, rank: int, batch: int, state: Any) -> Iteration:
        loader = loader_of(size, ranks, rank, batch)
        if state is not None:
            loader.load_state_dict(json.loads(state))
        return loader, loader.state_dict


if __name__ == "__main__":
    main(Torchdata())
