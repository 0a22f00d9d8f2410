"""A few rows of each block of dice: which source they read, and how often, without throwing the others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, final

import numpy as np

from samplerkit.order.affine_maps import count_table, map_tables
from samplerkit.order.dice import Cells, Dice, DiceHashes, below_above
from samplerkit.order.typing import Ids

_SHARE = 17
"""Bits below it say where a threshold's map stands in `count_table`, those above its first digit."""
_PIECE = 4096
_MANY = 16
"""Rows of a block from which on all 32 maps of its last two digits are picked, each once."""


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
        ends: the thresholds of each segment, shape (segments, sources + 1).
        segments: of each block; shape (b,).
        count: how many rows are read.
    """

    def __init__(self, dice: Dice, lanes: Ids, numbers: Ids, ends: Ids, segments: Ids, count: int) -> None:
        self._hashes = DiceHashes(dice.words, lanes)
        self._width = ends.shape[1]
        self._maps: tuple[Ids, Ids] | None = None
        all_of_block = (numbers << 4)[:, None] + np.arange(16)
        if count >= _MANY * numbers.size:
            lowest, second = (self._hashes.maps(level, all_of_block).reshape(-1) for level in range(2))
            self._maps = lowest, second
        ends = ends[segments] if len(ends) > 1 else np.broadcast_to(ends, (numbers.size, self._width))
        share = ends >> 56
        is_below = np.zeros(ends.shape, dtype=np.bool_)
        is_below[:, 1:-1] = self._are_below(lanes, numbers, ends[:, 1:-1], segments)
        self.counts: Ids = np.diff((ends >> 52) + is_below, axis=1)
        if self._maps is None:
            second = self._hashes.maps(1, (numbers << 4)[:, None] + share)
        else:
            # The end of all dice has a share of 16: no row is asked on which side of it it lies.
            second = self._maps[1][(np.arange(numbers.size) << 4)[:, None] + (share & 15)]
        at = second + (ends >> 52 & 15)
        self._packed: Ids = (share << _SHARE) + (at << 5) + (is_below << 4)

    def _are_below(self, lanes: Ids, numbers: Ids, inner: Ids, segments: Ids) -> np.ndarray[Any, Any]:
        """Tells of each block and threshold whether the row of the threshold's own two digits lies below."""
        if not inner.size:
            return np.zeros(inner.shape, dtype=np.bool_)
        # Sixteen blocks in a row have one map for their next digit.
        begins = np.append(
            True, (np.diff(numbers >> 4) != 0) | (np.diff(lanes) != 0) | (np.diff(segments) != 0)
        )
        first = np.flatnonzero(begins)
        pi = self._hashes.of(first).maps(2, (numbers[first] >> 4 << 8)[:, None] + (inner[first] >> 52))
        die = map_tables()[0][pi[np.cumsum(begins) - 1] + (numbers & 15)[:, None]]
        next_digit = inner >> 48 & 15
        is_below: np.ndarray[Any, Any] = die < next_digit
        block, threshold = np.nonzero(die == next_digit)
        if block.size:
            rows, alpha = numbers[block] << 8, inner[block, threshold]
            is_below[block, threshold] = below_above(self._hashes.of(block), rows, alpha, 3)
        return is_below

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
        maps, digit = map_tables()[0], rows >> 4 & 15
        if self._maps is not None:
            block = which << 4
            lowest = self._maps[0][block + digit]
            first = maps[lowest + (rows & 15)]
            second = maps[self._maps[1][block + first] + digit]
        else:
            hashes = self._hashes.of(which)
            lowest = hashes.maps(0, rows >> 4)
            first = maps[lowest + (rows & 15)]
            second = maps[hashes.maps(1, (rows >> 8 << 4) + first) + digit]
        return (first << 4) + second, lowest

    def _counted(self, which: Ids, rows: Ids, lowest: Ids, source: Ids) -> Ids:
        counted, table = count_table(), self._packed.reshape(-1)
        at = which * self._width + source
        digit, last_digit = rows >> 4 & 15, rows & 15
        lowest = (lowest << 5) + last_digit
        both = []
        # The thresholds at which each row's source ends and begins.
        for packed in (table[at + 1], table[at]):
            share = packed >> _SHARE
            second = counted[(packed & (1 << _SHARE) - 1) + digit].astype(np.int64)
            first = counted[lowest + ((share & 15) << 5) + (second & 16)]
            both.append(digit * share + last_digit * (share >> 4) + (second & 15) + (first & 15))
        below: Ids = both[0] - both[1]
        return below


def _in_pieces(size: int) -> Iterator[slice]:
    """Gives the slices of an array, each so small that what is made of it stays in a core's cache."""
    return (slice(begin, begin + _PIECE) for begin in range(0, size, _PIECE))
