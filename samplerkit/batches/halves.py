"""More batches of the same samples: the largest are halved, or the last ones cut again, somewhat smaller."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence

import numpy as np

from samplerkit.order.typing import Ids

_GROUPS_CUT_AGAIN = 2
_WHOLE = 1 << 12


def halved(batches: Sequence[Ids], count: int, multiple: int = 1) -> list[Ids]:
    """Halves the largest batch, the last one of several, until there are `count` or each holds one sample.

    A part of a batch costs no more than the batch, and so keeps every limit. The halves stand where it stood.

    Args:
        batches: int64 arrays, none empty.
        count: how many there shall be.
        multiple: a half is a multiple of it, where the batch is larger.

    Returns:
        The batches: as many as they were if those are enough.

    Example:
        >>> [batch.tolist() for batch in halved([np.arange(2), np.arange(5)], 4)]
        [[0, 1], [0, 1], [2], [3, 4]]
    """
    parts = [[batch] for batch in batches]
    # Of parts of one size the last comes first, so that those of like batches stand together.
    waiting = [(-batch.size, -number) for number, batch in enumerate(batches)]
    heapq.heapify(waiting)
    for _ in range(count - len(batches)):
        if not waiting or waiting[0][0] >= -1:
            break
        size, number = -waiting[0][0], -waiting[0][1]
        at = max(range(len(parts[number])), key=lambda k: parts[number][k].size)
        batch = parts[number][at]
        half = (size + 1) // 2
        rounded = half + -half % multiple
        half = rounded if rounded < size else half
        parts[number][at : at + 1] = [batch[:half], batch[half:]]
        largest = max(part.size for part in parts[number])
        heapq.heapreplace(waiting, (-largest, -number))
    return [part for several in parts for part in several]


def cut_again(
    batches: Sequence[Ids], sizes_at: Callable[[Ids], Ids], count: int, abreast: int, multiple: int = 1
) -> list[Ids]:
    """Cuts the last batches again, so that there are as many as wanted and those of a group stay alike.

    Halves beside whole batches would make ranks wait. The last two groups, whose samples are the shortest and
    fill a batch most evenly, are cut by a part of their sizes instead.

    Args:
        batches: int64 arrays of places, the longest samples first, in each and from one to the next.
        sizes_at: gives how many samples fit into a batch that begins with each of some places; where they
            do not grow, since the places are not sorted, batches are halved.
        count: how many there shall be: a multiple of `abreast`, and fewer than `abreast` more than there are.
        abreast: batches in a group.
        multiple: of samples in a batch, where so many fit.

    Example:
        >>> batches = [np.arange(4), np.arange(4, 12)]
        >>> again = cut_again(batches, lambda places: 4 + places // 4 * 2, count=4, abreast=4)
        >>> [batch.tolist() for batch in again]
        [[0, 1], [2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
    """
    kept = max(0, count - _GROUPS_CUT_AGAIN * abreast)
    places = np.concatenate(batches[kept:])
    sizes = sizes_at(places)
    if (np.diff(sizes) < 0).any():
        return halved(batches, count, multiple)
    low, high = 1, _WHOLE
    while low < high:
        middle = (low + high) // 2
        is_enough = len(_edges(sizes, middle, multiple)) <= count - kept
        low, high = (low, middle) if is_enough else (middle + 1, high)
    again = np.split(places, _edges(sizes, low, multiple)[1:])
    return halved([*batches[:kept], *again], count, multiple)


def _edges(sizes: Ids, part: int, multiple: int) -> list[int]:
    """Gives where batches begin, each of a part of the size that is said where it begins."""
    edges = []
    at = 0
    while at < sizes.size:
        edges.append(at)
        size = max(1, sizes.item(at) * part // _WHOLE)
        at += size - size % multiple if size >= multiple else size
    return edges
