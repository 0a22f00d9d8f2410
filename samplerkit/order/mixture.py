"""Several sources mixed by weights: the order that reads them by a schedule."""

from __future__ import annotations

from typing import Literal, final

import numpy as np

from samplerkit.errors import InverseTooLargeError
from samplerkit.order.blocks import Block, KeptBlocks
from samplerkit.order.files import distinct
from samplerkit.order.keys import Key
from samplerkit.order.layout import Layout
from samplerkit.order.located import Located
from samplerkit.order.once import once
from samplerkit.order.order import Order
from samplerkit.order.schedule import Schedule, first_reads, reads_before
from samplerkit.order.typing import Ids

Stop = Literal["first", "all"]
"""When a mixture ends: before a source would be read a second time, or once all were read to their end."""

MOST_PASSES = 1 << 16
"""The most passes over a source in which `positions_of` looks for a sample, one after another."""


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
        self._blocks = None if key is None else KeptBlocks(key)

    @property
    def recipe(self) -> tuple[object, ...]:
        return self._layout, self._schedule.weights, self._length, self._key

    def __len__(self) -> int:
        return self._length

    def ids_at(self, positions: Ids) -> Ids:
        source, number, row = self._rows_at(positions)
        return self._layout.starts[source] + self._shuffled(source, number, row, inverse=False)

    @once
    def num_passes(self) -> int:
        read = np.flatnonzero(self._schedule.weights)
        draws = reads_before(self._schedule, read, self._length)
        return int((-(-draws // np.maximum(1, self._layout.sizes[read]))).max(initial=1))

    def passes_at(self, positions: Ids) -> Ids:
        return self._rows_at(positions)[1]

    def _rows_at(self, positions: Ids) -> tuple[Ids, Ids, Ids]:
        """Gives the source of each position, the number of the pass over it, and the row in that pass."""
        rounds, slots = np.divmod(positions, self._schedule.period)
        source, turn = self._schedule.read(slots)
        draw = rounds * self._schedule.weights[source] + turn
        return source, *np.divmod(draw, np.maximum(1, self._layout.sizes)[source])

    def locate(self, ids: Ids) -> Located:
        which = np.flatnonzero((ids >= 0) & (ids < len(self._layout)))
        source = self._layout.file_of(ids[which])
        is_read = self._schedule.weights[source] > 0
        which, source = which[is_read], source[is_read]
        if not which.size:
            return which, which
        sources, like = distinct(source)
        draws = reads_before(self._schedule, sources, self._length)[like]
        size, weight = self._layout.sizes[source], self._schedule.weights[source]
        row = ids[which] - self._layout.starts[source]
        passes = -(-draws // size)
        if passes.max() > MOST_PASSES:
            raise InverseTooLargeError(
                "positions_of",
                f"looks at each pass over a source, limited to {MOST_PASSES} passes",
                int(passes.max()),
                mend="ask about a shorter num_samples",
            )
        found = [(which[:0], which[:0])]
        for number in range(int(passes.max())):
            at = np.flatnonzero(passes > number)
            turns = np.full(at.size, number)
            draw = number * size[at] + self._shuffled(source[at], turns, row[at], inverse=True)
            is_drawn = draw < draws[at]
            at, draw = at[is_drawn], draw[is_drawn]
            rounds, turn = np.divmod(draw, weight[at])
            positions = rounds * self._schedule.period + self._schedule.slots(source[at], turn)
            found.append((which[at], positions))
        return np.concatenate([which for which, _ in found]), np.concatenate([p for _, p in found])

    def _shuffled(self, source: Ids, number: Ids, row: Ids, *, inverse: bool) -> Ids:
        if self._blocks is None or row.size == 0:
            return row
        passes, pass_of = distinct(number)
        labels, which = distinct(source * passes.size + pass_of)
        sources, turns = np.divmod(labels, passes.size)
        sizes = self._layout.sizes[sources]
        blocks = list(map(Block, sources.tolist(), passes[turns].tolist(), sizes.tolist()))
        return self._blocks.permuted_within(blocks, which, row, inverse=inverse)


def mixture_length(schedule: Schedule, layout: Layout, stop: str) -> int:
    """Gives the number of positions after which a mixture ends.

    Example:
        >>> from samplerkit.order.schedule import schedule_of
        >>> mixture_length(schedule_of([3, 1]), Layout([6, 10]), "first")
        8
        >>> mixture_length(schedule_of([3, 1]), Layout([6, 10]), "all")
        40
    """
    read = np.flatnonzero(schedule.weights)
    if stop == "first":
        return min(first_reads(schedule, read, layout.sizes[read]))
    return max(first_reads(schedule, read, layout.sizes[read] - 1)) + 1
