"""Array functions for intervals and labels: the interval of a value, the numbers in intervals, groups."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, Final

import numpy as np

from samplerkit.order.caching import cached_property
from samplerkit.order.typing import Ids

_FEW = 256
_MIN_FOR_BUCKETS = 4096
_MAX_COMPARED = 6
_MAX_STEPS = 4
_BUCKET_BITS = 12
_MAX_MOVED = 256
_HOLDS_BORDER = -(1 << 62)
_DENSE_SPAN = 1 << 16


def interval_of(starts: Ids, values: Ids) -> Ids:
    """Returns the number of the interval that contains each value.

    Args:
        starts: the start of each interval, then the end of the last one; ascending, shape (n + 1,).
        values: each in [starts[0], starts[n]); shape (m,).

    Returns:
        int64 array of shape (m,). No value is in an empty interval.

    Example:
        >>> interval_of(np.array([0, 3, 3, 5]), np.array([0, 2, 3, 4]))
        array([0, 0, 2, 2])
    """
    if values.size <= _FEW:
        # For few values, one binary search is faster than choosing a method.
        return starts.searchsorted(values, side="right") - 1
    # Values of one batch are mostly close to each other: search only between the smallest and the largest.
    low, high = int(values.min()), int(values.max())
    first, last = map(int, np.searchsorted(starts, [low, high], side="right") - 1)
    if first == last:
        return np.full(values.shape, first)
    between = starts[first + 1 : last + 1]
    if values.size < _MIN_FOR_BUCKETS or values.size < between.size:
        return np.searchsorted(between, values, side="right") + first
    if between.size <= _MAX_COMPARED:
        passed = np.zeros(values.shape, dtype=np.uint8)
        for start in between:
            passed += values >= start
        return passed + np.int64(first)
    return Offsets(np.append(between, high + 1) - low).passed(values - low) + first


class Offsets:
    """Ascending borders, with a table that speeds up searches for many values.

    A processor cannot predict the branches of a binary search. So the range is divided into equal buckets,
    and the table has the number of borders before each bucket. A shift returns the bucket of a value; most
    values then need at most one comparison more. The table is made by the first search that is large enough
    to gain from it, and has at most two numbers per border, or 4,096.

    Args:
        borders: int64 array of shape (n,), ascending, none below 0; borders may be equal.

    Source: Chen and Asau, "On generating random variates from an empirical distribution" (1974).

    Example:
        >>> Offsets(np.array([3, 3, 5])).passed(np.array([0, 2, 3, 4]))
        array([0, 0, 2, 2])
    """

    def __init__(self, borders: Ids) -> None:
        self.borders: Final = borders

    def passed(self, values: Ids) -> Ids:
        """Counts the borders that are at most each value.

        Args:
            values: each in [0, borders[-1]); shape (m,).

        Returns:
            int64 array of shape (m,).
        """
        if values.size < _MIN_FOR_BUCKETS:
            return np.searchsorted(self.borders, values, side="right")
        shift, before = self._buckets
        passed: Ids = before[values >> shift].astype(np.int64)
        pending = np.flatnonzero(self.borders[passed] <= values)
        for _ in range(_MAX_STEPS):
            passed[pending] += 1
            pending = pending[self.borders[passed[pending]] <= values[pending]]
        passed[pending] = np.searchsorted(self.borders, values[pending], side="right")
        return passed

    @cached_property
    def _buckets(self) -> tuple[int, Ids]:
        """The binary logarithm of the width of a bucket, and the number of borders before each bucket."""
        bits = max(_BUCKET_BITS, self.borders.size.bit_length())
        shift = max(0, int(self.borders[-1]).bit_length() - bits)
        in_bucket = np.bincount(self.borders >> shift)
        word = np.int32 if self.borders.size < 1 << 31 else np.int64
        return shift, (np.cumsum(in_bucket) - in_bucket).astype(word)

    def __reduce__(self) -> Any:
        # The table is not pickled: another process makes it again.
        return Offsets, (self.borders,)


class Shifts:
    """Adds to each value the shift of its interval; fast if successive calls are in the same few intervals.

    The range of these intervals is divided into many equal buckets. Most buckets contain no border between
    intervals, so a table has one shift for each of them; only values in buckets with a border are searched
    for. The table is cached until values are in other intervals, and has at most 64 KiB.

    Args:
        starts: as for `interval_of`, with starts[0] = 0.
        shifts: of each interval, int64 array of shape (n,); no shifted value is below 0.

    Example:
        >>> Shifts(np.array([0, 3, 5]), np.array([2, -3])).moved(np.array([0, 2, 3, 4]))
        array([2, 4, 0, 1])
    """

    def __init__(self, starts: Ids, shifts: Ids) -> None:
        self._starts, self._shifts = starts, shifts
        self._cached: tuple[int, int, int, Ids] = (0, 0, 0, shifts[:0])

    def moved(self, values: Ids) -> Ids:
        """Returns the shifted values, shape (m,).

        Args:
            values: each in [0, starts[n]); shape (m,).
        """
        if values.size < _MIN_FOR_BUCKETS:
            return values + self._shifts[interval_of(self._starts, values)]
        ends = np.array([values.min(), values.max()])
        first, last = (np.searchsorted(self._starts, ends, side="right") - 1).tolist()
        if first == last:
            moved: Ids = values + self._shifts[first]
            return moved
        if last - first > _MAX_MOVED:
            return values + self._shifts[interval_of(self._starts, values)]
        # One tuple, read and replaced as a whole: another thread may do the same meanwhile.
        cached = self._cached
        if cached[:2] != (first, last):
            cached = self._cached = first, last, *self._table(first, last)
        _, _, shift, table = cached
        bucket = values - self._starts[first]
        bucket >>= shift
        moved = table[bucket]
        moved += values
        at_border = np.flatnonzero(moved < 0)
        if at_border.size:
            exact = values[at_border]
            moved[at_border] = exact + self._shifts[np.searchsorted(self._starts, exact, side="right") - 1]
        return moved

    def _table(self, first: int, last: int) -> tuple[int, Ids]:
        """Returns the binary logarithm of the width of a bucket, and the shift of each bucket.

        A bucket that contains a border has `_HOLDS_BORDER`, so that its values become negative.
        """
        low, end = int(self._starts[first]), int(self._starts[last + 1])
        shift = max(0, (end - 1 - low).bit_length() - _BUCKET_BITS)
        borders = (self._starts[first + 1 : last + 1] - low) >> shift
        in_bucket = np.bincount(borders, minlength=((end - 1 - low) >> shift) + 1)
        table: Ids = self._shifts[first + np.cumsum(in_bucket)]
        if shift:
            table[in_bucket > 0] = _HOLDS_BORDER
        return shift, table

    def __reduce__(self) -> Any:
        # The table is not pickled: another process makes it again.
        return Shifts, (self._starts, self._shifts)


def numbers_in(begins: Ids, counts: Ids) -> Ids:
    """Returns the numbers in several intervals, one interval after another.

    Args:
        begins: the first number of each interval; shape (n,).
        counts: how many numbers each interval contains; shape (n,).

    Returns:
        Array of shape (sum of the counts,).

    Example:
        >>> numbers_in(np.array([7, 0]), np.array([2, 3]))
        array([7, 8, 0, 1, 2])
    """
    ends = counts.cumsum()
    numbers: Ids = (begins - ends + counts).repeat(counts)
    numbers += np.arange(numbers.size)
    return numbers


def edges_of(counts: Ids) -> Ids:
    """Returns the start of each of several consecutive intervals and the end of the last, by their lengths.

    Example:
        >>> edges_of(np.array([2, 3]))
        array([0, 2, 5])
    """
    edges = np.zeros(counts.size + 1, dtype=np.int64)
    counts.cumsum(out=edges[1:])
    return edges


def groups(labels: Ids) -> Iterator[tuple[int, Ids]]:
    """Yields each distinct label with the indices at which it occurs; labels and indices are ascending.

    Example:
        >>> [(label, at.tolist()) for label, at in groups(np.array([5, 3, 5]))]
        [(3, [1]), (5, [0, 2])]
        >>> [(label, at.tolist()) for label, at in groups(np.array([65536, 3, 65536]))]
        [(3, [1]), (65536, [0, 2])]
    """
    if not labels.size:
        return
    if (labels[1:] >= labels[:-1]).all():
        by_label = np.arange(labels.size)
    elif labels.min() >= 0 and labels.max() < 1 << 16:
        # numpy sorts 16-bit integers by radix, which is several times as fast.
        by_label = np.argsort(labels.astype(np.uint16), kind="stable")
    else:
        by_label = np.argsort(labels, kind="stable")
    ascending = labels[by_label]
    # Slices, since np.split takes several times as long where there are many labels.
    bounds = [0, *(np.flatnonzero(ascending[1:] != ascending[:-1]) + 1).tolist(), labels.size]
    for begin, end in pairwise(bounds):
        yield int(ascending[begin]), by_label[begin:end]


def distinct(labels: Ids) -> tuple[Ids, Ids]:
    """Returns the distinct labels in ascending order, and the index of each label among them.

    Args:
        labels: int64 array of shape (m,).

    Example:
        >>> distinct(np.array([7, 4, 7]))
        (array([4, 7]), array([1, 0, 1]))
        >>> distinct(np.array([7, 7]))
        (array([7]), array([0, 0]))
    """
    low, high = (int(labels.min()), int(labels.max())) if labels.size else (0, 0)
    if low == high:
        return labels[:1], np.zeros_like(labels)
    if high - low >= _DENSE_SPAN:
        return np.unique(labels, return_inverse=True)
    # Labels in a short range, such as those of neighbouring blocks: a table is far faster than sorting.
    present = np.zeros(high - low + 1, dtype=bool)
    present[labels - low] = True
    return np.flatnonzero(present) + low, (np.cumsum(present) - 1)[labels - low]
