"""A part of a stream, an epoch for instance, as an order."""

from __future__ import annotations

from typing import Any, Final, NamedTuple, final

import numpy as np

from samplerkit.order.located import Located
from samplerkit.order.once import once
from samplerkit.order.order import Order
from samplerkit.order.streams import Stream
from samplerkit.order.typing import Ids

_AHEAD = 32_768
"""The most ids that are read ahead."""

_NEAR = 16
"""Batches of other workers, over which a worker goes on."""


class ReadAhead(NamedTuple):
    """Ids that were read ahead: from a position on, in steps."""

    start: int
    step: int
    ids: Ids


def range_of(start: int, step: int, count: int) -> Ids:
    """Gives positions in steps: int64 of shape (count,)."""
    return np.arange(start, start + step * count, step, dtype=np.int64)


@final
class Part(Order):
    """The positions [begin, begin + length) of a stream: an epoch of it.

    Args:
        stream: what it is a part of.
        begin: its first position there.
        length: the number of positions.
        runs_on: whether the stream is that of the run, else one of this epoch alone.
    """

    def __init__(self, stream: Stream, begin: int, length: int, *, runs_on: bool = True) -> None:
        self.stream: Final = stream
        self.begin: Final = begin
        self._length = length
        self._runs_on = runs_on
        self._kept: ReadAhead | None = None

    @property
    def recipe(self) -> tuple[object, ...]:
        return self.stream, self.begin, self._length

    def __len__(self) -> int:
        return self._length

    def ids_at(self, positions: Ids) -> Ids:
        kept, self._kept = self._kept, None
        if positions.size < 2 or positions.size > _AHEAD // 2:
            return self.stream.ids_at(positions + self.begin)
        start, step = int(positions[0]), int(positions[1] - positions[0])
        if step < 1 or not (positions == range_of(start, step, positions.size)).all():
            return self.stream.ids_at(positions + self.begin)
        # What is read in a row, as ranks and workers do, is read ahead: a call costs as much as its ids.
        if kept is not None and kept.step == step and (start - kept.start) % step == 0:
            place = (start - kept.start) // step
            if 0 <= place <= kept.ids.size - positions.size:
                self._kept = kept
                return kept.ids[place : place + positions.size].copy()
            if 0 <= place < kept.ids.size + _NEAR * positions.size:
                count = min(
                    _AHEAD, max(8 * kept.ids.size, positions.size), -(-(self._length - start) // step)
                )
                ids = self.stream.ids_at(range_of(start + self.begin, step, count))
                self._kept = ReadAhead(start, step, ids)
                return ids[: positions.size].copy()
        ids = self.stream.ids_at(positions + self.begin)
        self._kept = ReadAhead(start, step, ids)
        return ids.copy()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_kept": None}

    @once
    def num_passes(self) -> int:
        return self.stream.num_passes(self.begin + self._length)

    def passes_at(self, positions: Ids) -> Ids:
        return self.stream.passes_at(positions + self.begin)

    def epochs_at(self, epoch: int, positions: Ids) -> Ids:
        if not self._runs_on:
            return super().epochs_at(epoch, positions)
        return self.stream.epochs_at(positions + self.begin)

    def locate(self, ids: Ids) -> Located:
        which, positions = self.stream.locate(ids, self.begin, self.begin + self._length)
        return which, positions - self.begin
