"""samplerkit, as one of the peers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import torch

import samplerkit as sk
from tests.benchmarks.peers.cases import BATCH, SEED, SHARD, SHARDS
from tests.benchmarks.peers.measuring import main
from tests.benchmarks.peers.torch_rows import VARIANTS, Sized

TAILS = {"`Loader`": "pad", '`Loader`, `tail="ragged"`': "ragged"}


class Samplerkit:
    """GLOBAL order through the batch sampler for torch, and the loader."""

    def versions(self) -> dict[str, str]:
        return {"samplerkit": sk.__version__, "numpy": np.__version__, "torch": torch.__version__}

    def batches(self, size: int) -> Iterator[list[int]]:
        sampler = sk.TorchSampler(sk.DistributedSampler(SHARDS, SHARD, seed=SEED), Sized(size))
        return iter(sk.TorchBatchSampler(sampler, BATCH))

    def seek(self, size: int) -> Callable[[], Any]:
        order = sk.DistributedSampler(SHARDS, SHARD, seed=SEED).order(size)
        middle = len(order) // 2
        return lambda: order[middle : middle + BATCH]

    def resume(self, size: int) -> Callable[[], Any]:
        def loader() -> sk.Loader:
            world = sk.World(SHARDS, SHARD)
            sampler = sk.DistributedSampler(seed=SEED)
            return sk.Loader(Sized(size), sampler, batch_size=BATCH, world=world, collate_fn=list)

        first = loader()
        state = json.loads(json.dumps(first.state_dict(step=len(first) // 2)))

        def work() -> Any:
            resumed = loader()
            resumed.load_state_dict(state)
            return next(iter(resumed))

        return work

    def variants(self) -> list[str]:
        return list(VARIANTS)

    def rows(self, count: int, workers: int, variant: str) -> Callable[[], Iterable[Any]]:
        kind, collate = VARIANTS[variant]
        sampler = sk.RandomSampler(seed=SEED)
        loader = sk.Loader(kind(count), sampler, batch_size=BATCH, num_workers=workers, collate_fn=collate)
        return lambda: loader

    def rules(self) -> list[str]:
        return list(TAILS)

    def read(
        self, rule: str, size: int, ranks: int, batch: int, states: list[Any] | None, steps: int | None
    ) -> tuple[list[int], list[Any]]:
        received: list[int] = []
        after = []
        for rank in range(ranks):
            tail: Any = TAILS[rule]
            loader = sk.Loader(
                Sized(size),
                sk.RandomSampler(seed=SEED),
                batch_size=batch,
                world=sk.World(ranks, rank),
                tail=tail,
                collate_fn=list,
            )
            if states is not None:
                loader.load_state_dict(json.loads(states[0]))
            for ids in loader:
                received += ids
                if loader.step == steps:
                    break
            after.append(json.dumps(loader.state_dict()))
        return received, after


if __name__ == "__main__":
    main(Samplerkit())
