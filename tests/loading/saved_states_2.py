"""What else saves a state of schema 2: batches, ledgers, mixtures of trees, windows of tokens."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import samplerkit as sk
from tests.loading.saved_states import SIZE, TWO, Numbers, as_list, loader

LENGTHS = [1 + 5 * number % 7 for number in range(SIZE)]
TREE = {"web": sk.Layout([9, 4]), "code": sk.Layout([8]), "books": sk.Layout([6])}


class Trees(Numbers):
    """Sample i is i, in a tree of three parts."""

    layout = sk.Layout.tree(TREE)


def by_batches(recipe: sk.BatchRecipe, sampler: sk.Sampler, **options: Any) -> sk.Loader:
    return loader(sampler, batch_size=None, batches=recipe, **options)


def ledger(below: sk.Sampler, *edits: sk.Edit) -> sk.Ledger:
    return sk.Ledger(below, edits)


def mixture(**options: Any) -> sk.MixtureSampler:
    sources = {"web": sk.RandomSampler(seed=2, shuffle="files"), "code": None, "books": None}
    weights = {"web": 3, "code": 2, "books": 1}
    return sk.MixtureSampler(sources, weights=weights, seed=4, **options)


def of_trees(sampler: sk.Sampler, **options: Any) -> sk.Loader:
    return sk.Loader(Trees(), sampler, batch_size=3, world=TWO, collate_fn=as_list, **options)


def of_tokens(folder: Path, sampler: sk.Sampler, **options: Any) -> sk.Loader:
    for number, length in enumerate((100, 57, 130)):
        np.save(folder / f"{number}.npy", np.arange(length, dtype=np.uint16) + 1000 * number)
    windows = sk.TokenDataset([folder / f"{number}.npy" for number in range(3)], 6, block_len=12, seed=1)
    return sk.Loader(windows, sampler, batch_size=2, world=TWO, collate_fn=first_tokens, **options)


def first_tokens(rows: Any) -> list[int]:
    return [int(row[0]) for row in rows]


def blocks(below: sk.Sampler | None = None) -> sk.Sampler:
    sampler = sk.BlockSampler(2, seed=3)
    sampler.add_child(below)
    return sampler


KINDS_2: dict[str, Callable[[Path], Any]] = {
    "batches by tokens": lambda _: by_batches(
        sk.TokenBatches(12, lengths=LENGTHS), sk.RandomSampler(seed=3), tail="split"
    ),
    "batches by tokens, windows": lambda _: by_batches(
        sk.TokenBatches(12, lengths=LENGTHS, window=9), sk.RandomSampler(seed=3, shuffle="files")
    ),
    "batches in buckets": lambda _: by_batches(
        sk.BucketBatches([2, 4, 7], 3, lengths=LENGTHS), sk.RandomSampler(seed=3), tail="drop"
    ),
    "packs": lambda _: by_batches(sk.PackBatches(14, lengths=LENGTHS), sk.RandomSampler(seed=3)),
    "ledger": lambda _: loader(
        ledger(sk.RandomSampler(seed=3), sk.Edit(at=12, skip=4), sk.Edit(at=36, without=[5, 11]))
    ),
    "ledger of batches": lambda _: by_batches(
        sk.TokenBatches(12, lengths=LENGTHS, window=9),
        ledger(sk.RandomSampler(seed=3), sk.Edit(at=9, skip=4)),
    ),
    "mixture of a tree": lambda _: of_trees(mixture()),
    "mixture of a tree, restarted": lambda _: of_trees(mixture(passes="restart", num_samples=20)),
    "mixture, edited": lambda _: of_trees(
        ledger(mixture(num_samples=24), sk.Edit(at=30, weights={"web": 1, "code": 1, "books": 4}))
    ),
    "mixture by a schedule": lambda _: loader(sk.MixtureSampler([3, 1, 2, 1], seed=4)),
    "repeat factors": lambda _: loader(sk.RepeatFactorSampler([1 + i % 3 / 2 for i in range(SIZE)], seed=4)),
    "tokens": lambda folder: of_tokens(folder, sk.RandomSampler(seed=3)),
    "tokens in blocks": lambda folder: of_tokens(folder, blocks(), tail="ragged"),
    "tokens in blocks of a ledger": lambda folder: of_tokens(
        folder, blocks(ledger(sk.RandomSampler(seed=3), sk.Edit(at=8, skip=2))), tail="ragged"
    ),
}
