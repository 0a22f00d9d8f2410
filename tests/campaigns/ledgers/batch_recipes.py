"""Random recipes for batches with any options, and in plain Python the parts of samples that they keep."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from typing import Any

import numpy as np

import samplerkit as sk
from tests.campaigns.ledgers.model import require

Part = tuple[int, int, int]
"""What a batch holds of a sample: its id, the first token and how many."""


class Neighbours(sk.BatchRecipe):
    """A recipe as a user writes one: neighbours of a sorted window, some at a time."""

    def __init__(self, lengths: list[int], count: int, window: int | None) -> None:
        self.lengths, self.count, self.window = lengths, count, window

    def cut(self, ids: Any, lengths: Any, context: Any) -> Any:
        return np.split(np.argsort(-lengths, kind="stable"), range(self.count, ids.size, self.count))


def squared(lengths: Any) -> Any:
    """A cost that a user gives."""
    return lengths * lengths if lengths.ndim == 1 else lengths.prod(axis=1)


def draw_options(dice: random.Random, **choices: list[Any]) -> dict[str, Any]:
    """Draws some of the options with their values."""
    names = [name for name in choices if name == "long" or dice.random() < 0.4]
    return {name: dice.choice(choices[name]) for name in names}


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


def recipe_of(dice: random.Random, kind: str, lengths: list[int]) -> sk.BatchRecipe:
    """Draws a recipe whose options go together, over these lengths."""
    drawn = draw_options(dice, **OPTIONS.get(kind, {}))
    longest = max(lengths, default=0)
    if kind == "tokens":
        if "cost" in drawn:
            drawn.pop("quadratic", None)
        # A budget that one token is above is refused.
        one_token = cost_of(sk.TokenBatches(1, **{**drawn, "long": "drop"}), 1)
        budget = dice.choice([budget for budget in (4, 12, 30, 100) if budget >= one_token])
        if drawn.get("long", "raise") == "raise":
            budget = 8 * (longest + 8) ** 2
        values: Any = lengths
        if dice.random() < 0.2:
            values = np.stack([lengths, lengths[::-1]], axis=1) if lengths else np.zeros((0, 2), dtype=int)
            drawn["long"] = "drop" if drawn.get("long") == "truncate" else drawn.get("long", "raise")
        return sk.TokenBatches(budget, lengths=values, **drawn)
    if kind == "packs":
        seq_len = 4 * -(-longest // 4) + 4 if drawn.get("long") == "raise" else dice.choice([4, 8, 12])
        return sk.PackBatches(seq_len, lengths=lengths, **drawn)
    if kind == "buckets":
        boundaries = sorted({*(dice.randint(0, longest) for _ in range(2)), longest})
        sizes = [dice.randint(1, 5) for _ in boundaries]
        return sk.BucketBatches(boundaries, dice.choice([sizes, 3]), lengths=lengths, **drawn)
    if kind == "keys":
        keys = [(length % 3, 1) for length in lengths]
        return sk.BucketBatches(None, dice.choice([{key: 1 + key[0] for key in keys}, 2]), keys=keys, **drawn)
    if kind == "classes":
        labels = [number % 3 for number in range(len(lengths))]
        return sk.ClassBatches(dice.randint(1, 3), dice.randint(1, 2), labels=labels, **drawn)
    return Neighbours(lengths, dice.randint(1, 4), dice.choice([2, 5, None]))


def cost_of(recipe: sk.TokenBatches, length: int, other: int | None = None) -> float:
    """What a sample costs, or one of a pair of lengths."""
    padded = [-(-one // recipe.length_multiple) * recipe.length_multiple for one in (length, other or 0)]
    if recipe.cost is not None:
        return padded[0] ** 2 if other is None else padded[0] * padded[1]
    both = sum(padded)
    return both + (both * both / recipe.quadratic if recipe.quadratic else 0)


def parts_of(recipe: Any, lengths: list[int], id: int) -> list[Part]:
    """The parts of a sample that a recipe keeps in any plan, regardless of `short` and `num_batches`."""
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
    fitting = [n for n in range(length + 1) if cost_of(recipe, n) <= recipe.max_tokens]
    return [(id, 0, fitting[-1])]


def require_limits(recipe: Any, lengths: list[int], ids: list[int]) -> None:
    """Checks that a batch of whole samples is within the limits of its recipe."""
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
        # What completes a batch of longer samples may stand alone where it is dealt or split.
        most = max(sizes[max(buckets) :]) if recipe.short == "merge" else sizes[max(buckets)]
        is_right = count <= most and (recipe.short == "merge" or len(buckets) == 1)
    elif isinstance(recipe, sk.ClassBatches):
        classes = Counter(id % 3 for id in ids)
        is_right = [*classes.values()] == [recipe.num_val] * recipe.num_class
    require(is_right, f"a batch of {ids}, of lengths {of_batch}, is not within the limits of the recipe")


def parts_of_all(recipe: Any, lengths: list[int], ids: Iterable[int]) -> Counter[Part]:
    """The parts of the samples of an order that a recipe keeps."""
    return Counter(part for id in ids for part in parts_of(recipe, lengths, id))


def leaves_out(recipe: Any) -> bool:
    """Whether a recipe may leave out more than `long` does."""
    return getattr(recipe, "short", None) == "drop" or recipe.num_batches is not None
