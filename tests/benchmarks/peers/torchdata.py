"""torchdata: `StatefulDataLoader` over its `StatefulDistributedSampler`."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
import torchdata
from torchdata.stateful_dataloader import StatefulDataLoader
from torchdata.stateful_dataloader.sampler import BatchSampler, StatefulDistributedSampler

from tests.benchmarks.peers.cases import BATCH, SEED, SHARD, SHARDS
from tests.benchmarks.peers.measuring import NotOffered, main
from tests.benchmarks.peers.torch_rows import VARIANTS, Sized


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


class Torchdata:
    """What torchdata offers on top of torch."""

    def versions(self) -> dict[str, str]:
        return {"torchdata": torchdata.__version__, "torch": torch.__version__}

    def batches(self, size: int) -> Iterator[list[int]]:
        sampler = StatefulDistributedSampler(Sized(size), SHARDS, SHARD, seed=SEED)  # type: ignore[arg-type]
        return iter(BatchSampler(sampler, BATCH, drop_last=False))

    def seek(self, size: int) -> Callable[[], Any]:
        raise NotOffered("by its state only")

    def resume(self, size: int) -> Callable[[], Any]:
        state = state_after(size, size // SHARDS // BATCH // 2)

        def work() -> Any:
            resumed = loader_of(size, SHARDS, SHARD, BATCH)
            resumed.load_state_dict(state)
            return next(iter(resumed))

        return work

    def variants(self) -> list[str]:
        return list(VARIANTS)

    def rows(self, count: int, workers: int, variant: str) -> Callable[[], Iterable[Any]]:
        kind, collate = VARIANTS[variant]
        dataset: Any = kind(count)
        loader = StatefulDataLoader(dataset, BATCH, shuffle=True, num_workers=workers, collate_fn=collate)
        return lambda: loader

    def rules(self) -> list[str]:
        return ["`StatefulDistributedSampler`"]

    def read(
        self, rule: str, size: int, ranks: int, batch: int, states: list[Any] | None, steps: int | None
    ) -> tuple[list[int], list[Any]]:
        received: list[int] = []
        after = []
        for rank in range(ranks):
            loader = loader_of(size, ranks, rank, batch)
            if states is not None:
                loader.load_state_dict(json.loads(states[rank]))
            for step, ids in enumerate(loader, start=1):
                received += ids
                if step == steps:
                    break
            after.append(json.dumps(loader.state_dict()))
        return received, after


if __name__ == "__main__":
    main(Torchdata())
