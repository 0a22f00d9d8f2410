"""Random datasets and chains of samplers: those that the laws of samplers test."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache
from random import Random
from typing import Any

import numpy as np
from hypothesis import given, seed, settings

import samplerkit as sk
from tests import conftest  # noqa: F401  # with it Hypothesis draws the same in each process
from tests.campaigns.ledgers.model import Got, require
from tests.testing.strategies import Case, chains


class Numbers:
    """Sample i is (the epoch that `set_epoch` set in the reading process, i)."""

    def __init__(self, dataset: int | sk.Layout) -> None:
        if isinstance(dataset, sk.Layout):
            self.layout = dataset
        self._size = len(sk.Layout.of(dataset))
        self._epoch: int | None = None

    def __len__(self) -> int:
        return self._size

    def set_epoch(self, epoch: int) -> None:
        self._epoch = epoch

    def __getitem__(self, index: int) -> tuple[int | None, int]:
        return self._epoch, index


class Expecting(Numbers):
    """Reads whole batches, and only the expected ones."""

    def expect(self, batches: Iterable[Any]) -> None:
        self._expected = iter(batches)

    def __getitems__(self, ids: Any) -> list[tuple[int | None, int]]:
        expected = next(self._expected).tolist()
        require(ids.tolist() == expected, f"{expected} are expected, and {ids.tolist()} are requested")
        return [self[index] for index in expected]


@dataclass(frozen=True)
class Recipe:
    """A dataset and a chain of samplers over it.

    Args:
        case: both; the laws of samplers test its orders.
        first_ranks: those of the first start.
        edits: of a ledger above the chain; None where it has none.
    """

    case: Case
    first_ranks: int
    edits: tuple[sk.Edit, ...] | None

    tails = ("pad", "drop", "ragged")
    """The values of `tail` that are possible."""

    @property
    def keeps_ranks(self) -> bool:
        """Whether the run cannot continue with another number of ranks."""
        return not self.case.deals_at_the_root

    @property
    def fewest_ranks(self) -> int:
        """The offset of a deal is a rank."""
        return max(1, self.case.offset)

    def options(self, draw: Random) -> dict[str, Any]:
        """Draws further options of the loaders of a start: the samples of a rank in a step."""
        return {"batch_size": draw.choice([1, 2, 3, 4, 5, 8]), "collate_fn": list}

    def dataset(self, *, expecting: bool) -> Numbers:
        """The dataset of one rank."""
        return (Expecting if expecting else Numbers)(self.case.dataset)

    def got(self, loader: Any, batch: Any, state: dict[str, Any]) -> Got:
        """The last step of a rank."""
        last = loader.step - 1
        ids = loader.ids(last).tolist()
        require([index for _, index in batch] == ids, f"{batch} is read, not {ids}")
        return Got((batch, loader.pads(last).tolist()), state)

    def sampler(self, ranks: int, rank: int) -> sk.Sampler:
        """Builds the chain for one rank; its distributed sampler may have explicit numbers of the job."""
        links = [*self.case.links]
        if self.case.dealer is not None:
            dealer = links[self.case.dealer]
            numbers = {"num_shards": ranks, "shard_id": rank}
            numbers = {name: value for name, value in numbers.items() if dealer.arguments[name] is not None}
            links[self.case.dealer] = replace(dealer, arguments={**dealer.arguments, **numbers})
        chain = replace(self.case, links=tuple(links)).sampler(rank)
        return chain if self.edits is None else sk.Ledger(chain, self.edits)

    @property
    def can_be_edited(self) -> bool:
        """Whether the run is edited while it is read."""
        return self.edits is not None

    def edited(self, edits: tuple[sk.Edit, ...]) -> Recipe:
        """The same, with these edits."""
        return replace(self, edits=edits)

    def order(self, epoch: int) -> list[int]:
        """The whole epoch in a run that began on `first_ranks`, evaluated without a loader."""
        sampler = self.sampler(self.first_ranks, 0)
        constants = sampler.chain.constants(sk.World(self.first_ranks, 0))
        return np.asarray(sampler.undealt_order(self.case.dataset, epoch, constants=constants)).tolist()


@cache
def cases() -> list[tuple[Case, int]]:
    """Chains, with the lengths of their orders, drawn once: that takes longer than to run most jobs."""
    drawn: list[Case] = []

    @seed(1)
    @settings(max_examples=200, deadline=None, derandomize=False, database=None)
    @given(chains())
    def draw(case: Case) -> None:
        drawn.append(case)

    draw()
    return [(case, len(case.undealt())) for case in drawn]


def draw_recipe(draw: Random, most_ranks: int) -> Recipe:
    """Draws a dataset and a chain, a long order more often than a short one."""
    fitting = [(case, length) for case, length in cases() if case.num_shards <= most_ranks]
    ((case, _),) = draw.choices(fitting, [1 + length for _, length in fitting])
    ranks = case.num_shards if case.dealer is not None else draw.randint(1, most_ranks)
    is_dealt = any(link.is_distributed for link in case.links)
    is_edited = len(case.layout) and not is_dealt and draw.random() < 0.8
    # A ledger reads epochs of one length; PK over what is drawn with replacement meets other classes in each.
    lengths = {len(replace(case, epoch=epoch).undealt()) for epoch in range(8 if is_edited else 0)}
    return Recipe(case, ranks, () if len(lengths) == 1 else None)
