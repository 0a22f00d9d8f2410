"""Estimates of figures by sampling: windows at random places of some epochs.

Windows are placed as in the closed forms: at any place, also across the ends, and each pair of samples counts
once for each window that holds it. Epochs differ more than windows of one epoch, so the standard error is
clustered by epoch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, final

import numpy as np
import numpy.typing as npt

from samplerkit.inspect.quality.figure import Estimate
from samplerkit.inspect.quality.order_source import OrderSource
from samplerkit.inspect.quality.pairs import Numbers, runs_of
from samplerkit.order.keys import Key
from samplerkit.order.order import Order
from samplerkit.order.sequences import Table
from samplerkit.order.typing import Ids

WINDOWS = 8
"""The number of windows of each size in an epoch."""

READ_WHOLE = 256
"""The largest window of which all samples are read."""

READ_OF_A_WINDOW = 64
"""The number of random samples of a larger window: they vary less than windows do."""

READ_OF_AN_EPOCH = 2048
"""The number of random samples of an epoch, for statistics of the whole epoch."""

MAX_BUILT = 1 << 25
"""The most ids that are built in all for orders that are tables, such as a user's own."""

_EXACT_FLOATS = 2.0**-53

Statistic = Callable[[Ids, Ids, int], Numbers]
"""A mean over the pairs of samples of each segment; a function of the samples' segments, their ids, and the
number of segments."""


@final
class WindowSamples:
    """Samples of windows of some epochs, from which statistics are estimated.

    Args:
        source: the orders of the epochs.
        windows: the sizes of the windows.
        epochs: the number of epochs, from epoch 0; for orders that are built as tables, fewer epochs, with
            more windows each.
    """

    def __init__(self, source: OrderSource, windows: tuple[int, ...], epochs: int) -> None:
        order = source.order(0)
        built = sum(len(part) for part in getattr(order, "parts", (order,)) if isinstance(part, Table))
        affordable = min(epochs, max(2, MAX_BUILT // max(1, built)))
        self._shape = (len(windows), -(-epochs * WINDOWS // affordable))
        # If each epoch holds all samples once, the statistic of the whole epoch is known.
        self._reads_whole = source.plain is None
        self._read = [
            self._places(source.order(epoch), windows, Key(0, epoch, 0, "quality"))
            for epoch in range(affordable)
        ]

    def _places(self, order: Order, windows: tuple[int, ...], key: Key) -> tuple[Ids, Ids, Numbers]:
        """Returns the segment and the id of each sample of an epoch, sorted, and the pairs of each window.

        A segment is a window; if the whole epoch is sampled, it is the last segment.
        """
        per_epoch, length = self._shape[1], len(order)
        segments = len(windows) * per_epoch
        uniform = _uniform(key, 0, segments * (READ_OF_A_WINDOW + 1)).reshape(segments, -1)
        window = np.repeat(windows, per_epoch)
        turn = np.tile(np.arange(per_epoch), len(windows))
        # Windows are spread evenly over an epoch: each is in a part of its own.
        place = (turn + uniform[:, 0]) / per_epoch
        start = 2 - window + (place * (length + window - 3)).astype(np.int64)
        first, end = np.maximum(0, start), np.minimum(length, start + window)
        chosen = [_choose(*row) for row in zip(first.tolist(), end.tolist(), uniform[:, 1:], strict=True)]
        if self._reads_whole:
            chosen.append(_choose(0, length, _uniform(key, 1, READ_OF_AN_EPOCH)))
        segment = np.repeat(np.arange(len(chosen)), [part.size for part in chosen])
        size = (end - first).astype(np.float64)
        ids = _sorted_within(segment, order.ids_at(np.concatenate(chosen)))
        return segment, ids, size * (size - 1) / 2

    def mean(self, statistic: Statistic) -> tuple[Estimate, Estimate | None]:
        """Estimates the mean of a statistic over the pairs of samples in a window.

        Returns:
            The means in windows of each size, and over the pairs of a whole epoch if that was sampled.
        """
        above, below, epochs = [], [], []
        for segment, ids, pairs in self._read:
            means = statistic(segment, ids, pairs.size + self._reads_whole)
            above.append((means[: pairs.size] * pairs).reshape(self._shape).sum(axis=1))
            below.append(pairs.reshape(self._shape).sum(axis=1))
            epochs.append(means[pairs.size :])
        windows = Estimate.ratio(np.stack(above), np.stack(below))
        return windows, Estimate(np.stack(epochs)) if self._reads_whole else None


def _uniform(key: Key, index: int, count: int) -> Numbers:
    """Returns numbers in [0, 1)."""
    words = key.hashes(np.arange(count), index)
    uniform: Numbers = (words >> np.uint64(11)).astype(np.float64) * _EXACT_FLOATS
    return uniform


def _choose(first: int, end: int, uniform: Any) -> Ids:
    """Returns positions of [first, end): all of them, or distinct random ones."""
    if end - first <= max(READ_WHOLE, uniform.size):
        return np.arange(first, end)
    chosen = np.minimum((uniform * (end - first)).astype(np.int64), end - first - 1)
    return np.unique(chosen) + first


def _sorted_within(segment: Ids, values: Any) -> Any:
    """Sorts the values of each segment."""
    return values[np.lexsort((values, segment))]


def differing(group_of: Callable[[Ids], npt.NDArray[Any]]) -> Statistic:
    """Returns the statistic that is 0 for two samples of one group, and 1 for samples of different groups."""

    def mean(segment: Ids, ids: Ids, count: int) -> Numbers:
        group = _sorted_within(segment, group_of(ids))
        first, sizes = runs_of(group, segment)
        shared = np.bincount(segment[first], sizes * (sizes - 1), minlength=count)
        return 1 - shared / _ordered_pairs(segment, count)

    return mean


def distance(segment: Ids, ids: Ids, count: int) -> Numbers:
    """The statistic that is the distance of two ids; ids must be sorted within segments."""
    sizes = np.bincount(segment, minlength=count)
    starts = np.cumsum(sizes) - sizes
    rank = np.arange(segment.size) - starts[segment]
    # Relative to the smallest id of the segment, so that differences are exact in float64.
    offsets = (ids - ids[starts[segment]]).astype(np.float64)
    summed = np.bincount(segment, (2.0 * rank - sizes[segment] + 1) * offsets, minlength=count)
    return 2 * summed / _ordered_pairs(segment, count)


def _ordered_pairs(segment: Ids, count: int) -> Numbers:
    sizes = np.bincount(segment, minlength=count).astype(np.float64)
    return sizes * (sizes - 1)
