"""Which of several sources each row of a mixture reads: by a random number that belongs to the row.

Position P of a mixture is row k = P // lanes of lane P % lanes. Each row has a draw, an integer u of 60 bits.
Weights divide [0, 2^60) among the sources (`thresholds`), and a row reads the source whose part contains its
draw. So weights may change without a change of draws.

**Draws.** A draw has 15 hexadecimal digits, u_0 is the most significant one. The digits of k are numbered
from the other end: k_0 is the least significant one. Each digit of the draw is a permuted digit of k:

    u_j = pi(k_j), with a separate pi for each (lane, j, k // 16^(j+1), (u_0, ..., u_(j-1)))

Each pi is one of 240 permutations of the 16 digits: x -> a * x + b over the field of 16 elements, a not 0. A
keyed hash of its index selects it.

Sources are read more evenly than by independent draws. A block is 16^j rows that begin at a multiple of 16^j.
In a block, each value of the first j digits of the draws occurs exactly once. For j = 1: the 16 rows differ
in k_0 only, and one pi permutes them. For j = 2: of the 256 rows, one in each 16 has a given u_0; those 16
rows differ in k_1 only, and one pi permutes them. And so on.

**Counting.** How many rows before row 372 have a draw below the threshold 0.465...? In decimal, where blocks
have 10^j rows:

- Rows 0 to 371 are 3 blocks of 100 rows, 7 blocks of 10 and 2 blocks of 1.
- In a block of 100 rows, each pair of first digits occurs once. The 46 rows from 00 to 45 are below the
  threshold, those from 47 on are not. The row with 46 is the block's border row: its next digits decide.
- In the same way, 4 rows of a block of 10 are below, and none of a block of 1.
- So the count is 3 * 46 + 7 * 4 + 2 * 0 = 166, and one more for each of the 12 border rows that is below.

The border rows of the blocks 0-99, 100-199, ..., 900-999 have the draws 0.46d..., where the ten digits d are
all different: they are permuted by one pi. Those with d < 5 are below the threshold 0.465..., those with
d > 5 are not, and the one with d = 5 is the border row of the larger block 0-999. So it is enough to know on
which side the border row of the larger block is. For the largest block, its draw is computed up to the first
digit that differs from the threshold's. From there it is passed down, block by block, and `count_table` has
all cases of one step. So a count takes one look-up per level, and nothing is stored. The inverse, the row at
which a source is read for the n-th time, tries the 16 digits at each level.

Source: Owen, "Randomly permuted (t, m, s)-nets and (t, s)-sequences" (1995), for permutations of digits that
depend on the digits before. Here they depend on the higher digits of the row as well.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

import numpy as np

from samplerkit.order.intervals import distinct
from samplerkit.order.keys import Key, keyed_hash
from samplerkit.order.typing import Ids

MAPS: Final = 240
"""The number of permutations pi: a is one of 15, b one of 16."""

DIGITS: Final = 15
"""Hexadecimal digits of a draw."""

MAX_AHEAD: Final = 150
"""The most reads by which a lane is ahead of its share of a source, or behind it."""

NO_ROW: Final = 1 << 62
"""A row larger than all others: that of a turn that never comes."""

_FEW_LANES = 64


@lru_cache(maxsize=1)
def map_table() -> Ids:
    """Makes the table of the permutations x -> a * x + b over GF(16), int64 of shape (240 * 16,).

    Permutation m has a = m % 15 + 1 and b = m // 15. It maps x to entry 16 * m + x.

    Example:
        >>> map_table().reshape(240, 16)[[0, 1, 15], :5].tolist()  # x; 2 * x; x + 1, which is x xor 1
        [[0, 1, 2, 3, 4], [0, 2, 4, 6, 8], [1, 0, 3, 2, 5]]
    """
    product = np.zeros((16, 16), dtype=np.int64)
    digit = np.arange(16)
    for bit in range(4):
        shifted = digit.copy()
        for _ in range(bit):
            shifted = shifted << 1 ^ np.where(shifted & 8, 0b10011, 0)
        product ^= (digit >> bit & 1)[:, None] * shifted
    number = np.arange(MAPS)
    maps: Ids = product[number % 15 + 1] ^ (number // 15)[:, None]
    return maps.reshape(-1)


@lru_cache(maxsize=1)
def count_table() -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Makes the table of the border rows below a threshold, uint8 of shape (240 * 16 * 2 * 16,).

    A block consists of 16 smaller ones, numbered by x. The border row of number x has the digit pi(x), and
    the threshold has the digit t. It is below if pi(x) < t, or if pi(x) = t and the block's border row, which
    is then the same row, is below: b = 1, else 0.

    Entry 32 * (16 * m + t) + 16 * b + x, where m is the number of pi: how many of the border rows before
    number x are below, and 16 more if that of number x is below too.

    Example:
        >>> table = count_table()[: 32 * 16].reshape(16, 2, 16)  # of pi(x) = x, by t, b and x
        >>> [divmod(int(table[5, b, x]), 16) for b, x in ((0, 9), (1, 9), (0, 3), (1, 5))]
        [(0, 5), (0, 6), (1, 3), (1, 5)]
    """
    digit, threshold = map_table().reshape(MAPS, 1, 1, 16), np.arange(16)[:, None, None]
    is_below = (digit < threshold) | ((digit == threshold) & np.array([[False], [True]]))
    counts = np.cumsum(is_below, axis=3) - is_below
    table: np.ndarray[Any, np.dtype[np.uint8]] = (counts + 16 * is_below).astype(np.uint8).reshape(-1)
    return table


