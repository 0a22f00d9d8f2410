"""samplerkit, as one of the peers."""

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import samplerkit as sk
from tests.benchmarks.peers.cases import BATCH, SEED, SHARD, SHARDS
from tests.benchmarks.peers.measuring import Iteration, Peer, loaded, main
from tests.benchmarks.peers.torch_rows import VARIANTS, Sized

TAILS: dict[str, Any] = {"`Loader`": "pad", '`Loader`, `tail="ragged"`': "ragged"}


class Samplerkit(Peer):
    """GLOBAL order through the batch sampler for torch, and the loader."""

    packages = ("samplerkit", "numpy", "torch")
    variants = tuple(VARIANTS)
    rules = tuple(TAILS)

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
        return loaded(loader, state)

    def rows(self, count: int, workers: int, variant: str) -> Callable[[], Iterable[Any]]:
        kind, collate = VARIANTS[variant]
        sampler = sk.RandomSampler(seed=SEED)
        loader = sk.Loader(kind(count), sampler, batch_size=BATCH, num_workers=workers, collate_fn=collate)
        return lambda: loader

    def iterate(self, rule: str, size: int, ranks: int, rank: int, batch: int, state: Any) -> Iteration:
        loader = sk.Loader(
            Sized(size),
            sk.RandomSampler(seed=SEED),
            batch_size=batch,
            world=sk.World(ranks, rank),
            tail=TAILS[rule],
            collate_fn=list,
        )
        if state is not None:
            loader.load_state_dict(json.loads(state))
        return loader, loader.state_dict


if __name__ == "__main__":
    main(Samplerkit())
