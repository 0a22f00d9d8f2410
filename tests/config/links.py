"""Samplers of every kind, as a config writes them and as they are built by hand."""

from __future__ import annotations

import itertools

import samplerkit as sk

SIZE = 30
LABELS = [number % 4 for number in range(SIZE)]
FILES = sk.Layout([5, 12, 0, 13])

MODES = ["global", "partial", "files", "infile", "adaptive"]
LINKS = [
    ({"kind": "sequential"}, sk.SequentialSampler),
    ({"kind": "sequential", "start_index": 3, "num_samples": 20}, lambda: sk.SequentialSampler(3, 20)),
    ({"kind": "random"}, sk.RandomSampler),
    (
        {"kind": "random", "replacement": True, "num_samples": 9, "seed": 4},
        lambda: sk.RandomSampler(True, 9, seed=4),
    ),
    *(
        (
            {"kind": "random", "shuffle": mode, "partial_size": 4, "adaptive_threshold": 8, "lanes": 3},
            lambda mode=mode: sk.RandomSampler(shuffle=mode, partial_size=4, adaptive_threshold=8, lanes=3),
        )
        for mode in MODES
    ),
    (
        {"kind": "random", "shuffle": "partial", "partial_size": 4, "pools": 2},
        lambda: sk.RandomSampler(shuffle="partial", partial_size=4, pools=2),
    ),
    ({"kind": "subset", "indices": [7, 2, 7]}, lambda: sk.SubsetSampler([7, 2, 7])),
    (
        {"kind": "subset_random", "indices": [9, 1, 5], "num_samples": 2, "seed": 3},
        lambda: sk.SubsetRandomSampler([9, 1, 5], 2, seed=3),
    ),
    (
        {"kind": "weighted_random", "weights": [1, 0.5, 0.0, 2]},
        lambda: sk.WeightedRandomSampler([1, 0.5, 0.0, 2]),
    ),
    (
        {"kind": "weighted_random", "weights": [1.0, 1.0, 5.0], "num_samples": 2, "replacement": False},
        lambda: sk.WeightedRandomSampler([1.0, 1.0, 5.0], 2, False),
    ),
    (
        {"kind": "pk", "num_val": 2, "shuffle": True, "labels": LABELS, "seed": 1},
        lambda: sk.PKSampler(2, None, True, labels=LABELS, seed=1),
    ),
    ({"kind": "iter", "sampler": [5, 1, 8], "num_samples": 2}, lambda: sk.IterSampler([5, 1, 8], 2)),
    *(
        (
            {"kind": "distributed", "num_shards": 3, "shard_id": 2, "shuffle": mode, "offset": offset},
            lambda mode=mode, offset=offset: sk.DistributedSampler(3, 2, mode, offset=offset),
        )
        for mode, offset in itertools.product([True, False, *MODES], [-1, 1])
    ),
    (
        {"kind": "block", "pool": 2, "seed": 7, "windows_per_block": 1},
        lambda: sk.BlockSampler(2, seed=7, windows_per_block=1),
    ),
    ({"kind": "distributed", "num_shards": "auto", "shard_id": "auto"}, sk.DistributedSampler),
]


def orders(sampler, dataset=FILES):
    return [list(sampler.order(dataset, epoch)) for epoch in range(3)]
