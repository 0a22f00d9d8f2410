"""The order of MindSpore's RandomSampler over a ConcatDataset."""

from __future__ import annotations

from bisect import bisect_left
from typing import Any

import numpy as np

from samplerkit.compat.mindspore.replay.generators import Mt19937, canonical
from samplerkit.order.typing import Ids

_TIE = 1e-12
_AT_ONCE = 1 << 16

Numbers = np.ndarray[Any, np.dtype[np.float64]]


def random_concat(sizes: Ids, seed: int, epoch: int) -> Ids:
    """Draws, for each position, the part that is read next: in proportion to what remains of each part.

    The samples of a part come in order. One generator serves all epochs, and draws once more than there are
    samples in each.

    Args:
        sizes: samples in each part, int64 of shape (parts,).
        seed: of the generator.
        epoch: the epoch, from 0.

    Returns:
        The sample ids, int64 of shape (sum of sizes,). Time: proportional to samples times parts.
    """
    total = int(sizes.sum())
    if sizes.size < 2:
        return np.arange(total)
    generator = Mt19937(seed)
    generator.skip(2 * (total + 1) * epoch)
    parts = np.empty(total, dtype=np.int32)
    left = sizes.tolist()
    for start in range(0, total, _AT_ONCE):
        numbers = canonical(generator, min(_AT_ONCE, total - start))
        parts[start : start + numbers.size] = _parts(left, total - start, numbers)
    ids = np.empty(total, dtype=np.int64)
    ids[np.argsort(parts, kind="stable")] = np.arange(total)
    return ids


def _parts(left: list[int], total: int, numbers: Numbers) -> list[int]:
    """Draws parts; updates how many samples are left of each, `total` in all."""
    # Where each part ends; of the last one it is known.
    ends = np.cumsum(left[:-1]).tolist()
    last = len(ends)
    totals = np.arange(total, total - numbers.size, -1)
    wanted = numbers * totals
    # All ends are whole numbers: roundings can only decide where a number is close to one.
    doubtful = np.flatnonzero(np.abs(wanted - np.rint(wanted)) < _TIE * total).tolist()
    whole = np.ceil(wanted).astype(np.int64).tolist()
    parts: list[int] = []
    start = 0
    for stop in [*doubtful, numbers.size]:
        for number in whole[start:stop]:
            part = bisect_left(ends, number)
            parts.append(part)
            for later in range(part, last):
                ends[later] -= 1
        if stop < numbers.size:
            part = _drawn_by_doubles([*ends, int(totals[stop])], float(numbers[stop]))
            parts.append(part)
            for later in range(part, last):
                ends[later] -= 1
        start = stop + 1
    left[:] = np.diff([*ends, total - numbers.size], prepend=0).tolist()
    return parts


def _drawn_by_doubles(ends: list[int], number: float) -> int:
    """Draws one part with the roundings of `std::discrete_distribution`: they decide close to a border."""
    left = np.diff(np.array(ends, dtype=np.float64), prepend=0.0)
    borders = np.cumsum(left / ends[-1])
    borders[-1] = 1.0
    part = int(np.searchsorted(borders, number, side="left"))
    # MindSpore never reads a part that is used up; only the number 0 could choose one.
    while not left[part]:
        part += 1
    return part
