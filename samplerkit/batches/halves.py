"""More batches of the same samples: the largest are halved."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from samplerkit.order.typing import Ids


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
        >>> import numpy as np
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
