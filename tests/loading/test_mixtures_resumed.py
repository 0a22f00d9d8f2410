"""A mixture over a tree goes on with other ranks, and only as the recipe that was saved."""

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
    assert (state["algorithm"], state["lanes"], state["seed"]) == ("samplerkit-1", 4, [4, 0, 1])
    others = [loader(3, rank, workers=rank % 2) for rank in range(3)]
    for other in others:
        other.load_state_dict(state)
    assert steps(others) == whole[7:]


def test_a_state_of_another_tree_of_samplers_is_refused():
    state = loader(4, 0).state_dict(step=7)
    with pytest.raises(sk.StateError, match="seed"):
        loader(4, 0, seed=2).load_state_dict(state)


class Texts:
    """Samples of unlike lengths, of which each is a pair of its part and its number there."""

    def __init__(self, part, size):
        self.part, self.lengths = part, np.arange(size) % 7 + 1

    def __len__(self):
        return self.lengths.size

    def __getitem__(self, index):
        return self.part, index


@pytest.mark.parametrize("edits", [[], [sk.Edit(at=64, weights={"web": 1, "code": 3}, without=[5])]])
def test_batches_of_a_mixture_over_a_tree_are_read_and_resumed_on_other_ranks(edits):
    tree = sk.TreeDataset({"web": Texts("web", 100), "code": Texts("code", 60)})
    mix = sk.MixtureSampler({"web": None, "code": None}, 256, weights={"web": 3, "code": 1}, lanes=2)
    recipe = sk.TokenBatches(32, window=64, abreast=2)
    ledger = sk.Ledger(mix, edits)

    def loaders(ranks, state=None):
        made = [
            sk.Loader(
                tree, ledger, batches=recipe, collate_fn=list, world=sk.World(ranks, rank), tail="ragged"
            )
            for rank in range(ranks)
        ]
        for loader in made if state is not None else ():
            loader.load_state_dict(state)
        return made

    def read(made, steps):
        going, batches = [iter(loader) for loader in made], []
        for _ in range(steps):
            batches += [batch for batch in (next(one, None) for one in going) if batch is not None]
        return batches, made[0].state_dict()

    whole, _ = read(loaders(1), 999)
    names = list(tree.parts)
    ids = [
        int(tree.layout.part_starts[names.index(part)]) + index for batch in whole for part, index in batch
    ]
    assert sorted(ids) == sorted(ledger.order(tree)[:].tolist())
    first, state = read(loaders(2), 7)
    then, state = read(loaders(1, state), 5)
    last, _ = read(loaders(3, state), 999)
    assert sorted([*first, *then, *last]) == sorted(whole)
