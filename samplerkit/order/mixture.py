"""Several sources mixed by weights: a periodic schedule, and the order that reads the sources by it."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import Literal, final

import numpy as np

from samplerkit.order.algebra import groups
from samplerkit.order.files import Block, permute_blocks
from samplerkit.order.keys import Key
from samplerkit.order.layout import Layout
from samplerkit.order.order import Located, Order
from samplerkit.order.typing import Ids

LONGEST_PERIOD = 1 << 20
"""The longest schedule that is made: the sum of the weights as integers without a common divisor."""

Stop = Literal["first", "all"]
"""When a mixture ends: before a source would be read a second time, or once all were read to their end."""


@final
@dataclass(frozen=True)
class Schedule:
    """Which source each position reads, repeating after a period.

    After any number p of positions, each source has been read within less than one of its share: source i,
    |count - p * weight / period| < 1.

    Args:
        weights: non-negative integers, int64 of shape (sources,); their sum is the period.

    Source: the schedule is earliest deadline first over the windows of proportional fairness, Baruah et al.,
    "Proportionate progress: a notion of fairness in resource allocation" (1996).

    Example:
        >>> Schedule.of([3, 1]).sources.tolist()
        [0, 0, 0, 1]
    """

    weights: Ids
    sources: Ids
    turns: Ids
    places: tuple[Ids, ...]

    @classmethod
    def of(cls, weights: list[int]) -> Schedule:
        """Makes the schedule of integer weights."""
        period = sum(weights)
        waiting = [(0, source) for source, weight in enumerate(weights) if weight]
        turns = [0] * len(weights)
        ready: list[tuple[int, int]] = []
        sources = np.empty(period, dtype=np.int64)
        for slot in range(period):
            while waiting and waiting[0][0] <= slot:
                _, source = heapq.heappop(waiting)
                heapq.heappush(ready, (-(-(turns[source] + 1) * period // weights[source]), source))
            _, source = heapq.heappop(ready)
            sources[slot] = source
            turns[source] += 1
            heapq.heappush(waiting, (turns[source] * period // weights[source], source))
        places = tuple(np.flatnonzero(sources == source) for source in range(len(weights)))
        turn = np.empty(period, dtype=np.int64)
        for place in places:
            turn[place] = np.arange(place.size)
        return cls(np.array(weights, dtype=np.int64), sources, turn, places)

    @property
    def period(self) -> int:
        """After how many positions the schedule repeats."""
        return self.sources.size

    def position(self, source: int, draw: int) -> int:
        """Gives the position at which a source of positive weight is read for the draw-th time, from 0."""
        rounds, turn = divmod(draw, int(self.weights[source]))
        return rounds * self.period + int(self.places[source][turn])


@final
class Mixed(Order):
    """The samples of several sources by a schedule; a source that is read to its end begins anew.

    Args:
        layout: the sources are its files; those of positive weight are not empty.
        schedule: which source each position reads.
        length: the number of positions.
        key: pass t over source s is shuffled by the words of (s, t); None leaves samples as they stand.
    """

    def __init__(self, layout: Layout, schedule: Schedule, length: int, key: Key | None) -> None:
        self._layout = layout
        self._schedule = schedule
        self._length = length
        self._key = key

    def __len__(self) -> int:
        return self._length

    def ids_at(self, positions: Ids) -> Ids:
        rounds, slot = np.divmod(positions, self._schedule.period)
        source = self._schedule.sources[slot]
        draw = rounds * self._schedule.weights[source] + self._schedule.turns[slot]
        number, row = np.divmod(draw, np.maximum(1, self._layout.sizes)[source])
        return self._layout.starts[source] + self._shuffled(source, number, row, inverse=False)

    def locate(self, ids: Ids) -> Located:
        found = [(np.zeros(0, dtype=np.int64),) * 2]
        inside = np.flatnonzero((ids >= 0) & (ids < len(self._layout)))
        for source, at in groups(self._layout.file_of(ids[inside])):
            weight, size = int(self._schedule.weights[source]), int(self._layout.sizes[source])
            draws = self._draws(source) if weight else 0
            for number in range(-(-draws // size)):
                row = ids[inside[at]] - self._layout.starts[source]
                same = np.full(row.size, source), np.full(row.size, number)
                draw = number * size + self._shuffled(*same, row, inverse=True)
                rounds, turn = np.divmod(draw, weight)
                positions = rounds * self._schedule.period + self._schedule.places[source][turn]
                kept = positions < self._length
                found.append((inside[at][kept], positions[kept]))
        return np.concatenate([which for which, _ in found]), np.concatenate([p for _, p in found])

    def _draws(self, source: int) -> int:
        """How often a source is read in the whole order."""
        rounds, slots = divmod(self._length, self._schedule.period)
        places = self._schedule.places[source]
        return rounds * places.size + int(np.searchsorted(places, slots))

    def _shuffled(self, source: Ids, number: Ids, row: Ids, *, inverse: bool) -> Ids:
        if self._key is None or row.size == 0:
            return row
        passes = int(number.max()) + 1
        distinct, which = np.unique(source * passes + number, return_inverse=True)
        blocks = [
            Block(label // passes, label % passes, int(self._layout.sizes[label // passes]))
            for label in distinct.tolist()
        ]
        return permute_blocks(blocks, self._key, which, row, inverse=inverse)


def mixture_length(schedule: Schedule, layout: Layout, stop: str) -> int:
    """Gives the number of positions after which a mixture ends.

    Example:
        >>> mixture_length(Schedule.of([3, 1]), Layout([6, 10]), "first")
        8
        >>> mixture_length(Schedule.of([3, 1]), Layout([6, 10]), "all")
        40
    """
    read = [source for source in range(layout.num_files) if schedule.weights[source]]
    if stop == "first":
        return min(schedule.position(source, int(layout.sizes[source])) for source in read)
    return max(schedule.position(source, int(layout.sizes[source]) - 1) + 1 for source in read)
