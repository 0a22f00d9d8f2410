"""Chains of samplers, and recipes for batches, that the cases of random ledgers read by."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache
from random import Random
from typing import Any

import numpy as np
from hypothesis import given, seed, settings

import samplerkit as sk
from tests import conftest  # noqa: F401  # with it Hypothesis draws the same in each process
from tests.campaigns.ledgers.model import StepResult, require
from tests.testing.strategies import Case, chains


class Numbers:
    """Sample i is (the epoch that was set in the reading process, i)."""

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
        require(ids.tolist() == expected, f"{expected} were expected, and {ids.tolist()} are requested")
        return [self[index] for index in expected]


@dataclass(frozen=True)
class Recipe:
    """A dataset and a chain of samplers over it.

    Args:
        case: both; the laws of samplers check its orders.
        first_ranks: those of the first start.
        edits: of a ledger above the chain; None without one.
    """

    case: Case
    first_ranks: int
    edits: tuple[sk.Edit, ...] | None

    tails = ("pad", "drop", "ragged")
    """The tails that a loader may have."""

    @property
    def keeps_ranks(self) -> bool:
        """Whether the run cannot continue with another number of ranks."""
        return not self.case.deals_at_the_root

    @property
    def fewest_ranks(self) -> int:
        """The offset of a deal is a rank."""
        return max(1, self.case.offset)

    def options(self, draw: Random) -> dict[str, Any]:
        """Draws the other options of the loaders of a start: the number of samples of a rank in a step."""
        return {"batch_size": draw.choice([1, 2, 3, 4, 5, 8]), "collate_fn": list}

    def dataset(self, *, expecting: bool) -> Numbers:
        """The dataset of one rank."""
        return (Expecting if expecting else Numbers)(self.case.dataset)

    def step_result(self, loader: Any, batch: Any, state: dict[str, Any]) -> StepResult:
        """The result of the last step of a rank."""
        last = loader.step - 1
        ids = loader.ids(last).tolist()
        require([index for _, index in batch] == ids, f"{batch} is read, and the ids are {ids}")
        return StepResult((batch, loader.pads(last).tolist()), state)

    def sampler(self, ranks: int, rank: int) -> sk.Sampler:
        """Builds the chain for one rank; its distributed sampler may have the job's numbers."""
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
    # A ledger reads epochs of one length; PK over draws with replacement has other classes in each.
    lengths = {len(replace(case, epoch=epoch).undealt()) for epoch in range(8 if is_edited else 0)}
    return Recipe(case, ranks, () if len(lengths) == 1 else None)


Part = tuple[int, int, int]
"""The part of a sample in a batch: its id, the first token and the number of tokens."""


class Neighbours(sk.BatchRecipe):
    """A recipe as a user writes one: neighbours of a sorted window, some at a time."""

    def __init__(self, lengths: list[int], count: int, window: int | None) -> None:
        self.lengths, self.count, self.window = lengths, count, window

    def cut(self, ids: Any, lengths: Any, context: Any) -> Any:
        return np.split(np.argsort(-lengths, kind="stable"), range(self.count, ids.size, self.count))


def squared(lengths: Any) -> Any:
    """A cost that a user gives."""
    return lengths * lengths if lengths.ndim == 1 else lengths.prod(axis=1)


def some_options(rng: random.Random, **choices: list[Any]) -> dict[str, Any]:
    """Draws some of the options."""
    names = [name for name in choices if name == "long" or rng.random() < 0.4]
    return {name: rng.choice(choices[name]) for name in names}


COMMON: dict[str, list[Any]] = {"window": [1, 3, 7, 100], "abreast": [1, 2, 3, 5], "num_batches": [1, 3, 50]}
OPTIONS: dict[str, dict[str, list[Any]]] = {
    "tokens": {
        **COMMON,
        "max_samples": [1, 3],
        "count_multiple": [2, 3],
        "length_multiple": [2, 8],
        "quadratic": [1, 10],
        "waste": [0.0, 0.5],
        "pool": [1, 4],
        "short": ["merge", "keep", "drop"],
        "long": ["drop", "truncate", "alone", "raise"],
        "cost": [squared],
    },
    "packs": {
        **COMMON,
        "packs": [2, 3],
        "length_multiple": [2, 4],
        "long": ["split", "drop", "truncate", "raise"],
    },
    "buckets": {**COMMON, "short": ["merge", "keep", "drop"]},
    "keys": {**COMMON, "short": ["keep", "drop"]},
    "classes": {name: COMMON[name] for name in ("abreast", "num_batches")},
}
"""Values of each option of each recipe, except those that are always given."""


