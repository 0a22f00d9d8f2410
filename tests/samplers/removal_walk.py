"""Ids that leave an edited run, counted one by one: passes are lists, and each draw of each lane is made."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from tests.samplers.dealing import cut, woven


class Source(Protocol):
    """What is read at positions of its own."""

    def at(self, position: int) -> int | None:
        """Gives the id at a position; None for a position that is no longer read."""

    def leave(self, ids: set[int], drawn: set[int]) -> None:
        """Takes ids out of all positions that were not drawn."""


class WalkedPasses:
    """Pass after pass over a list.

    Args:
        order: gives the ids of a pass.
        lanes: into how many lanes each is woven.
    """

    def __init__(self, order: Callable[[int], Sequence[int]], lanes: int) -> None:
        self._order, self._lanes = order, lanes
        self._changes: list[tuple[int, int, set[int]]] = [(0, 0, set())]
        self._dead: set[int] = set()

    def at(self, position: int) -> int | None:
        """Gives the id at a position; None for a position that is no longer read."""
        return None if position in self._dead else self._id(position)

    def leave(self, ids: set[int], drawn: set[int]) -> None:
        """Takes ids out of the rest of passes that were started, and of all later ones."""
        begin, first, removed = max(change for change in self._changes if change[0] <= max(drawn, default=0))
        size = len(self._pass(first, removed))
        while any(position >= begin for position in drawn):
            begin, first = begin + size, first + 1
        self._dead |= {p for p in range(begin) if p not in drawn and self._id(p) in ids}
        self._changes = [change for change in self._changes if change[0] < begin]
        self._changes.append((begin, first, self._removed | ids))
        self._removed = self._removed | ids

    _removed: set[int] = set()  # noqa: RUF012  # replaced, never changed

    def _id(self, position: int) -> int:
        begin, first, removed = max(change for change in self._changes if change[0] <= position)
        size = len(self._pass(first, removed))
        number, place = divmod(position - begin, size)
        return self._pass(first + number, removed)[place]

    def _pass(self, number: int, removed: set[int]) -> list[int]:
        ids = list(self._order(number))
        rest = [id for lane in range(self._lanes) for id in ids[lane :: self._lanes] if id not in removed]
        return woven(cut(rest, self._lanes))


class WalkedMix:
    """A mixture: each row of each lane is drawn in turn.

    Args:
        draw: returns the draw of a lane and row, in 60 bits.
        sources: what is mixed, with the number that is added to the ids of each, and how many these are.
        weights: at the beginning.
        lanes: of the mixture.
    """

    def __init__(
        self,
        draw: Callable[[int, int], int],
        sources: Sequence[tuple[Source, int, int]],
        weights: Sequence[int],
        lanes: int,
    ) -> None:
        self._draw, self._sources, self.weights, self.lanes = draw, sources, list(weights), lanes
        self._rows: list[list[tuple[int, int]]] = [[] for _ in range(lanes)]
        self._counts = [[0] * len(sources) for _ in range(lanes)]

    def at(self, position: int) -> int | None:
        """Gives the id at a position; None for a position that is no longer read."""
        source, inner = self._place(position)
        walked, start, _ = self._sources[source]
        id = walked.at(inner)
        return None if id is None else id + start

    def leave(self, ids: set[int], drawn: set[int]) -> None:
        """Takes ids out of the sources that have them."""
        places = [self._place(position) for position in drawn]
        for number, (walked, start, size) in enumerate(self._sources):
            own = {id - start for id in ids if start <= id < start + size}
            if own:
                walked.leave(own, {inner for source, inner in places if source == number})

    def reweigh(self, weights: Sequence[int], first_rows: Sequence[int]) -> None:
        """Reads each lane by other weights from a row on."""
        self.weights = list(weights)
        for lane, row in enumerate(first_rows):
            del self._rows[lane][row:]
            sources = [source for source, _ in self._rows[lane]]
            self._counts[lane] = [sources.count(source) for source in range(len(weights))]

    def _place(self, position: int) -> tuple[int, int]:
        row, lane = divmod(position, self.lanes)
        while len(self._rows[lane]) <= row:
            draw, total = self._draw(lane, len(self._rows[lane])), sum(self.weights)
            sums = [sum(self.weights[: s + 1]) for s in range(len(self.weights))]
            source = next(s for s, end in enumerate(sums) if draw * total < end << 60)
            inner = self._counts[lane][source] * self.lanes + lane
            self._counts[lane][source] += 1
            self._rows[lane].append((source, inner))
        return self._rows[lane][row]


def walk_removals(
    stream: WalkedMix | WalkedPasses,
    lanes: int,
    edits: Sequence[tuple[int, Sequence[int] | None, int, set[int]]],
    count: int,
) -> list[int]:
    """Reads the first positions of an edited stream.

    Args:
        stream: without edits.
        lanes: of it.
        edits: position, new weights or None, how many positions are skipped, and the ids that leave.
        count: how many positions to read.
    """
    next_rows, first_rows, drawn, read = [0] * lanes, [0] * lanes, set[int](), []

    def draw(lane: int) -> int:
        id = None
        while id is None:
            position = next_rows[lane] * lanes + lane
            id = stream.at(position)
            drawn.add(position)
            next_rows[lane] += 1
        return id

    for position in range(count):
        current = [edit for edit in edits if edit[0] == position]
        for _, weights, _, _ in current:
            if weights is not None and isinstance(stream, WalkedMix):
                stream.reweigh(weights, first_rows)
        for _, _, skipped, _ in current:
            for other in range(position, position + skipped):
                draw(other % lanes)
        for _, _, _, leaving in current:
            if leaving:
                stream.leave(leaving, drawn)
        read.append(draw(position % lanes))
        # Weights change there, whatever is skipped.
        first_rows[position % lanes] = next_rows[position % lanes]
    return read