FirstBytes = np.ndarray[Any, np.dtype[np.uint8]]
"""The first two digits of draws."""


class SourceDraws:
    """The draws of all rows of some lanes.

    Args:
        key: where their randomness comes from.
        index: of the draws, where one key has several.

    Example:
        >>> from samplerkit.order.mixing.weights import thresholds
        >>> draws = SourceDraws(Key(seed=1, epoch=0, depth=0, role="sources"))
        >>> first_digits = draws.first_bytes(np.array([0]), np.array([0])) >> 4
        >>> first_digits[:16].tolist()  # each digit once in 16 rows
        [10, 0, 13, 7, 4, 14, 3, 9, 5, 15, 2, 8, 11, 1, 12, 6]
        >>> ends = thresholds([3, 1])  # source 0 reads the rows with digits below 12
        >>> draws.sources(np.zeros(16, dtype=int), np.arange(16), ends).tolist()
        [0, 0, 1, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0]
        >>> first_digits[16:21].tolist(), draws.count_below(0, 21, ends[1])  # 12 of 16 rows, 3 of 5
        ([9, 5, 2, 14, 12], array(15))
        >>> draws.count_below(0, 10**15, ends[1]), draws.row_of(0, 10**6, 0, ends[1])
        (array(750000000000000), array(1333334))
    """

    def __init__(self, key: Key, index: int = 0) -> None:
        self.recipe: Final = (key, index)
        self.words: Final = key.words(3, index)

    def first_bytes(self, lanes: Ids, blocks: Ids) -> FirstBytes:
        """Computes the first two digits of the draws in blocks of 256 rows.

        Args:
            lanes: of each block; shape (m,).
            blocks: the number of each, k // 256 of its rows; shape (m,).

        Returns:
            uint8 array of shape (256 * m,): every block has each value once.
        """
        rows_of_maps = map_table().reshape(MAPS, 16).astype(np.uint8)
        maps = DigitMaps(self.words, lanes)
        digit = np.arange(16)
        counters = (blocks << 4)[:, None] + digit
        # Whole maps are copied, of bytes: the second digit then is a look-up in the block's own 256 ones.
        first = rows_of_maps[maps.starts(0, counters) >> 4]
        second = rows_of_maps[maps.starts(1, counters) >> 4]
        places = (np.arange(lanes.size) << 8)[:, None, None] + digit[:, None] + (first.astype(np.int64) << 4)
        both: FirstBytes = (first << 4) + second.reshape(-1)[places]
        return both.reshape(-1)

    def sources(self, lanes: Ids, rows: Ids, ends: Ids, first_bytes: FirstBytes | None = None) -> Ids:
        """Returns which source each row reads, int64 of shape (m,).

        Args:
            lanes: of each row; shape (m,).
            rows: within the lanes, below 2^62; shape (m,).
            ends: from `thresholds`.
            first_bytes: of the draws, if they were computed; shape (m,).
        """
        if first_bytes is None:
            source, level = np.full_like(rows, -1), 0
            prefix = np.zeros_like(rows)
        else:
            source, level = _sources_by_byte(ends)[first_bytes], 2
            prefix = first_bytes.astype(np.int64)
        at = np.flatnonzero(source < 0)
        maps, rows, prefix = DigitMaps(self.words, lanes[at]), rows[at], prefix[at]
        # Digit by digit, until all draws that begin with them are of one source.
        while at.size:
            prefix = maps.with_digit(level, rows, prefix)
            level += 1
            draw = prefix << 60 - 4 * level
            candidate = np.searchsorted(ends, draw, side="right") - 1
            source[at] = candidate
            pending = np.flatnonzero(ends[candidate + 1] - draw < 1 << 60 - 4 * level)
            maps, rows, prefix, at = maps.of(pending), rows[pending], prefix[pending], at[pending]
        return source

    def count_below(self, lanes: Any, rows: Any, thresholds: Any) -> Ids:
        """Counts the rows of a lane before a row that have a draw below a threshold.

        A source is read by the rows below the end of its draws that are not below their beginning.

        Args:
            lanes: int64 arrays, which are broadcast against one another.
            rows: likewise, each at most 2^62 + 1.
            thresholds: likewise, each in [0, 2^60].

        Returns:
            int64 array of their shape.
        """
        shape, lanes, rows, thresholds = _broadcast(lanes, rows, thresholds)
        maps = DigitMaps(self.words, lanes)
        # All rows are in the first block of 16^levels rows; of 2^60 rows, all 15 digits, in the first four.
        levels = min(DIGITS, -(-int(rows.max(initial=0)).bit_length() // 4))
        is_below = _is_border_row_below(maps, rows, thresholds, levels)
        counts = (rows >> 60) * thresholds if levels == DIGITS else np.zeros_like(rows)
        for level in range(levels - 1, -1, -1):
            above, digit = rows >> 4 * level + 4, rows >> 4 * level & 15
            count, is_below = _count_in_block(maps, level, above, digit, thresholds, is_below)
            counts += count
        counted: Ids = counts.reshape(shape)
        return counted

    def row_of(self, lanes: Any, turns: Any, low: Any, high: Any) -> Ids:
        """Finds the row at which a lane reads a source for the turn-th time, from 0.

        Args:
            lanes: int64 arrays, which are broadcast against one another.
            turns: likewise.
            low: likewise; the source's first draw.
            high: likewise; the end of its draws, larger than `low`.

        Returns:
            int64 array of their shape; `NO_ROW` for a row of more than 62 bits.
        """
        shape, lanes, turns, low, high = _broadcast(lanes, turns, low, high)
        digits, columns, maps = np.arange(16)[:, None], np.arange(turns.size), DigitMaps(self.words, lanes)
        # Each 2^60 rows have every draw once, so their border rows have the threshold as draw: not below it.
        rows, remaining = np.divmod(turns, high - low)
        is_past_end = rows > 3
        rows = np.where(is_past_end, 0, rows)
        are_below = [np.zeros_like(rows), np.zeros_like(rows)]
        for level in range(DIGITS - 1, -1, -1):
            sides = [
                _count_in_block(maps, level, rows, digits, threshold, is_below)
                for threshold, is_below in zip((low, high), are_below, strict=True)
            ]
            # The last of the smaller blocks before which the source is read at most `remaining` times.
            reads = sides[1][0] - sides[0][0]
            digit = np.count_nonzero(reads <= remaining, axis=0) - 1
            remaining = remaining - reads[digit, columns]
            are_below = [is_below[digit, columns] for _, is_below in sides]
            rows = rows * 16 + digit
        return np.where(is_past_end, NO_ROW, rows).reshape(shape)


class DigitMaps:
    """Selects the permutation of each digit of some rows, by a keyed hash.

    Args:
        words: of the draws, uint64 of shape (3,).
        lanes: of each row; or, with `index`, the distinct lanes.
        index: of the lane of each row among the distinct ones.
    """

    def __init__(self, words: Any, lanes: Ids, index: Ids | None = None) -> None:
        self._words = words
        self._lanes, self._index = distinct(lanes) if index is None else (lanes, index)
        self._cached_words: Any = None

    def of(self, chosen: Ids) -> DigitMaps:
        """Returns those of some of the rows, by their indices."""
        return DigitMaps(self._words, self._lanes, self._index[chosen])

    def starts(self, level: int, counters: Ids) -> Ids:
        """Selects a permutation for each counter, and returns where it begins in `map_table`.

        Args:
            level: the number of the digit.
            counters: (k // 16^(level + 1)) * 16^level + the number that the digits before make; the first
                axis runs over the rows.
        """
        words = self._lane_words(level)
        if self._lanes.size > 1:
            words = words[:, self._index]
        hashed = keyed_hash(words.reshape(3, -1, *(1,) * (counters.ndim - 1)), counters)
        hashed >>= np.uint64(32)
        hashed *= np.uint64(MAPS)
        hashed >>= np.uint64(32)
        hashed <<= np.uint64(4)
        return hashed.view(np.int64)

    def _lane_words(self, level: int) -> Any:
        """Returns the words of each lane for a digit, which are hashes themselves: shape (3, lanes)."""
        if self._lanes.size > _FEW_LANES:
            return keyed_hash(self._words, (self._lanes * 16 + level) * 4 + np.arange(3)[:, None])
        if self._cached_words is None:
            self._cached_words = _words_of_few(self._words.tobytes(), self._lanes.tobytes())
        return self._cached_words[level]

    def with_digit(self, level: int, rows: Ids, prefix: Ids) -> Ids:
        """Returns the first `level + 1` digits of the draws of rows as a number, from the first `level`."""
        pi = self.starts(level, (rows >> 4 * level + 4 << 4 * level) + prefix)
        return prefix * 16 + map_table()[pi + (rows >> 4 * level & 15)]


@lru_cache(maxsize=64)
def _words_of_few(words: bytes, lanes: bytes) -> Any:
    """Returns the words of a few lanes for all digits, shape (15, 3, lanes): a rank reads the same lanes."""
    digits = np.frombuffer(lanes, dtype=np.int64) * 16 + np.arange(DIGITS)[:, None, None]
    return keyed_hash(np.frombuffer(words, dtype=np.uint64), digits * 4 + np.arange(3)[:, None])


def _count_in_block(
    maps: DigitMaps, level: int, above: Ids, digit: Ids, threshold: Ids, is_below: Any
) -> tuple[Ids, Any]:
    """Counts the rows below a threshold in the first smaller blocks of a block.

    The block has 16^(level + 1) rows and consists of 16 smaller ones, see the module's docstring.

    Args:
        maps: of the rows.
        level: the smaller blocks have 16^level rows.
        above: the number of the block.
        digit: how many of the smaller blocks are counted, 0 to 15.
        threshold: in [0, 2^60].
        is_below: whether the block's border row is below the threshold.

    Returns:
        The count; and whether the border row of the next smaller block is below.
    """
    prefix = threshold >> 60 - 4 * level
    pi = maps.starts(level, (above << 4 * level) + prefix)
    entry = count_table()[(pi + (threshold >> 56 - 4 * level & 15) << 5) + (is_below << 4) + digit]
    return digit * prefix + (entry & 15), (entry >> 4).astype(np.int64)


def _is_border_row_below(maps: DigitMaps, rows: Ids, threshold: Ids, level: int) -> Ids:
    """Returns 1 where the border row of the first block of 16^level rows is below a threshold, else 0.

    The number of that row has no digits but 0 from `level` on. Its draw begins with the digits of the
    threshold: the first digit that differs decides, in 15 of 16 cases the next one.
    """
    is_below = np.zeros(rows.size, dtype=np.int64)
    pending = np.arange(rows.size)
    while pending.size and level < DIGITS:
        prefix, next_digit = threshold >> 60 - 4 * level, threshold >> 56 - 4 * level & 15
        digit = maps.with_digit(level, rows[pending], prefix) & 15
        is_below[pending] = digit < next_digit
        tied = np.flatnonzero(digit == next_digit)
        pending, threshold, maps, level = pending[tied], threshold[tied], maps.of(tied), level + 1
    return is_below


def _broadcast(*values: Any) -> tuple[Any, ...]:
    """Returns the common shape of integers, and then each of them as a flat int64 array of that size."""
    arrays = np.broadcast_arrays(*(np.asarray(part, dtype=np.int64) for part in values))
    return arrays[0].shape, *(part.reshape(-1) for part in arrays)


def _sources_by_byte(ends: Ids) -> Ids:
    """Returns the source of the draws with each first byte, -1 where several share them: shape (256,)."""
    draws = np.arange(256) << 52
    source = np.searchsorted(ends, draws, side="right") - 1
    return np.where(ends[source + 1] - draws < 1 << 52, -1, source)
