"""Which lane of a mixture comes first, or last, to some turn of a source, without the row of each lane.

A row is found by trying sixteen digits at each of fifteen places; on which side of a row a turn is, by one
look at each place. So one row is found, all turns are compared with it, and the next row is found of those
beyond it.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from samplerkit.order.keys import Key
from samplerkit.order.mixing.source_draws import SourceDraws
from samplerkit.order.typing import Ids

MOST_AHEAD = 150
"""Reads of a source by which a lane is ahead of its share, or behind it, at most."""

BEYOND = 1 << 62
"""The row of turns that come at no row of 62 bits."""

_TOGETHER = 1 << 13


def outermost(
    draws: SourceDraws, lanes: Ids, turns: Ids, low: Ids, high: Ids, *, last: bool
) -> tuple[int, int]:
    """Finds the turn that comes first, by its row and then its lane; or the last one.

    Args:
        draws: of the rows.
        lanes: of each turn, shape (m,), m positive.
        turns: how often the lane read the source before; shape (m,).
        low: the source's first draw; shape (m,).
        high: the end of its draws, larger than `low`; shape (m,).
        last: whether the last one is sought.

    Returns:
        Its row and its lane; `BEYOND` and the lane of any such turn, if the row has more than 62 bits.

    Example:
        >>> from samplerkit.order.keys import Key
        >>> draws = SourceDraws(Key(seed=7, epoch=0, depth=0, role="sources"))
        >>> lanes, half = np.arange(1000), np.full(1000, 1 << 59)
        >>> turns, none = np.full(1000, 500), np.zeros(1000, dtype=np.int64)
        >>> rows = draws.position(lanes, turns, none, half)
        >>> outermost(draws, lanes, turns, none, half, last=False) == (rows.min(), rows.argmin())
        True
    """
    width = (high - low) / (1 << 60)
    rows = (turns + 0.5) / width
    # Whatever a lane does, it is this near to its share: most sources are far from the end of the first one.
    near = (MOST_AHEAD + 1) / width + rows * 1e-12  # floats of 2^62 are 1,024 apart
    at = np.flatnonzero(rows + near >= (rows - near).max() if last else rows - near <= (rows + near).min())
    best = at[int(np.argmax(rows[at]) if last else np.argmin(rows[at]))]
    row, lane = _row(draws, lanes, turns, low, high, best), int(lanes[best])
    for begin in range(0, at.size, _TOGETHER):
        left = at[begin : begin + _TOGETHER]
        while left.size:
            # Rows of this number lie before the best one in the lanes before its own.
            bound = np.minimum(row + (lanes[left] <= lane if last else lanes[left] < lane), BEYOND - 1)
            reads = draws.before(lanes[left], bound, high[left]) - draws.before(lanes[left], bound, low[left])
            ahead = (reads - turns[left]) / width[left]
            beyond = np.flatnonzero(reads <= turns[left] if last else reads > turns[left])
            if not beyond.size or (last and row == BEYOND):
                break
            left, ahead = left[beyond], ahead[beyond]
            best = left[int(np.argmin(ahead) if last else np.argmax(ahead))]
            row, lane = _row(draws, lanes, turns, low, high, best), int(lanes[best])
            left = left[left != best]
    return row, lane


def _row(draws: SourceDraws, lanes: Ids, turns: Ids, low: Ids, high: Ids, one: int) -> int:
    return int(draws.position(lanes[one], turns[one], low[one], high[one]))


@lru_cache(64)
def first_length(
    draws: tuple[Key, int], lanes: int, sizes: tuple[int, ...], ends: tuple[int, ...], *, is_first: bool
) -> int:
    """Returns how many positions the first epoch has; kept, since each epoch of a run asks for it.

    Args:
        draws: the key and the index of `SourceDraws`.
        lanes: of the mixture.
        sizes: of the sources.
        ends: from `thresholds`.
        is_first: whether it ends before a source would begin again, else once each was read to its end.
    """
    size, end = np.array(sizes), np.array(ends)
    read, lane = (part.reshape(-1) for part in np.indices((size.size, lanes)))
    is_read = (np.diff(end) > 0)[read] & (is_first | (lane < size[read]))
    read, lane = read[is_read], lane[is_read]
    # The turn of each lane that begins a source again, or the last one of its first pass.
    last = size[read] - lane + (lanes - 1 if is_first else -1)
    turns = np.maximum(0, last // lanes)
    row, ends_in = outermost(SourceDraws(*draws), lane, turns, end[read], end[read + 1], last=not is_first)
    # Python's integers: a large source of a small weight ends beyond 64 bits.
    return row * lanes + ends_in + (not is_first)
