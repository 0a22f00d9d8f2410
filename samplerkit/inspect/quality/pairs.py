"""Sums over pairs of positions, from which the closed forms are computed.

A window of w positions is placed at every position, also across the ends. A pair of positions at distance
d < w is then in w - d windows, which is its weight in every figure. In an order of L lanes, rows of one lane
at distance d are L * d positions apart.

All sums are polynomials, evaluated in float64 for arrays of runs, so that the cost of an order of 10^12
samples depends only on the number of files and blocks.
"""

from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt

from samplerkit.order.typing import Ids

Numbers = npt.NDArray[np.float64]
"""Lengths, weights and sums: float64, since they pass 2^63."""


def _powers(count: Numbers) -> tuple[Numbers, Numbers, Numbers]:
    """Returns the sums of u, u^2 and u^3 for u from 1 to each count."""
    first = count * (count + 1) / 2
    return first, first * (2 * count + 1) / 3, first * first


def _weighted_sum(power: int, run: Any, window: float, lanes: int) -> Numbers:
    """Sums weight times distance to a power, 0 or 1, over all pairs of rows in a run."""
    run = np.asarray(run, dtype=np.float64)
    # The number of distances with a weight above 0.
    count = np.maximum(0, np.minimum(run - 1, (window - 1) // lanes))
    low, middle, high = (count, *_powers(count))[power : power + 3]
    summed: Numbers = run * window * low - (window + lanes * run) * middle + lanes * high
    return summed


def pair_weight(run: Any, window: float, lanes: int = 1) -> Numbers:
    """Sums the weights of all pairs of rows in a run.

    Args:
        run: the length of each run of consecutive rows; any shape.
        window: the size of the windows, in positions.
        lanes: the number of lanes: consecutive rows are this many positions apart.

    Returns:
        For each run, the sum of (run - d) * (window - lanes * d) over d > 0 for which both are positive.

    Example:
        >>> pair_weight([1, 2, 5], 3).tolist()  # 5: four pairs at distance 1, three at distance 2
        [0.0, 2.0, 11.0]
    """
    return _weighted_sum(0, run, window, lanes)


def pair_distance(run: Any, window: float, lanes: int = 1) -> Numbers:
    """Sums weight times distance in rows over all pairs of rows in a run; arguments as for `pair_weight`.

    Example:
        >>> pair_distance([1, 2, 5], 3).tolist()
        [0.0, 2.0, 14.0]
    """
    return _weighted_sum(1, run, window, lanes)


def runs_of(*columns: Any) -> tuple[Ids, Numbers]:
    """Returns where the runs of equal rows of sorted columns begin, and their lengths.

    Example:
        >>> first, lengths = runs_of(np.array([0, 0, 1]), np.array([5, 5, 5]))
        >>> first.tolist(), lengths.tolist()
        ([0, 2], [2.0, 1.0])
    """
    differs = reduce(np.logical_or, (column[1:] != column[:-1] for column in columns))
    first = np.flatnonzero(np.append(True, differs))
    return first, np.diff(first, append=columns[0].size).astype(np.float64)


def across(
    summed: Callable[[Any, float, int], Numbers],
    left: Any,
    gap: Any,
    right: Any,
    window: float,
    lanes: int = 1,
) -> Numbers:
    """Sums over all pairs of a row of one run and a row of a later one.

    Args:
        summed: `pair_weight` or `pair_distance`.
        left: the length of the earlier run.
        gap: the number of rows between the two.
        right: the length of the later run.
        window: as for `pair_weight`.
        lanes: as for `pair_weight`.

    Example:
        >>> across(pair_weight, [2], [1], [1], 4).tolist()  # rows 0, 1 and row 3
        [3.0]
    """
    left, gap, right = (np.asarray(value, dtype=np.float64) for value in (left, gap, right))

    def at(run: Numbers) -> Numbers:
        return summed(run, window, lanes)

    return at(gap + left + right) - at(gap + left) - at(gap + right) + at(gap)


def different_pairs(sizes: Any) -> float:
    """Returns the probability that two random samples are in different groups.

    Args:
        sizes: samples in each group.

    Example:
        >>> round(different_pairs([2, 2]), 4)
        0.6667
    """
    sizes = np.asarray(sizes, dtype=np.float64)
    total = sizes.sum()
    return float(1 - (sizes * (sizes - 1)).sum() / (total * (total - 1)))


def random_distance(num_samples: int) -> float:
    """Returns the mean distance of two random ids: (n + 1) / 3."""
    return (num_samples + 1) / 3


def distance_between_files(sizes: Any) -> float:
    """Returns the mean distance of two random ids from different files.

    Example:
        >>> distance_between_files([2, 1])  # ids 0 and 2, or 1 and 2
        1.5
    """
    sizes = np.asarray(sizes, dtype=np.float64)
    total = sizes.sum()
    pairs = total * (total - 1) - (sizes * (sizes - 1)).sum()
    if pairs == 0:
        return 0.0
    return float((total * (total**2 - 1) - (sizes * (sizes**2 - 1)).sum()) / 3 / pairs)


def moved_in_runs(sizes: Any, window: int) -> float:
    """Returns the increase of the sum of weight times distance when sequential rows are shuffled within runs.

    The mean distance of a pair in one run is then a third of its length; that of a pair in different runs is
    the distance of the middles. The latter sum to the same as without the shuffle, except for runs near the
    ends, which have fewer neighbours on one side.

    Args:
        sizes: rows in each run, in the order of their ids; shape (runs,).
        window: the size of the window, in positions.

    Example:
        >>> moved_in_runs([8], 8) + float(pair_distance(8, 8)), moved_in_runs([1, 1, 1], 8)
        (420.0, 0.0)
    """
    sizes = np.asarray(sizes, dtype=np.float64)
    ends = np.cumsum(sizes)
    starts, length = ends - sizes, ends[-1]
    lost = lost_by_runs(starts, ends, window) + lost_by_runs(length - ends, length - starts, window)
    return float((pair_weight(sizes, window) * (sizes + 1) / 3 - lost).sum())


def lost_by_runs(starts: Numbers, ends: Numbers, window: int, lanes: int = 1) -> Numbers:
    """Sums, over the rows of each run, the distance to the run's middle times the weight lost at the start.

    Row p has no neighbours before row 0: it lacks those at distances larger than p and within a window.

    Args:
        starts: the first row of each run, counted from the start.
        ends: the row after each run.
        window: the size of the window, in positions.
        lanes: the number of lanes: consecutive rows are this many positions apart.
    """
    reach = (window - 1) // lanes
    high, low = np.maximum(0, reach - starts), np.maximum(0, reach - ends)
    # Row p = reach - u lacks u neighbours. The farthest has the weight `least`, and each nearer one `lanes`
    # more, which sums to least * u + lanes * u * (u - 1) / 2.
    least = window - lanes * reach
    linear, square = least - lanes / 2, lanes / 2
    middle = (starts + ends - 1) / 2 - reach
    ones, twos, threes = (above - below for above, below in zip(_powers(high), _powers(low), strict=True))
    lost: Numbers = middle * (linear * ones + square * twos) + linear * twos + square * threes
    return lost
