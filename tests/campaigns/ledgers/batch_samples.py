"""Samples of lengths that are difficult for recipes, and chains that read them."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch

import samplerkit as sk
from tests.campaigns.ledgers.batch_recipes import Part
from tests.campaigns.ledgers.model import require
from tests.chains import under

_STRIDE = 1 << 20
LENGTHS = ("zeros", "some zeros", "ties", "two values", "one giant", "any")


def lengths_of(dice: random.Random, size: int) -> list[int]:
    """Draws lengths of one kind: zeros, ties, or a giant among them as often as any others."""
    kind = dice.choice(LENGTHS)
    if kind == "zeros":
        return [0] * size
    if kind == "ties":
        return [dice.randint(1, 12)] * size
    if kind == "one giant":
        return dice.sample([*(dice.randint(1, 4) for _ in range(size - 1)), dice.randint(40, 90)], size)
    values = {"some zeros": [0, 0, 3, 11], "two values": [4, 9], "any": range(1, 25)}[kind]
    return [dice.choice(values) for _ in range(size)]


class Samples:
    """Sample i has tokens that no other sample has, and its number."""

    def __init__(self, lengths: list[int]) -> None:
        self.tokens = lengths
        self.layout = sk.Layout([len(lengths) // 3, 0, len(lengths) - len(lengths) // 3])

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, id: int) -> dict[str, Any]:
        tokens = torch.arange(self.tokens[id]) + id * _STRIDE
        return {"tokens": tokens, "id": id}


class Pairs(Samples):
    """Each sample has a second sequence, as long as the first one of the sample at its place from the end."""

    def __getitem__(self, id: int) -> dict[str, Any]:
        return {**super().__getitem__(id), "other": torch.ones(self.tokens[-1 - id])}


class InParts(Samples):
    """Samples of which parts can be requested."""

    def __getsegments__(self, segments: Any) -> list[Any]:
        return [
            {"tokens": self[id]["tokens"][start : start + length], "id": id}
            for id, start, length in segments.tolist()
        ]


def sampler_of(dice: random.Random, size: int, *, fixes_a_set: bool) -> sk.Sampler:
    """Draws a chain over so many samples."""
    seed, half = dice.randrange(9), max(1, size // 2)
    makes = [
        lambda: sk.RandomSampler(seed=seed),
        lambda: sk.DistributedSampler(shuffle=sk.Shuffle.GLOBAL, seed=seed),
        lambda: sk.SubsetRandomSampler(range(0, size, 2) if not fixes_a_set else range(size), seed=seed),
        lambda: under(sk.RandomSampler(seed=seed), sk.SequentialSampler(0, size)),
    ]
    if not fixes_a_set:
        makes += [
            sk.SequentialSampler,
            lambda: sk.RandomSampler(seed=seed, shuffle="partial", partial_size=4),
            lambda: sk.DistributedSampler(shuffle="files", seed=seed),
            lambda: sk.WeightedRandomSampler(np.arange(1, size + 1), num_samples=size + 2, seed=seed),
            lambda: sk.RandomSampler(replacement=True, seed=seed),
            lambda: sk.MixtureSampler([2, 0, 1], num_samples=size + 2, seed=seed),
            lambda: under(sk.SequentialSampler(0, half), sk.RandomSampler(seed=seed)),
            lambda: sk.IterSampler([*range(size), *range(half)]),
            lambda: under(sk.SequentialSampler(), sk.DistributedSampler(2, shuffle=True, seed=seed)),
        ]
    return dice.choice(makes)()


def parts_in(batch: Any) -> list[Part]:
    """The parts of samples in a batch, collated in any way, found from its values alone."""
    if isinstance(batch, list):
        rows, ids = [one["tokens"] for one in batch], [one["id"] for one in batch]
    elif "tokens" in batch:
        rows = [row[mask] for row, mask in zip(batch["tokens"], batch["tokens_mask"], strict=True)]
        ids = batch["id"].tolist()
    else:
        packs = zip(batch["input_ids"], batch["segment_ids"], strict=True)
        rows = [row[marks == mark] for row, marks in packs for mark in range(1, int(marks.max()) + 1)]
        ids = batch["id"].tolist()
    parts = []
    for id, tokens in zip(ids, rows, strict=True):
        first = int(tokens[0]) - id * _STRIDE if len(tokens) else 0
        expected = torch.arange(len(tokens)) + first + id * _STRIDE
        require(torch.equal(tokens.long(), expected), f"tokens of sample {id} are not in a row")
        parts.append((id, first, len(tokens)))
    return parts
