"""Sums over pairs of positions: the arithmetic below the closed forms.

A window of w positions is laid at every place, over the ends too. A pair of positions that lie d < w apart
is then seen w - d times: that is its weight in every figure. Where an order is woven of L lanes, rows of one
lane that lie d apart lie L * d positions apart.

All of these are polynomials, evaluated in float64 for arrays of runs, so that an order of 10^12 samples costs
as much as its files and blocks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.float64]
"""Lengths, weights and sums: float64, since they pass 2^63."""


def _powers(run: Any, window: float, lanes: int) -> tuple[Numbers, Numbers, Numbers, Numbers]:
    """Gives how many distances d have a weight in a run, and the sums of d, of d^2 and of d^3 over them."""
    count = np.maximum(0, np.minimum(np.asarray(run, dtype=np.float64) - 1, (window - 1) // lanes))
    first = count * (count + 1) / 2
    return count, first, first * (2 * count + 1) / 3, first * first


def _weighed(power: int, run: Any, window: float, lanes: int) -> Numbers:
    """Sums weight times distance to a power, 0 or 1, over all pairs of rows in a run."""
    run = np.asarray(run, dtype=np.float64)
    low, middle, high = _powers(run, window, lanes)[power : power + 3]
    summed: Numbers = run * window * low - (window + lanes * run) * middle + lanes * high
    return summed


def pair_weight(run: Any, window: float, lanes: int = 1) -> Numbers:
    """Sums the weights of all pairs of rows in a run.

    Args:
        run: the length of each run of consecutive rows; any shape.
        window: the size of the windows, in positions.
        lanes: how many positions lie between two rows.

    Returns:
        For each run, the sum over d of (run - d) * (window - lanes * d), as far as both are positive.

    Example:
        >>> pair_weight([1, 2, 5], 3).tolist()  # 5: four pairs at distance 1, three at distance 2
        [0.0, 2.0, 11.0]
    """
    return _weighed(0, run, window, lanes)


def pair_distance(run: Any, window: float, lanes: int = 1) -> Numbers:
    """Sums weight times distance in rows over all pairs of rows in a run; arguments as for `pair_weight`.

    Example:
        >>> pair_distance([1, 2, 5], 3).tolist()
        [0.0, 2.0, 14.0]
    """
    return _weighed(1, run, window, lanes)


def cross_weight(left: Any, gap: Any, right: Any, window: float, lanes: int = 1) -> Numbers:
    """Sums the weights of all pairs of a row of one run and a row of a later one.

    Args:
        left: the length of the earlier run.
        gap: the rows between the two.
        right: the length of the later run.
        window: as for `pair_weight`.
        lanes: likewise.

    Example:
        >>> cross_weight([2], [1], [1], 4).tolist()  # rows 0, 1 and row 3
        [3.0]
    """
    return _second_difference(pair_weight, left, gap, right, window, lanes)


def cross_distance(left: Any, gap: Any, right: Any, window: float, lanes: int = 1) -> Numbers:
    """Sums weight times distance in rows over the same pairs; arguments as for `cross_weight`."""
    return _second_difference(pair_distance, left, gap, right, window, lanes)


def _second_difference(
    summed: Callable[[Any, float, int], Numbers], left: Any, gap: Any, right: Any, window: float, lanes: int
) -> Numbers:
    left, gap, right = (np.asarray(value, dtype=np.float64) for value in (left, gap, right))

    def at(run: Numbers) -> Numbers:
        return summed(run, window, lanes)

    return at(gap + left + right) - at(gap + left) - at(gap + right) + at(gap)


def same_pairs(sizes: Any) -> float:
    """Gives the chance that two samples which are drawn at random lie in one group.

    Args:
        sizes: samples in each group.

    Example:
        >>> round(same_pairs([2, 2]), 4)
        0.3333
    """
    sizes = np.asarray(sizes, dtype=np.float64)
    total = sizes.sum()
    return float((sizes * (sizes - 1)).sum() / (total * (total - 1)))


def random_distance(num_samples: int) -> float:
    """Gives the mean distance of two ids that are drawn at random: (n + 1) / 3."""
    return (num_samples + 1) / 3


def distance_between_files(sizes: Any) -> float:
    """Gives the mean distance of two ids that are drawn at random from different files."""
    sizes = np.asarray(sizes, dtype=np.float64)
    total = sizes.sum()
    pairs = total * (total - 1) - (sizes * (sizes - 1)).sum()
    if pairs == 0:
        return 0.0
    return float((total * (total**2 - 1) - (sizes * (sizes**2 - 1)).sum()) / 3 / pairs)
