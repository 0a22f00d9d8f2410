"""How many samples fit into a batch, by a budget of padded tokens; and the buckets that follow from it."""

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

import numpy as np

from samplerkit.batches.lengths import LONGEST, Histogram
from samplerkit.errors import ArgumentRangeError, ArgumentTypeError
from samplerkit.order.intervals import edges_of
from samplerkit.order.typing import Ids

Cost = Callable[[Ids], Any]
"""A user's cost of samples: one number each, for int64 lengths of shape (m,) or pairs of shape (m, 2)."""

_MAX = 1 << 31
"""The largest number of samples in a batch; above the largest length, too."""


@dataclass(frozen=True, eq=False)
class Budget:
    """A budget of padded tokens for a batch: its number of samples times the cost of the longest one.

    Args:
        max_tokens: the budget.
        max_samples: the most samples in a batch; None for no other limit than the budget.
        count_multiple: the number of samples is a multiple of it, if that many fit.
        length_multiple: lengths are padded to a multiple of it.
        quadratic: Q, which adds u^2 / Q to the cost of a sample of padded length u; None for no such term.
        cost: the cost of a sample, in place of its padded length; not with `quadratic`.

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
        """Returns the cost of a sample of each length: in tokens, times Q if there is a quadratic term.

        Raises:
            ArgumentTypeError: a user's cost does not return one number for each length.
            ArgumentRangeError: a user's cost is negative, NaN or infinite.
        """
        padded = self.padded(lengths)
        if self.cost is not None:
            return _user_costs(self.cost, padded)
        if padded.ndim == 2:
            padded = padded.sum(axis=1)
        if self.quadratic is None:
            return padded
        # The sum of a pair may be above the largest length. That is above every budget, and cut so that its
        # square fits into 64 bits.
        padded = np.minimum(padded, _MAX)
        return padded * self.quadratic + padded * padded

    def sizes(self, lengths: Ids, least: int = 0) -> Ids:
        """Returns how many samples fit into a batch whose longest sample has each length.

        Args:
            lengths: int64 of shape (m,), or (m, 2) for pairs.
            least: the result if not even one sample fits.
        """
        costs = self.costs(lengths)
        budget, most = self.max_tokens * (self.quadratic or 1), min(self.max_samples or _MAX, _MAX)
        smallest = budget / _MAX if costs.dtype.kind == "f" else 1
        sizes = np.minimum(budget // np.maximum(costs, smallest), most).astype(np.int64, copy=False)
        rounded = np.where(sizes >= self.count_multiple, sizes - sizes % self.count_multiple, sizes)
        result: Ids = np.maximum(rounded, least)
        return result

    def longest(self) -> int:
        """Returns the largest length of a sample that fits into a batch; 0 if none does."""
        lengths = range(1, LONGEST + 1)
        return bisect_left(lengths, True, key=lambda length: self.sizes(np.array([length]))[0] == 0)


def _user_costs(cost: Cost, lengths: Ids) -> np.ndarray[Any, Any]:
    problem = f"must give one number for each of {lengths.shape[0]} lengths"
    hint = "write it with numpy's arithmetic on int64 lengths of shape (m,), or (m, 2) for pairs"
    try:
        costs = np.asarray(cost(lengths))
    except (TypeError, ValueError) as error:  # of one length at a time, or rows of different lengths
        raise ArgumentTypeError("cost", problem, cost, hint=hint) from error
    if costs.shape != lengths.shape[:1] or costs.dtype.kind not in "iuf":
        raise ArgumentTypeError("cost", problem, costs, hint=hint)
    wrong = costs[~np.isfinite(costs) | (costs < 0)]
    if wrong.size:
        raise ArgumentRangeError("cost", "must be finite and not negative", wrong[0].item())
    return costs if costs.dtype.kind == "f" else costs.astype(np.int64)


Long = Literal["raise", "drop", "truncate", "alone"]
"""How a sample that is above the budget by itself is handled."""

LONGS: Final = get_args(Long)


@dataclass(frozen=True, eq=False)
class Buckets:
    """The buckets of a set, that of the longest samples first.

    Args:
        starts: the first place of each bucket in the sorted set, and the number of places at the end; samples
            before the first bucket are in no batch. int64 of shape (buckets + 1,).
        uppers: the longest length in each bucket, after truncation; int64 of shape (buckets,).
        sizes: samples in a batch that begins in each bucket; int64 of shape (buckets,).
    """

    starts: Ids
    uppers: Ids
    sizes: Ids


def require_fit(histogram: Histogram, budget: Budget, long: Long) -> None:
    """Checks that all samples fit into a batch, unless `long` handles them, and that cost grows with length.

    Raises:
        ArgumentRangeError: a sample is above the budget, or the cost of a longer sample is lower.
    """
    values = histogram.values
    if not values.size:
        return
    costs = budget.costs(values)
    falling = np.flatnonzero(costs[:-1] < costs[1:])
    if falling.size:
        first = int(falling[0])
        problem = f"must grow with the length, but falls from length {int(values[first + 1])}"
        hint = "give a cost that is monotone in the length"
        raise ArgumentRangeError("cost", problem, int(values[first]), hint=hint)
    if long == "truncate" and not budget.longest():
        raise ArgumentRangeError("max_tokens", "is too small for a sample of one token", budget.max_tokens)
    if long == "raise" and not budget.sizes(values[:1])[0]:
        problem = f"is below the longest sample, of length {int(values[0])}"
        hint = 'raise it, or use long="drop", "truncate" or "alone"'
        raise ArgumentRangeError("max_tokens", problem, budget.max_tokens, hint=hint)


def buckets_of(histogram: Histogram, budget: Budget, waste: float, pool: int, long: Long) -> Buckets:
    """Divides a set into buckets, from the longest samples to the shortest.

    A bucket grows while its shortest sample is padded by less than `waste` of the longest, or while it has
    samples for fewer than `pool` batches.

    Args:
        histogram: of the lengths of the set.
        budget: of a batch.
        waste: in [0, 1).
        pool: a number of batches.
        long: how samples above the budget are handled.

    Example:
        >>> histogram = Histogram(np.array([100, 99, 50, 10]), np.array([9, 9, 9, 9]), "")
        >>> buckets = buckets_of(histogram, Budget(300), waste=.02, pool=1, long="raise")
        >>> buckets.starts.tolist(), buckets.uppers.tolist(), buckets.sizes.tolist()
        ([0, 18, 27, 36], [100, 50, 10], [3, 6, 30])
        >>> padded = Budget(300, length_multiple=50)
        >>> buckets_of(histogram, padded, waste=0, pool=1, long="raise").uppers.tolist()
        [100, 50]
    """
    before = edges_of(histogram.counts)
    values = histogram.values
    if long == "truncate":
        values = np.minimum(values, budget.longest())
    sizes = budget.sizes(values)
    # Lengths descend, so those that are above the budget come first.
    first = int(np.count_nonzero(sizes == 0))
    firsts = [0] if first and long == "alone" else []
    padded = budget.padded(values).tolist()
    # `bisect` needs ascending numbers.
    negated, sums = [-length for length in padded], before.tolist()
    # With "drop", the first bucket begins after the lengths above the budget.
    at = first
    while at < values.size:
        upper, size = padded[at], int(sizes[at])
        least = upper - waste * upper
        # Samples that are padded to the same length waste nothing, so a bucket has at least one length.
        by_waste = bisect_left(negated, -least) if least < upper else bisect_right(negated, -upper)
        by_pool = bisect_left(sums, sums[at] + pool * size)
        firsts.append(at)
        at = max(by_waste, min(by_pool, values.size))
    index = np.array(firsts, dtype=np.int64)
    # A sample that is above the budget is a batch by itself.
    return Buckets(np.append(before[index], before[-1]), values[index], np.maximum(sizes[index], 1))


def upper_of(uppers: Ids, lengths: Ids) -> Ids:
    """Returns the upper end of the bucket of each length; a length above all of them is unchanged.

    Example:
        >>> upper_of(np.array([10, 100]), np.array([3, 11, 101]))
        array([ 10, 100, 101])
    """
    at = np.minimum(np.searchsorted(uppers, lengths), uppers.size - 1)
    return np.maximum(uppers[at], lengths)
