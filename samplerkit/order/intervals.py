"""Intervals that lie one behind another: in which one a value is, and the numbers in some of them."""

from __future__ import annotations

import numpy as np

from samplerkit.order.typing import Ids

_WORTH_BUCKETS = 4096
_MOST_COMPARED = 6
_MOST_STEPS = 4
_BUCKET_BITS = 12


def interval_of(starts: Ids, values: Ids) -> Ids:
    """Gives the number of the interval in which each value lies.

    Args:
        starts: where each interval starts and, last, where the last one ends; ascending, shape (n + 1,).
        values: each in [starts[0], starts[n]); shape (m,).

    Returns:
        int64 array of shape (m,). Empty intervals hold nothing.

    Example:
        >>> interval_of(np.array([0, 3, 3, 5]), np.array([0, 2, 3, 4]))
        array([0, 0, 2, 2])
    """
    if values.size == 0:
        return np.zeros(0, dtype=np.int64)
    # Values that are read together mostly lie close together: search between the first and the last.
    first = int(np.searchsorted(starts, values.min(), side="right")) - 1
    last = int(np.searchsorted(starts, values.max(), side="right")) - 1
    if first == last:
        return np.full(values.shape, first)
    between = starts[first + 1 : last + 1]
    if values.size < _WORTH_BUCKETS or values.size < between.size:
        return np.searchsorted(between, values, side="right") + first
    if between.size <= _MOST_COMPARED:
        passed = np.zeros(values.shape, dtype=np.uint8)
        for start in between:
            passed += values >= start
        return passed + np.int64(first)
    return _by_buckets(between, values) + first


def _by_buckets(borders: Ids, values: Ids) -> Ids:
    """Counts the borders up to each value; the borders lie between the smallest and the largest one.

    A search takes branches that no processor foresees. Here the bucket of a value is arithmetic, and from
    the borders before its bucket it is a step or two to its own.
    """
    low, high = int(values.min()), int(values.max())
    bits = max(_BUCKET_BITS, borders.size.bit_length() + 1)
    shift = max(0, (high - low).bit_length() - bits)
    in_bucket = np.bincount((borders - low) >> shift, minlength=((high - low) >> shift) + 1)
    steps = int(in_bucket.max())
    if steps > _MOST_STEPS:
        return np.searchsorted(borders, values, side="right")
    passed: Ids = (np.cumsum(in_bucket) - in_bucket)[(values - low) >> shift]
    beyond = np.append(borders, high + 1)
    for _ in range(steps):
        passed += values >= beyond[passed]
    return passed


def numbers_in(begins: Ids, counts: Ids) -> Ids:
    """Gives the numbers in several intervals, one interval after another.

    Args:
        begins: the first number of each; shape (n,).
        counts: how many each holds; shape (n,).

    Returns:
        Array of shape (sum of the counts,).

    Example:
        >>> numbers_in(np.array([7, 0]), np.array([2, 3]))
        array([7, 8, 0, 1, 2])
    """
    ends = np.cumsum(counts)
    return np.repeat(begins - ends + counts, counts) + np.arange(int(ends[-1]) if ends.size else 0)