def recipe_of(rng: random.Random, kind: str, lengths: list[int]) -> sk.BatchRecipe:
    """Draws a recipe whose options go together, over these lengths."""
    chosen = some_options(rng, **OPTIONS.get(kind, {}))
    longest = max(lengths, default=0)
    if kind == "tokens":
        if "cost" in chosen:
            chosen.pop("quadratic", None)
        # A budget below one token is refused.
        one_token = cost_of(sk.TokenBatches(1, **{**chosen, "long": "drop"}), 1)
        budget = rng.choice([budget for budget in (4, 12, 30, 100) if budget >= one_token])
        if chosen.get("long", "raise") == "raise":
            budget = 8 * (longest + 8) ** 2
        given: Any = lengths
        if rng.random() < 0.2:
            given = np.stack([lengths, lengths[::-1]], axis=1) if lengths else np.zeros((0, 2), dtype=int)
            chosen["long"] = "drop" if chosen.get("long") == "truncate" else chosen.get("long", "raise")
        return sk.TokenBatches(budget, lengths=given, **chosen)
    if kind == "packs":
        seq_len = 4 * -(-longest // 4) + 4 if chosen.get("long") == "raise" else rng.choice([4, 8, 12])
        return sk.PackBatches(seq_len, lengths=lengths, **chosen)
    if kind == "buckets":
        boundaries = sorted({*(rng.randint(0, longest) for _ in range(2)), longest})
        sizes = [rng.randint(1, 5) for _ in boundaries]
        return sk.BucketBatches(boundaries, rng.choice([sizes, 3]), lengths=lengths, **chosen)
    if kind == "keys":
        keys = [(length % 3, 1) for length in lengths]
        return sk.BucketBatches(None, rng.choice([{key: 1 + key[0] for key in keys}, 2]), keys=keys, **chosen)
    if kind == "classes":
        labels = [number % 3 for number in range(len(lengths))]
        return sk.ClassBatches(rng.randint(1, 3), rng.randint(1, 2), labels=labels, **chosen)
    return Neighbours(lengths, rng.randint(1, 4), rng.choice([2, 5, None]))


def cost_of(recipe: sk.TokenBatches, length: int, other: int | None = None) -> float:
    """The cost of a sample, or of one with a pair of lengths."""
    padded = [-(-size // recipe.length_multiple) * recipe.length_multiple for size in (length, other or 0)]
    if recipe.cost is not None:
        return padded[0] ** 2 if other is None else padded[0] * padded[1]
    both = sum(padded)
    return both + (both * both / recipe.quadratic if recipe.quadratic else 0)


def parts_of(recipe: Any, lengths: list[int], id: int) -> list[Part]:
    """The parts of a sample that a recipe keeps in any plan; `short` and `num_batches` not counted."""
    length = lengths[id]
    if isinstance(recipe, sk.PackBatches):
        full = recipe.seq_len
        if not length or (recipe.long == "drop" and length > full):
            return []
        end = min(length, full) if recipe.long == "truncate" else length
        return [(id, start, min(full, end - start)) for start in range(0, end, full)]
    if not isinstance(recipe, sk.TokenBatches) or recipe.long not in ("drop", "truncate"):
        return [(id, 0, length)]
    other = lengths[-1 - id] if np.ndim(recipe.lengths) == 2 else None
    if recipe.long == "drop":
        return [(id, 0, length)] if cost_of(recipe, length, other) <= recipe.max_tokens else []
    fitting = [count for count in range(length + 1) if cost_of(recipe, count) <= recipe.max_tokens]
    return [(id, 0, fitting[-1])]


def require_limits(recipe: Any, lengths: list[int], ids: list[int]) -> None:
    """A batch of whole samples is within the limits of its recipe."""
    count, of_batch = len(ids), [parts_of(recipe, lengths, id)[0][2] for id in ids]
    is_right = True
    if isinstance(recipe, sk.TokenBatches):
        pairs = np.ndim(recipe.lengths) == 2
        cost = cost_of(recipe, max(of_batch), max(lengths[-1 - id] for id in ids) if pairs else None)
        is_right = count * cost <= recipe.max_tokens or (recipe.long == "alone" and count == 1)
        is_right = is_right and count <= (recipe.max_samples or count)
    elif isinstance(recipe, sk.BucketBatches) and recipe.keys is not None:
        is_right = len({recipe.keys[id] for id in ids}) == 1
    elif isinstance(recipe, sk.BucketBatches):
        buckets = {int(np.searchsorted(recipe.boundaries, length)) for length in of_batch}
        sizes = np.broadcast_to(recipe.batch_size, len(recipe.boundaries))
        # Samples that complete a batch of longer ones may be alone if it is dealt or split.
        most = max(sizes[max(buckets) :]) if recipe.short == "merge" else sizes[max(buckets)]
        is_right = count <= most and (recipe.short == "merge" or len(buckets) == 1)
    elif isinstance(recipe, sk.ClassBatches):
        classes = Counter(id % 3 for id in ids)
        is_right = [*classes.values()] == [recipe.num_val] * recipe.num_class
    require(is_right, f"a batch of {ids}, of lengths {of_batch}, is not one of the recipe")


def expected_parts(recipe: Any, lengths: list[int], ids: Iterable[int]) -> Counter[Part]:
    """The parts that a recipe keeps of the samples of an order."""
    return Counter(part for id in ids for part in parts_of(recipe, lengths, id))


def leaves_out(recipe: Any) -> bool:
    """Whether a recipe may leave out more than by `long`."""
    return getattr(recipe, "short", None) == "drop" or recipe.num_batches is not None
