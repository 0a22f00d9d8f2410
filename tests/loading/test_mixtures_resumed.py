"""A mixture by dice over a tree goes on with other ranks, and only as the recipe that was saved."""

from __future__ import annotations

import json

import numpy as np
import pytest

import samplerkit as sk

CORPUS = {
    "web": range(500),
    "code": range(1000, 1300),
    "books": sk.TreeDataset({"old": range(2000, 2100), "new": range(3000, 3200)}),
}


def loader(ranks: int, rank: int, seed: int = 1, workers: int = 0) -> sk.Loader:
    books = sk.MixtureSampler({"old": None, "new": None}, weights={"old": 1, "new": 2})
    mixture = sk.MixtureSampler(
        {"web": None, "code": sk.RandomSampler(seed=seed), "books": books},
        weights={"web": 3, "code": 1, "books": 2},
        num_samples=480,
        seed=4,
    )
    world = sk.World(ranks, rank)
    return sk.Loader(
        sk.TreeDataset(CORPUS), mixture, batch_size=24 // ranks, world=world, num_workers=workers
    )


def steps(loaders: list[sk.Loader]) -> list[list[int]]:
    """What all ranks read in each step of two epochs."""
    return [
        np.sort(np.concatenate([np.asarray(batch) for batch in batches])).tolist()
        for _ in range(2)
        for batches in zip(*loaders, strict=True)
    ]


def test_a_mixture_over_a_tree_goes_on_with_other_ranks_and_workers():
    whole = steps([loader(4, rank) for rank in range(4)])
    state = loader(4, 0).state_dict(step=7)
    assert len(json.dumps(state)) < 1000
    assert (state["algorithm"], state["lanes"], state["seed"]) == ("samplerkit-2", 4, [4, 0, 1])
    others = [loader(3, rank, workers=rank % 2) for rank in range(3)]
    for other in others:
        other.load_state_dict(state)
    assert steps(others) == whole[7:]


def test_a_state_of_another_tree_of_samplers_is_refused():
    state = loader(4, 0).state_dict(step=7)
    with pytest.raises(sk.StateError, match="seed"):
        loader(4, 0, seed=2).load_state_dict(state)
