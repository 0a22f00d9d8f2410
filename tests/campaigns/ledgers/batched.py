"""Jobs that read by a recipe for batches: their unit is a batch; samples have difficult lengths."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property
from random import Random
from typing import Any

import numpy as np
import torch

import samplerkit as sk
from samplerkit.batches.segments import Packs
from tests.campaigns.ledgers.chains import (
    Part,
    expected_parts,
    leaves_out,
    parts_of,
    recipe_of,
    require_limits,
)
from tests.campaigns.ledgers.model import StepResult, require
from tests.chains import under

_STRIDE = 1 << 20
LENGTHS = ("zeros", "some zeros", "ties", "two values", "one giant", "any")


def lengths_of(rng: random.Random, size: int) -> list[int]:
    """Draws lengths of one kind: zeros, ties, or a giant among them as often as any others."""
    kind = rng.choice(LENGTHS)
    if kind == "zeros":
        return [0] * size
    if kind == "ties":
        return [rng.randint(1, 12)] * size
    if kind == "one giant":
        return rng.sample([*(rng.randint(1, 4) for _ in range(size - 1)), rng.randint(40, 90)], size)
    values = {"some zeros": [0, 0, 3, 11], "two values": [4, 9], "any": range(1, 25)}[kind]
    return [rng.choice(values) for _ in range(size)]


class Samples:
    """Sample i has unique tokens, in pairs a second sequence, and its number."""

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
    """Samples of which parts can be read."""

    def __getsegments__(self, segments: Any) -> list[Any]:
        return [
            {"tokens": self[id]["tokens"][start : start + length], "id": id}
            for id, start, length in segments.tolist()
        ]


def sampler_of(rng: random.Random, size: int, *, fixes_a_set: bool) -> sk.Sampler:
    """Draws a chain over so many samples."""
    seed, half = rng.randrange(9), max(1, size // 2)
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
    return rng.choice(makes)()


def parts_in(batch: Any) -> list[Part]:
    """The parts in a batch, however it was collated, by its values alone."""
    if isinstance(batch, list):
        rows, ids = [sample["tokens"] for sample in batch], [sample["id"] for sample in batch]
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


KINDS = ("tokens", "tokens", "packs", "packs", "buckets", "keys", "classes", "custom")
COLLATES: tuple[dict[str, Any], ...] = (
    {"collate_fn": list},
    {"collate_fn": sk.PadCollate()},
    {"collate_fn": sk.PackCollate("tokens")},
)
"""Samples as they are, padded, and packed: the last one for packs alone."""

Batch = tuple[Part, ...]


@dataclass(frozen=True)
class BatchedRecipe:
    """Samples of some lengths, a chain over them, and a recipe for batches.

    Args:
        kind: of the recipe.
        batches: the recipe.
        lengths: of the samples.
        chain: the sampler.
        first_ranks: those of the first start.
        in_parts: whether the dataset reads parts of samples.
    """

    kind: str
    batches: Any
    lengths: list[int]
    chain: sk.Sampler
    first_ranks: int
    in_parts: bool

    @property
    def keeps_ranks(self) -> bool:
        """Whether the run cannot continue with another number of ranks."""
        return self.chain.deal is None and self.chain.chain.deal is not None

    fewest_ranks = 1

    @property
    def tails(self) -> list[str]:
        """The tails that a loader may have."""
        return ["pad", "drop", "ragged", *["split"] * self.batches.can_be_split]

    def sampler(self, ranks: int, rank: int) -> sk.Sampler:
        """The chain, without numbers of a job."""
        return self.chain

    @property
    def can_be_edited(self) -> bool:
        """Whether the run is edited while it is read."""
        return isinstance(self.chain, sk.Ledger)

    def edited(self, edits: tuple[sk.Edit, ...]) -> BatchedRecipe:
        """The same, with these edits."""
        return replace(self, chain=sk.Ledger(self.chain.get_child(), edits))

    def options(self, draw: Random) -> dict[str, Any]:
        """Draws the other options of the loaders of a start: how to collate, and threads."""
        collate = draw.choice(COLLATES[: 3 if self.kind == "packs" else 2])
        threads = {"num_workers": 2, "workers": "threads"} if draw.random() < 0.15 else {}
        return {"batches": self.batches, **collate, **threads}

    def dataset(self, *, expecting: bool) -> Samples:
        """The dataset of one rank."""
        if np.ndim(self.batches.lengths) == 2:
            return Pairs(self.lengths)
        return (InParts if self.in_parts else Samples)(self.lengths)

    @cached_property
    def _constants(self) -> Any:
        return self.chain.chain.constants(sk.World(self.first_ranks, 0))

    @cached_property
    def _plans(self) -> Any:
        abreast = self.batches.abreast or self.first_ranks
        data = self.dataset(expecting=False)
        return self.batches.over(self.chain, data, constants=self._constants, abreast=abreast)

    def order(self, epoch: int) -> list[Batch]:
        """The batches of an epoch, with the parts that the recipe keeps of its order."""
        plan = self._plans.plan(epoch)
        batches = [self._planned(batch) for batch in plan]
        if self.kind != "classes":
            self._require_parts(epoch, Counter(sum(batches, ())), plan.dropped)
        return batches

    def _planned(self, batch: Any) -> Batch:
        if isinstance(batch, Packs):
            columns = (batch.ids.tolist(), batch.starts.tolist(), batch.lengths.tolist())
            return tuple(sorted(zip(*columns, strict=True)))
        parts = [parts_of(self.batches, self.lengths, id) for id in batch.tolist()]
        require(all(parts), f"{batch.tolist()} has samples that must be left out")
        require_limits(self.batches, self.lengths, batch.tolist())
        return tuple(sorted(part for (part,) in parts))

    def _require_parts(self, epoch: int, planned: Counter[Part], dropped: int) -> None:
        data = self.dataset(expecting=False)
        order = np.asarray(self.chain.undealt_order(data, epoch, constants=self._constants)).tolist()
        expected = expected_parts(self.batches, self.lengths, order)
        require(not planned - expected, f"the plan holds {planned - expected} too much")
        require(leaves_out(self.batches) or planned == expected, f"the plan has no {expected - planned}")
        if self.batches.num_batches is None:
            full = sum(times for (_, start, _), times in planned.items() if not start)
            require(dropped == len(order) - full, f"{dropped} dropped, and {len(order) - full} lacking")

    def step_result(self, loader: Any, batch: Any, state: dict[str, Any]) -> StepResult:
        """The result of the last step of a rank: one batch."""
        last, parts = loader.step - 1, parts_in(batch)
        ids, pads = loader.ids(last).tolist(), loader.pads(last)
        require([part[0] for part in parts] == ids, f"{parts} are read, and the ids are {ids}")
        require(bool(pads.all()) == bool(pads.any()), "a batch of pads and others")
        tokens = (loader.tokens(last), sum(part[2] for part in parts)) if self.kind == "packs" else None
        if isinstance(batch, list) and self.kind != "packs":  # nothing is truncated there
            require(all(length == self.lengths[id] for id, _, length in parts), f"{parts} are not whole")
            parts = [parts_of(self.batches, self.lengths, id)[0] for id in ids]
        return StepResult(([(loader.epoch, tuple(sorted(parts)))], [bool(pads.any())]), state, tokens)


def draw_batched(draw: Random, most_ranks: int) -> BatchedRecipe:
    """Draws samples, a chain and a recipe that go together."""
    kind, size = draw.choice(KINDS), draw.choice([3, 5, 9, 20])
    size = max(size, 6) if kind == "classes" else size
    lengths = lengths_of(draw, size)
    recipe = recipe_of(draw, kind, lengths)
    chain = sampler_of(draw, size, fixes_a_set=kind == "classes")
    if getattr(recipe, "window", None) and chain.chain.deal is None and draw.random() < 0.8:
        chain = sk.Ledger(chain)
    batched = BatchedRecipe(kind, recipe, lengths, chain, 2, kind == "packs" and draw.random() < 0.5)
    return batched if batched.keeps_ranks else replace(batched, first_ranks=draw.randint(1, most_ranks))
