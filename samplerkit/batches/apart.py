"""Repeats of a sample within a window stand in batches of their own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from samplerkit.order.typing import Ids

_MOST_AT_ONCE = 64


@final
@dataclass(frozen=True, eq=False)
class Repeats:
    """Which places of a window hold one sample.

    Args:
        firsts: the first place that holds the sample of each place.
        counts: how many places hold it.
    """

    firsts: Ids
    counts: Ids


def repeats_in(ids: Ids) -> Repeats | None:
    """Finds the repeats in a window, None if there are none.

    Example:
        >>> repeats_in(np.array([4, 2, 4])).counts, repeats_in(np.array([4, 2]))
        (array([2, 1, 2]), None)
    """
    ascending = np.sort(ids)
    if not (ascending[1:] == ascending[:-1]).any():
        return None
    _, first, inverse, counts = np.unique(ids, return_index=True, return_inverse=True, return_counts=True)
    return Repeats(first[inverse], counts[inverse])


def spread(places: Ids, sizes: Ids, repeats: Repeats | None = None) -> list[Ids]:
    """Cuts places that are sorted by length, the longest first, into batches.

    Where samples come several times, as many neighbouring batches are cut at once and dealt, so that repeats,
    which stand together, come to different ones.

    Args:
        places: of the samples, repeats of a sample next to one another.
        sizes: how many samples fit into a batch that begins at each.
        repeats: of the window; None where there are none.

    Example:
        >>> repeats = repeats_in(np.array([7, 7, 8, 9]))
        >>> [batch.tolist() for batch in spread(np.arange(4), np.full(4, 2), repeats)]
        [[0, 2], [1, 3]]
    """
    batches: list[Ids] = []
    counts = None if repeats is None else repeats.counts[places]
    at = 0
    while at < places.size:
        dealt = 1
        end = at + sizes.item(at)
        while counts is not None and dealt < _MOST_AT_ONCE:
            most = min(int(counts[at:end].max()), _MOST_AT_ONCE)
            if most <= dealt:
                break
            dealt = most
            end = at + dealt * sizes.item(at)
        block = places[at:end]
        # Of a sample's repeats some may stand in the block before.
        dealt = min(dealt, block.size)
        batches += [block[first::dealt] for first in range(dealt)] if dealt > 1 else [block]
        at = end
    return batches
