"""A few rows of each block of dice: which source they read, and how often, without throwing the others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import final

import numpy as np

from samplerkit.order.affine_maps import map_tables
from samplerkit.order.dice import Cells, Dice, DiceHashes, below_above
from samplerkit.order.typing import Ids

_HAS_BELOW, _SHARE = 12, 13
_PIECE = 4096


@final
class NearRows:
    """Blocks of 256 rows of which some are read.

    How many rows of a block have a die below a threshold follows from its first two digits, but for one row:
    that of the threshold's own two. So the beginnings of blocks are counted on, one bit a block and
    threshold, and a row is counted from the beginning of its block by its two lowest digits.

    Args:
        dice: what is thrown.
        lanes: of each block; shape (b,).
        numbers: of each block: k div 256 of its rows.
        ends: the thresholds of each block, shape (b, sources + 1), or (1, sources + 1) for those of all.
    """

    def __init__(self, dice: Dice, lanes: Ids, numbers: Ids, ends: Ids) -> None:
        self._hashes = DiceHashes(dice.words, lanes)
        self._width = ends.shape[1]
        shape = (numbers.size, self._width)
        inner = np.ascontiguousarray(np.broadcast_to(ends, shape)[:, 1:-1]).reshape(-1)
        of_inner = np.repeat(np.arange(numbers.size), self._width - 2)
        is_below = np.zeros(shape, dtype=np.bool_)
        if inner.size:
            found = below_above(self._hashes.of(of_inner), numbers[of_inner] << 8, inner, 2)
            is_below[:, 1:-1] = found.reshape(shape[0], -1)
        self.counts: Ids = np.diff((ends >> 52) + is_below, axis=1)
        share = ends >> 56
        at = self._hashes.maps(1, (numbers << 4)[:, None] + share) + (ends >> 52 & 15)
        packed: Ids = at + (is_below.astype(np.int64) << _HAS_BELOW) + (share << _SHARE)
        self._packed = packed.reshape(-1)

    def cells(self, which: Ids, rows: Ids) -> tuple[Cells, Ids]:
        """Throws the first two digits of rows.

        Args:
            which: the index of the block of each row; shape (m,).
            rows: within the lanes.

        Returns:
            The cells, and where the map of each row's lowest digit begins, for `before`.
        """
        cells, lowest = np.empty(rows.size, dtype=np.uint8), np.empty_like(rows)
        for at in _in_pieces(rows.size):
            cells[at], lowest[at] = self._thrown(which[at], rows[at])
        return cells, lowest

    def before(self, which: Ids, rows: Ids, lowest: Ids, source: Ids) -> Ids:
        """Tells how many rows of its block before each row read the same source."""
        counts = np.empty_like(rows)
        for at in _in_pieces(rows.size):
            counts[at] = self._counted(which[at], rows[at], lowest[at], source[at])
        return counts

    def _thrown(self, which: Ids, rows: Ids) -> tuple[Ids, Ids]:
        maps, hashes = map_tables()[0], self._hashes.of(which)
        lowest = hashes.maps(0, rows >> 4)
        first = maps[lowest + (rows & 15)]
        second = maps[hashes.maps(1, (rows >> 8 << 4) + first) + (rows >> 4 & 15)]
        return (first << 4) + second, lowest

    def _counted(self, which: Ids, rows: Ids, lowest: Ids, source: Ids) -> Ids:
        maps, inverses, smaller = map_tables()
        # Both thresholds of each row's source.
        packed = self._packed[which * self._width + source + np.arange(2)[:, None]]
        at, share = packed & (1 << _HAS_BELOW) - 1, packed >> _SHARE
        is_below = (packed >> _HAS_BELOW & 1).astype(np.bool_)
        digit, next_digit = rows >> 4 & 15, at & 15
        counts = digit * share + smaller[at * 16 + digit] + (is_below & (inverses[at] < digit))
        die = maps[at - next_digit + digit]
        is_below = (die < next_digit) | ((die == next_digit) & is_below)
        at, digit = lowest + (share & 15), rows & 15
        counts += digit * (share >> 4) + smaller[at * 16 + digit] + (is_below & (inverses[at] < digit))
        counted: Ids = counts[1] - counts[0]
        return counted


def _in_pieces(size: int) -> Iterator[slice]:
    """Gives the slices of an array, each so small that what is made of it stays in a core's cache."""
    return (slice(begin, begin + _PIECE) for begin in range(0, size, _PIECE))
