"""How many samples a batch may hold: from a budget of padded tokens."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from samplerkit.batches.lengths import LONGEST
from samplerkit.errors import ArgumentRangeError, ArgumentTypeError
from samplerkit.order.typing import Ids

Cost = Callable[[Ids], Any]
"""A user's cost of a sample: of int64 lengths of shape (m,), or of pairs of shape (m, 2), one number each."""

_MOST = 1 << 31


@final
@dataclass(frozen=True, eq=False)
class Budget:
    """A budget of tokens for a batch, counted as they are padded: samples times the cost of the longest.

    Args:
        max_tokens: the budget.
        max_samples: samples in a batch at most; None for as many as the budget allows.
        count_multiple: the number of samples is a multiple of it where that many fit.
        length_multiple: lengths are padded to a multiple of it.
        quadratic: Q, adds u^2 / Q to the cost of a sample of padded length u; None for no such part.
        cost: the cost of a sample in place of its padded length.

    Example:
        >>> Budget(4096, count_multiple=8, length_multiple=64).sizes(np.array([10, 100, 2000, 9000]))
        array([64, 32,  2,  0])
    """

    max_tokens: int
    max_samples: int | None = None
    count_multiple: int = 1
    length_multiple: int = 1
    quadratic: int | None = None
    cost: Cost | None = None

    def padded(self, lengths: Ids) -> Ids:
        """Rounds lengths up to the multiple."""
        return -(-lengths // self.length_multiple) * self.length_multiple

    def costs(self, lengths: Ids) -> np.ndarray[Any, Any]:
        """Gives what a sample of each length costs: in tokens, times Q if there is a quadratic part.

        Raises:
            ArgumentTypeError: a user's cost does not give one number for each length.
            ArgumentRangeError: a user's cost is negative, NaN or infinite.
        """
        padded = self.padded(lengths)
        if self.cost is not None:
            return _costs_of_a_user(self.cost, padded)
        if padded.ndim == 2:
            padded = padded.sum(axis=1)
        if self.quadratic is None:
            return padded
        return padded * self.quadratic + padded * padded

    def sizes(self, lengths: Ids) -> Ids:
        """Gives how many samples a batch holds whose longest is so long; 0 where not even one fits."""
        costs = self.costs(lengths)
        budget = self.max_tokens * (self.quadratic or 1) if self.cost is None else self.max_tokens
        if costs.dtype.kind == "f":
            sizes = np.minimum(np.floor_divide(budget, np.maximum(costs, budget / _MOST)), _MOST)
            sizes = sizes.astype(np.int64)
        else:
            sizes = np.minimum(budget // np.maximum(costs, 1), _MOST)
        if self.max_samples is not None:
            sizes = np.minimum(sizes, self.max_samples)
        rounded: Ids = np.where(sizes >= self.count_multiple, sizes - sizes % self.count_multiple, sizes)
        return rounded

    def longest(self) -> int:
        """Gives the largest length of which one sample fits; 0 if none does."""
        low, high = 0, LONGEST
        while low < high:
            middle = (low + high + 1) // 2
            fits = bool(self.sizes(np.array([middle]))[0])
            low, high = (middle, high) if fits else (low, middle - 1)
        return low


def _costs_of_a_user(cost: Cost, lengths: Ids) -> np.ndarray[Any, Any]:
    costs = np.asarray(cost(lengths))
    if costs.shape != lengths.shape[:1] or costs.dtype.kind not in "iuf":
        raise ArgumentTypeError(
            "cost",
            f"must give one number for each of {lengths.shape[0]} lengths",
            costs,
            mend="write it with numpy's arithmetic on int64 lengths of shape (m,), or (m, 2) for pairs",
        )
    if costs.dtype.kind == "f" and not np.isfinite(costs).all():
        raise ArgumentRangeError("cost", "must be finite", float(costs[~np.isfinite(costs)][0]))
    if (costs < 0).any():
        raise ArgumentRangeError("cost", "must not be negative", costs[costs < 0][0].item())
    return costs if costs.dtype.kind == "f" else costs.astype(np.int64)
