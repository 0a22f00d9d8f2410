"""A ledger counted one by one, row after row: what the arithmetic of the package is held against."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import samplerkit as sk


def walk(base: Callable[[int], int], lanes: int, edits: Sequence[sk.Edit], count: int) -> list[int]:
    """Reads the first positions of an edited stream of which each position is known.

    Args:
        base: gives the id at a position, before any edit.
        lanes: of the stream.
        edits: skips alone.
        count: how many positions to read.
    """
    next_rows = [0] * lanes
    read, waiting = [], list(edits)
    for position in range(count):
        while waiting and waiting[0].at == position:
            for left in range(position, position + waiting.pop(0).skip):
                next_rows[left % lanes] += 1
        lane = position % lanes
        read.append(base(next_rows[lane] * lanes + lane))
        next_rows[lane] += 1
    return read
