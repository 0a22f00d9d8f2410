"""Several sources mixed by weights: the order that reads them by a schedule."""

from __future__ import annotations

from typing import Literal, final

import numpy as np

from samplerkit.order.algebra import groups
from samplerkit.order.files import Block, permute_blocks
from samplerkit.order.keys import Key
from samplerkit.order.layout import Layout
from samplerkit.order.order import Located, Order
from samplerkit.order.schedule import Schedule, first_reads, reads_before
from samplerkit.order.typing import Ids

Stop = Literal["first", "all"]
"""When a mixture ends: before a source would be read a second time, or once all were read to their end."""


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
        rounds, slots = np.divmod(positions, self._schedule.period)
        source, turn = self._schedule.read(slots)
        draw = rounds * self._schedule.weights[source] + turn
        number, row = np.divmod(draw, np.maximum(1, self._layout.sizes)[source])
        return self._layout.starts[source] + self._shuffled(source, number, row, inverse=False)

    def locate(self, ids: Ids) -> Located:
        found = [(np.zeros(0, dtype=np.int64),) * 2]
        inside = np.flatnonzero((ids >= 0) & (ids < len(self._layout)))
        for source, at in groups(self._layout.file_of(ids[inside])):
            weight, size = int(self._schedule.weights[source]), int(self._layout.sizes[source])
            draws = reads_before(self._schedule, source, self._length) if weight else 0
            for number in range(-(-draws // size)):
                row = ids[inside[at]] - self._layout.starts[source]
                same = np.full(row.size, source), np.full(row.size, number)
                draw = number * size + self._shuffled(*same, row, inverse=True)
                rounds, turn = np.divmod(draw, weight)
                positions = rounds * self._schedule.period + self._schedule.slots(source, turn)
                kept = positions < self._length
                found.append((inside[at][kept], positions[kept]))
        return np.concatenate([which for which, _ in found]), np.concatenate([p for _, p in found])

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
        >>> from samplerkit.order.schedule import schedule_of
        >>> mixture_length(schedule_of([3, 1]), Layout([6, 10]), "first")
        8
        >>> mixture_length(schedule_of([3, 1]), Layout([6, 10]), "all")
        40
    """
    read = [source for source in range(layout.num_files) if schedule.weights[source]]
    if stop == "first":
        return min(first_reads(schedule, source, int(layout.sizes[source])) for source in read)
    return max(first_reads(schedule, source, int(layout.sizes[source]) - 1) + 1 for source in read)
