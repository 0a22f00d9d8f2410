"""Buckets: runs of lengths that one size of batch serves, in a set that is sorted by length."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from typing import Final, Literal, final, get_args

import numpy as np

from samplerkit.batches.budget import Budget
from samplerkit.batches.histogram import Histogram
from samplerkit.errors import ArgumentRangeError
from samplerkit.order.intervals import edges_of
from samplerkit.order.typing import Ids

Long = Literal["raise", "drop", "truncate", "alone"]
"""What becomes of a sample that alone is above the budget."""

LONGS: Final = get_args(Long)


@final
@dataclass(frozen=True, eq=False)
class Buckets:
    """The buckets of a set, the longest first.

    Args:
        starts: the first place of each bucket in the sorted set, and the number of places at the end; places
            before the first bucket are left out. Shape (buckets + 1,).
        uppers: the longest length that each holds, as it is counted.
        sizes: samples in a batch that begins in each.
    """

    starts: Ids
    uppers: Ids
    sizes: Ids


def require_fit(histogram: Histogram, budget: Budget, long: Long) -> None:
    """Refuses lengths above the budget where they may not be, and a cost that falls where lengths grow.

    Raises:
        ArgumentRangeError: either.
    """
    values = histogram.values
    if not values.size:
        return
    costs = budget.costs(values)
    falling = np.flatnonzero(costs[:-1] < costs[1:])
    if falling.size:
        first = int(falling[0])
        raise ArgumentRangeError(
            "cost",
            f"must grow with the length, and falls from length {int(values[first + 1])}",
            int(values[first]),
            mend="give a cost that is monotone in the length",
        )
    if long == "truncate" and not budget.longest():
        raise ArgumentRangeError("max_tokens", "is too small for a sample of one token", budget.max_tokens)
    if long == "raise" and not budget.sizes(values[:1])[0]:
        raise ArgumentRangeError(
            "max_tokens",
            f"is below the longest sample, of length {int(values[0])}",
            budget.max_tokens,
            mend='raise it, or say long="drop", "truncate" or "alone"',
        )


def buckets_of(histogram: Histogram, budget: Budget, waste: float, pool: int, long: Long) -> Buckets:
    """Makes buckets of a budget.

    One grows downwards while it wastes less than `waste` of its longest, or holds fewer than `pool` batches.

    Args:
        histogram: of the lengths of the set.
        budget: what a batch may hold.
        waste: a part of the longest.
        pool: a number of batches.
        long: what becomes of samples above the budget.

    Example:
        >>> histogram = Histogram(np.array([100, 99, 50, 10]), np.array([9, 9, 9, 9]), "")
        >>> buckets = buckets_of(histogram, Budget(300), waste=.02, pool=1, long="raise")
        >>> buckets.starts.tolist(), buckets.uppers.tolist(), buckets.sizes.tolist()
        ([0, 18, 27, 36], [100, 50, 10], [3, 6, 30])
    """
    before = edges_of(histogram.counts)
    values = histogram.values
    sizes = budget.sizes(values)
    # The longest come first, and so those of which not even one fits into a batch.
    first = int(np.count_nonzero(sizes == 0))
    starts, uppers, chosen = [], [], []
    if first and long == "alone":
        starts, uppers, chosen = [0], [int(values[0])], [1]
    if first and long == "truncate":
        longest = budget.longest()
        values = np.minimum(values, longest)
        sizes = budget.sizes(values)
        first = 0
    padded = budget.padded(values).tolist()
    # `bisect` wants what ascends.
    down, sums = [-length for length in padded], before.tolist()
    # With "drop" those above the budget are in no bucket: the first one begins behind them.
    at = first
    while at < values.size:
        upper, size = padded[at], int(sizes[at])
        least = upper - waste * upper
        # What is padded to the same length wastes nothing.
        by_waste = bisect_left(down, -least) if least < upper else bisect_right(down, -upper)
        by_pool = bisect_left(sums, sums[at] + pool * size)
        starts.append(int(before[at]))
        uppers.append(int(values[at]))
        chosen.append(size)
        at = max(at + 1, by_waste, min(by_pool, values.size))
    ends = np.array([*starts, int(before[-1])], dtype=np.int64)
    return Buckets(ends, np.array(uppers, dtype=np.int64), np.array(chosen, dtype=np.int64))


def upper_of(uppers: Ids, lengths: Ids) -> Ids:
    """Gives the upper end of the bucket in which each length lies; one above all of them stays as it is.

    Example:
        >>> upper_of(np.array([10, 100]), np.array([3, 11, 101]))
        array([ 10, 100, 101])
    """
    at = np.minimum(np.searchsorted(uppers, lengths), uppers.size - 1)
    return np.maximum(uppers[at], lengths)
