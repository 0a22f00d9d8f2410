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


def walk_mixture(
    throw: Callable[[int, int], int],
    sources: Sequence[Callable[[int], int]],
    weights: Sequence[float],
    lanes: int,
    edits: Sequence[tuple[int, Sequence[float] | None, int]],
    count: int,
) -> list[tuple[int, int]]:
    """Reads the first positions of an edited mixture, counting each draw of each lane.

    Args:
        throw: gives the die of a lane and row, of 60 bits.
        sources: each gives the id at a position of its stream.
        weights: before any edit.
        lanes: of the mixture.
        edits: position, new weights or None, and how many positions are skipped.
        count: how many positions to read.

    Returns:
        Of each position the source and the id.
    """
    rows, skipped = [0] * lanes, [0] * lanes
    drawn = [[0] * len(sources) for _ in range(lanes)]
    read, waiting = [], list(edits)

    def draw(lane: int) -> tuple[int, int]:
        die, row = throw(lane, rows[lane]), rows[lane]
        total = sum(weights)
        source = next(s for s in range(len(weights)) if die * total < sum(weights[: s + 1]) << 60)
        turn = drawn[lane][source]
        drawn[lane][source] += 1
        rows[lane] = row + 1
        return source, sources[source](turn * lanes + lane)

    for position in range(count):
        while waiting and waiting[0][0] == position:
            _, given, left = waiting.pop(0)
            weights = weights if given is None else given
            for one in range(position, position + left):
                skipped[one % lanes] += 1
        lane = position % lanes
        while skipped[lane]:  # they count as drawn
            skipped[lane] -= 1
            draw(lane)
        read.append(draw(lane))
    return read
