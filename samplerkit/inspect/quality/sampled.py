"""Figures by random access: windows of some epochs, at random places, and what their samples share.

Windows are laid as for the closed forms: at any place, over the ends too, each pair of samples counting as
often as windows see it. Epochs differ more than the windows of one epoch do, and so the standard error is
clustered by epoch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np
import numpy.typing as npt

from samplerkit.inspect.quality.figure import Estimate
from samplerkit.inspect.quality.order_source import OrderSource
from samplerkit.inspect.quality.pairs import Numbers
from samplerkit.order.keys import Key
from samplerkit.order.sequences import Table
from samplerkit.order.typing import Ids

READ_WHOLE = 256
"""The largest window of which all samples are looked at."""

READ_OF_A_WINDOW = 64
"""Samples at random places of a larger window: what they share varies less than windows do."""

READ_OF_AN_EPOCH = 2048
"""Samples at random places of an epoch, for what two of them share."""

MOST_BUILT = 1 << 25
"""Ids of orders that are tables, such as a user's own, which are built in all."""

_EXACT_FLOATS = 2.0**-53

Statistic = Callable[[Ids, Ids, int], Numbers]
"""The mean over pairs, from the segment of each sample, its id, and the number of segments."""


@final
@dataclass(frozen=True)
class SamplingPlan:
    """How much is read.

    Args:
        windows: the sizes of the windows.
        epochs: how many epochs, from epoch 0.
        per_epoch: windows of each size in an epoch.
        seed: of the places of the windows.
        whole: whether pairs of a whole epoch are looked at too.
    """

    windows: tuple[int, ...]
    epochs: int = 64
    per_epoch: int = 8
    seed: int = 0
    whole: bool = True


def sampled(
    subject: OrderSource, plan: SamplingPlan, statistics: list[Statistic]
) -> list[tuple[Estimate, Estimate | None]]:
    """Estimates the mean of statistics over the pairs of samples in a window.

    Returns:
        For each statistic, its means in windows of each size, and its mean over the pairs of a whole epoch if
        that is planned.
    """
    plan = _affordable(plan, subject)
    above: list[list[Numbers]] = [[] for _ in statistics]
    whole: list[list[Numbers]] = [[] for _ in statistics]
    below = []
    shape = (len(plan.windows), plan.per_epoch)
    for epoch in range(plan.epochs):
        order = subject.order(epoch)
        places = _Places(len(order), plan, epoch)
        ids = order.ids_at(places.positions)
        segment, ids = _sorted_within(places.segment, ids)
        below.append(places.pairs.reshape(shape).sum(axis=1))
        for number, statistic in enumerate(statistics):
            means = statistic(segment, ids, places.pairs.size + plan.whole)
            weighted = means[: places.pairs.size] * places.pairs
            above[number].append(weighted.reshape(shape).sum(axis=1))
            whole[number].append(means[places.pairs.size :])
    pairs = np.stack(below)
    return [
        (Estimate.ratio(np.stack(a), pairs), Estimate.mean_of(w) if plan.whole else None)
        for a, w in zip(above, whole, strict=True)
    ]


def _affordable(plan: SamplingPlan, subject: OrderSource) -> SamplingPlan:
    """Reads fewer epochs, and more windows of each, where an epoch is built as a table."""
    order = subject.order(0)
    built = sum(len(part) for part in getattr(order, "parts", (order,)) if isinstance(part, Table))
    epochs = min(plan.epochs, max(2, MOST_BUILT // max(1, built)))
    return replace(plan, epochs=epochs, per_epoch=-(-plan.epochs * plan.per_epoch // epochs))


@final
class _Places:
    """The positions that are read of one epoch; a last segment is the whole epoch."""

    def __init__(self, length: int, plan: SamplingPlan, epoch: int) -> None:
        key = Key(plan.seed, epoch, 0, "quality")
        segments = len(plan.windows) * plan.per_epoch
        uniform = _uniform(key, 0, segments * (READ_OF_A_WINDOW + 1)).reshape(segments, -1)
        window = np.repeat(plan.windows, plan.per_epoch)
        turn = np.tile(np.arange(plan.per_epoch), len(plan.windows))
        # Windows of an epoch are spread evenly: each lies in its own part.
        place = (turn + uniform[:, 0]) / plan.per_epoch
        start = 2 - window + (place * (length + window - 3)).astype(np.int64)
        first, end = np.maximum(0, start), np.minimum(length, start + window)
        bounds = zip(first.tolist(), end.tolist(), uniform[:, 1:], strict=True)
        found = [_read(*bound) for bound in bounds]
        if plan.whole:
            found.append(_read(0, length, _uniform(key, 1, READ_OF_AN_EPOCH)))
        self.positions: Ids = np.concatenate(found)
        self.segment: Ids = np.repeat(np.arange(len(found)), [part.size for part in found])
        size = (end - first).astype(np.float64)
        self.pairs: Numbers = size * (size - 1) / 2


def _uniform(key: Key, index: int, count: int) -> Numbers:
    """Gives numbers in [0, 1)."""
    words = key.hashes(np.arange(count), index)
    uniform: Numbers = (words >> np.uint64(11)).astype(np.float64) * _EXACT_FLOATS
    return uniform


def _read(first: int, end: int, uniform: Any) -> Ids:
    """Chooses positions of [first, end): all of them, or some at random, none of them twice."""
    if end - first <= max(READ_WHOLE, uniform.size):
        return np.arange(first, end)
    chosen = np.minimum((uniform * (end - first)).astype(np.int64), end - first - 1)
    return np.unique(chosen) + first


def _sorted_within(segment: Ids, values: Any) -> tuple[Ids, Any]:
    """Sorts the values of each segment."""
    by = np.lexsort((values, segment))
    return segment, values[by]


def differing(group_of: Callable[[Ids], npt.NDArray[Any]]) -> Statistic:
    """Makes the statistic that is 0 for two samples of one group and 1 for others."""

    def mean(segment: Ids, ids: Ids, count: int) -> Numbers:
        _, group = _sorted_within(segment, group_of(ids))
        begins = np.append(True, (group[1:] != group[:-1]) | (segment[1:] != segment[:-1]))
        first = np.flatnonzero(begins)
        together = np.diff(np.append(first, segment.size)).astype(np.float64)
        shared = np.bincount(segment[first], together * (together - 1), minlength=count)
        return 1 - shared / _ordered_pairs(segment, count)

    return mean


def distance(segment: Ids, ids: Ids, count: int) -> Numbers:
    """The statistic that is the distance of two ids, which come sorted within segments."""
    sizes = np.bincount(segment, minlength=count)
    starts = np.cumsum(sizes) - sizes
    rank = np.arange(segment.size) - starts[segment]
    # From the smallest of the segment on, differences are exact.
    apart = (ids - ids[starts[segment]]).astype(np.float64)
    summed = np.bincount(segment, (2.0 * rank - sizes[segment] + 1) * apart, minlength=count)
    return 2 * summed / _ordered_pairs(segment, count)


def _ordered_pairs(segment: Ids, count: int) -> Numbers:
    sizes = np.bincount(segment, minlength=count).astype(np.float64)
    return sizes * (sizes - 1)
