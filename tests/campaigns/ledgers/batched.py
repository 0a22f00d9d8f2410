"""Jobs that read by a recipe for batches: their unit is a batch, as the parts of samples that it holds."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property
from random import Random
from typing import Any

import numpy as np

import samplerkit as sk
from samplerkit.batches.segments import Packs
from tests.campaigns.ledgers.batch_recipes import (
    Part,
    leaves_out,
    parts_of,
    parts_of_all,
    recipe_of,
    require_limits,
)
from tests.campaigns.ledgers.batch_samples import InParts, Pairs, Samples, lengths_of, parts_in, sampler_of
from tests.campaigns.ledgers.model import Got, require

KINDS = ("tokens", "tokens", "packs", "packs", "buckets", "keys", "classes", "of one's own")
COLLATES: tuple[dict[str, Any], ...] = ({"collate_fn": list}, {"collate_fn": sk.PadCollate()}, {})
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
        in_parts: whether the dataset gives parts of samples.
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
        """The values of `tail` that are possible."""
        return ["pad", "drop", "ragged", *["split"] * self.batches.can_be_split]

    def sampler(self, ranks: int, rank: int) -> sk.Sampler:
        """The chain, which names no number of ranks."""
        return self.chain

    @property
    def can_be_edited(self) -> bool:
        """Whether the run is edited while it is read."""
        return isinstance(self.chain, sk.Ledger)

    def edited(self, edits: tuple[sk.Edit, ...]) -> BatchedRecipe:
        """The same, with these edits."""
        return replace(self, chain=sk.Ledger(self.chain.get_child(), edits))

    def options(self, draw: Random) -> dict[str, Any]:
        """Draws further options of the loaders of a start: a collate function, and threads."""
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
        """The batches of an epoch, with the parts of its order that the recipe keeps."""
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
        require(all(parts), f"{batch.tolist()} has samples that are to be left out")
        require_limits(self.batches, self.lengths, batch.tolist())
        return tuple(sorted(part for (part,) in parts))

    def _require_parts(self, epoch: int, planned: Counter[Part], dropped: int) -> None:
        data = self.dataset(expecting=False)
        order = np.asarray(self.chain.undealt_order(data, epoch, constants=self._constants)).tolist()
        expected = parts_of_all(self.batches, self.lengths, order)
        require(not planned - expected, f"the plan holds {planned - expected} too much")
        require(leaves_out(self.batches) or planned == expected, f"the plan has no {expected - planned}")
        if self.batches.num_batches is None:
            present = sum(times for (_, start, _), times in planned.items() if not start)
            require(dropped == len(order) - present, f"{dropped} dropped, and {len(order) - present} lacking")

    def got(self, loader: Any, batch: Any, state: dict[str, Any]) -> Got:
        """The last step of a rank: one batch."""
        last, parts = loader.step - 1, parts_in(batch)
        ids, pads = loader.ids(last).tolist(), loader.pads(last)
        require([part[0] for part in parts] == ids, f"{parts} are read, not {ids}")
        require(bool(pads.all()) == bool(pads.any()), "a batch of pads and others")
        tokens = (loader.tokens(last), sum(part[2] for part in parts)) if self.kind == "packs" else None
        if isinstance(batch, list) and self.kind != "packs":  # nothing is truncated there
            require(all(length == self.lengths[id] for id, _, length in parts), f"{parts} are not whole")
            parts = [parts_of(self.batches, self.lengths, id)[0] for id in ids]
        return Got(([(loader.epoch, tuple(sorted(parts)))], [bool(pads.any())]), state, tokens)


def draw_batched(draw: Random, most_ranks: int) -> BatchedRecipe:
    """Draws samples, a chain and a recipe that go together."""
    kind, size = draw.choice(KINDS), draw.choice([3, 5, 9, 20])
    size = max(size, 6) if kind == "classes" else size
    lengths = lengths_of(draw, size)
    recipe = recipe_of(draw, kind, lengths)
    chain = sampler_of(draw, size, fixes_a_set=kind == "classes")
    if getattr(recipe, "window", None) and chain.chain.deal is None and draw.random() < 0.8:
        chain = sk.Ledger(chain)
    drawn = BatchedRecipe(kind, recipe, lengths, chain, 2, kind == "packs" and draw.random() < 0.5)
    return drawn if drawn.keeps_ranks else replace(drawn, first_ranks=draw.randint(1, most_ranks))
