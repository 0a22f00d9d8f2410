"""Weights as integers, as thresholds of draws, and draws by weight without replacement."""

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

    Multiplying by a power of two and rounding down are exact: every machine computes the same integers. A
    positive weight becomes at least 1.

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
    """Divides the draws [0, 2^60) among sources by their weights.

    Args:
        weights: of the sources, not negative, one of them positive. A source with a positive weight has at
            least one draw.

    Returns:
        The first draw of each source and 2^60 at the end: int64 of shape (sources + 1,).

    Example:
        >>> (thresholds([3, 0, 1]) / DRAW_RANGE).tolist()
        [0.0, 0.75, 0.75, 1.0]
    """
    ratios = [weight.as_integer_ratio() for weight in weights]
    # Integers in the same proportion: as exact as fractions, and many times as fast.
    common = math.lcm(*[denominator for _, denominator in ratios])
    exact = [numerator * (common // denominator) for numerator, denominator in ratios]
    total = sum(exact)
    ends = [DRAW_RANGE * part // total for part in accumulate(exact)]
    if DRAW_RANGE * min(filter(None, exact)) >= total:
        return np.array([0, *ends], dtype=np.int64)
    # Some sources with a positive weight have no draw. Each end moves up until they have one; where that goes
    # beyond the last draw, ends move down again.
    previous = 0
    for index, weight in enumerate(exact):
        previous = ends[index] = max(ends[index], previous + (weight > 0))
    following = ends[-1] = DRAW_RANGE
    for index in range(len(exact) - 1, 0, -1):
        following = ends[index - 1] = min(ends[index - 1], following - (exact[index] > 0))
    return np.array([0, *ends], dtype=np.int64)


def draw_without_replacement(weights: Ids, count: int, key: Key) -> Ids:
    """Draws distinct ids one after another, each in proportion to its share of the remaining weights.

    Ids are drawn with replacement, and repeats are dropped: the first occurrences have this distribution. If
    that yields too few, the others are drawn from the remaining ids in the same way.

    Args:
        weights: non-negative int64 array of shape (n,), its sum below 2^63.
        count: the number of ids, at most that of positive weights.
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
