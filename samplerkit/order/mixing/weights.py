"""Weights as integers and as shares of all draws, and draws by weight without replacement."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from itertools import accumulate
from typing import Any, Final

import numpy as np

from samplerkit.order.intervals import Offsets
from samplerkit.order.keys import Key, scaled
from samplerkit.order.typing import Ids

DRAW_RANGE: Final = 1 << 60
"""One more than the largest draw."""


def integer_weights(weights: np.ndarray[Any, np.dtype[np.float64]]) -> Ids:
    """Scales weights by a power of two to integers whose sum is at most 2^62.

    A power of two and rounding down are exact, so that every machine gets the same integers.

    Example:
        >>> scaled = integer_weights(np.array([1.0, 0.5, 0.0, 1e-300]))
        >>> scaled[0] == 2 * scaled[1], scaled[2:]
        (np.True_, array([0, 1]))
    """
    _, exponent = math.frexp(float(weights.max()))
    shift = 61 - exponent - weights.size.bit_length()
    integers: Ids = np.floor(np.ldexp(weights, shift)).astype(np.int64)
    integers[(integers == 0) & (weights > 0)] = 1
    return integers


def thresholds(weights: Sequence[float | Fraction]) -> Ids:
    """Returns the first draw of each source and, last, the end: int64 of shape (sources + 1,).

    Args:
        weights: not negative, one positive; any real numbers. A positive one has at least one draw.

    Example:
        >>> (thresholds([3, 0, 1]) / DRAW_RANGE).tolist()
        [0.0, 0.75, 0.75, 1.0]
    """
    ratios = list(map(_ratio, weights))
    # Whole numbers in the same proportion: as exact as fractions, and many times as fast.
    common = math.lcm(*[denominator for _, denominator in ratios])
    exact = [numerator * (common // denominator) for numerator, denominator in ratios]
    total = sum(exact)
    ends = [DRAW_RANGE * part // total for part in accumulate(exact)]
    if DRAW_RANGE * min(filter(None, exact)) >= total:
        return np.array([0, *ends], dtype=np.int64)
    # Some have no draw yet.
    previous = 0
    for index, weight in enumerate(exact):
        previous = ends[index] = max(ends[index], previous + (weight > 0))
    following = ends[-1] = DRAW_RANGE
    for index in range(len(exact) - 1, 0, -1):
        following = ends[index - 1] = min(ends[index - 1], following - (exact[index] > 0))
    return np.array([0, *ends], dtype=np.int64)


def _ratio(weight: float | Fraction) -> tuple[int, int]:
    exact = weight if isinstance(weight, int | float | Fraction) else Fraction(weight)
    return exact.as_integer_ratio()


def draw_without_replacement(weights: Ids, count: int, key: Key) -> Ids:
    """Draws distinct ids one after another, each in proportion to the weights of those that are left.

    The ids are drawn with replacement and their first occurrences kept, which has just this law; whenever
    the draws have caught the heavy ones, they continue among the ids that are left.

    Args:
        weights: non-negative int64 array of shape (n,), its sum below 2^63.
        count: how many ids, at most as many as there are positive weights.
        key: where the randomness comes from.

    Returns:
        int64 array of shape (count,).

    Example:
        >>> key = Key(seed=7, epoch=0, depth=0, role="weighted")
        >>> sorted(draw_without_replacement(np.array([5, 0, 1, 9]), 3, key).tolist())
        [0, 2, 3]
    """
    remaining = np.flatnonzero(weights)
    drawn: list[Ids] = []
    missing = count
    for attempt in range(remaining.size):
        if not missing:
            break
        cumulative = np.cumsum(weights[remaining])
        counters = np.arange(2 * missing)
        hashes = key.hashes(counters, attempt)
        picks = Offsets(cumulative).passed(scaled(hashes, int(cumulative[-1])))
        distinct, first = np.unique(picks, return_index=True)
        new = distinct[np.argsort(first)][:missing]
        drawn.append(remaining[new])
        missing -= new.size
        remaining = np.delete(remaining, new)
    return np.concatenate(drawn)
