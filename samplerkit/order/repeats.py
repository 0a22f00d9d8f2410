"""Samples that come several times: each as often as any, or each by a factor of its own."""

from __future__ import annotations

from typing import Any, final

import numpy as np

from samplerkit.order.intervals import numbers_in
from samplerkit.order.located import Located
from samplerkit.order.once import once
from samplerkit.order.order import Order
from samplerkit.order.typing import Ids

UNIT_BITS = 32
"""Factors are counted in units of 2^-32."""

MOST_DRAWS = 1 << 30
"""The largest sum of factors: as many units fit into 63 bits."""


@final
class Repeated(Order):
    """Each id of [0, size) several times in a row: position p holds p div repeats.

    Args:
        repeats: how often each comes.
        length: the number of positions, at most repeats * size.
    """

    def __init__(self, repeats: int, length: int) -> None:
        self._repeats = repeats
        self._length = length

    @property
    def recipe(self) -> tuple[object, ...]:
        return self._repeats, self._length

    def __len__(self) -> int:
        return self._length

    def ids_at(self, positions: Ids) -> Ids:
        return positions // self._repeats

    @property
    def num_passes(self) -> int:
        return max(1, min(self._repeats, self._length))

    def passes_at(self, positions: Ids) -> Ids:
        return positions % self._repeats

    def locate(self, ids: Ids) -> Located:
        which = np.flatnonzero((ids >= 0) & (ids <= (self._length - 1) // self._repeats))
        positions = (ids[which, None] * self._repeats + np.arange(self.num_passes)).reshape(-1)
        is_there = positions < self._length
        return np.repeat(which, self.num_passes)[is_there], positions[is_there]


@final
class RepeatedByFactors(Order):
    """Each id i as often as floor(sums[i + 1] + phase) - floor(sums[i] + phase) tells, in a row.

    So id i comes floor(r) or ceil(r) times, r = sums[i + 1] - sums[i], and r times on average over phases.

    Args:
        sums: of the factors, from 0 to a whole number, in units of 2^-32; int64 of shape (ids + 1,).
        phase: in [0, 2^32).
    """

    def __init__(self, sums: Ids, phase: int) -> None:
        self._sums = sums
        self._phase = phase

    @property
    def recipe(self) -> tuple[object, ...]:
        return self._sums, self._phase

    def __len__(self) -> int:
        return int(self._sums[-1]) >> UNIT_BITS

    def ids_at(self, positions: Ids) -> Ids:
        return np.searchsorted(self._sums[1:], (positions + 1 << UNIT_BITS) - self._phase, side="left")

    @once
    def num_passes(self) -> int:
        return max(1, int(np.diff(self._begins(slice(None))).max(initial=1)))

    def passes_at(self, positions: Ids) -> Ids:
        return positions - self._begins(self.ids_at(positions))

    def locate(self, ids: Ids) -> Located:
        which = np.flatnonzero((ids >= 0) & (ids < self._sums.size - 1))
        begins = self._begins(ids[which])
        counts = self._begins(ids[which] + 1) - begins
        return np.repeat(which, counts), numbers_in(begins, counts)

    def _begins(self, ids: Any) -> Ids:
        """The position at which each id begins."""
        begins: Ids = (self._sums[ids] + self._phase) >> UNIT_BITS
        return begins


def sums_of_factors(factors: np.ndarray[Any, np.dtype[np.float64]]) -> Ids:
    """Adds up factors in units of 2^-32, scaled so that their sum is a whole number, the nearest one.

    Args:
        factors: none negative, one positive, their sum at most `MOST_DRAWS`.

    Example:
        >>> (sums_of_factors(np.array([1.0, 1.5, 0.25, 0.25])) / 2**32).tolist()
        [0.0, 1.0, 2.5, 2.75, 3.0]
    """
    units = np.floor(np.ldexp(factors, UNIT_BITS)).astype(np.int64)
    units[(units == 0) & (factors > 0)] = 1
    sums = np.cumsum(units)
    total = int(sums[-1])
    whole = max(1, (total + (1 << UNIT_BITS - 1)) >> UNIT_BITS) << UNIT_BITS
    # What is missing is below 2^32: its parts are exact enough as doubles, and the last one is all of it.
    sums += np.floor(sums / total * (whole - total)).astype(np.int64)
    return np.append(0, sums)
