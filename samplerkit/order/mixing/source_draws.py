"""Which of several sources each position draws, once and for ever.

Position P is row k = P div lanes of lane l = P mod lanes. Its draw u is a number of 60 bits, in 15 digits of
base 16, the most significant first:

    u_j = pi[l, j, k div 16^(j+1), (u_0 .. u_(j-1))](digit j of k)        digit 0 is the lowest of k

Each pi is one of the 240 maps a x + b over the field of 16 elements, picked by a keyed hash of its index.
Weights only say how a draw is read: source s has the draws in [A_s, A_(s+1)), the `thresholds`. So any 16^j
rows that begin at a multiple of 16^j have each of 16^j equal shares of all draws once, and any set of
positions reads a source at most as unevenly as independent draws would.

How often a lane read a source before a row follows digit by digit, from the highest: for each smaller digit
in its place, the rows with all that can follow it hold each share once, and of one share alone it must be
asked on which side of the threshold its row lies. So there is random access and an inverse, and no table.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final, final

import numpy as np

from samplerkit.order.intervals import distinct
from samplerkit.order.keys import Key, keyed_hash
from samplerkit.order.typing import Ids

MAPS: Final = 240
"""How many there are: a is one of 15, b of 16."""


@lru_cache(maxsize=1)
def map_table() -> Ids:
    """The 240 maps a x + b over GF(16), by a from 1, then b: pi(x) at 16 * map + x."""
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
    """What one digit of a row adds to a count, and what it makes of the next one: a byte for each case.

    Returns:
        At 32 * (16 * map + y) + 16 * b + x: how many digits below x count, those that go below y, and with b
        the one that goes to y. 16 is added if x counts itself.
    """
    draw, bound = map_table().reshape(MAPS, 1, 1, 16), np.arange(16)[:, None, None]
    continues = (draw < bound) | ((draw == bound) & np.array([[False], [True]]))
    counts = np.cumsum(continues, axis=3) - continues
    table: np.ndarray[Any, np.dtype[np.uint8]] = (counts + 16 * continues).astype(np.uint8).reshape(-1)
    return table


DIGITS: Final = 15
"""Digits of a draw, of four bits each."""

_FEW_LANES = 64

Cells = np.ndarray[Any, np.dtype[np.uint8]]
"""The first two digits of draws."""


@final
class SourceDraws:
    """The draws of all rows of some lanes.

    Args:
        key: where their randomness comes from.
        index: of the draws, where one key has several.

    Example:
        >>> from samplerkit.order.mixing.weights import thresholds
        >>> draws = SourceDraws(Key(seed=7, epoch=0, depth=0, role="dice"))
        >>> three_to_one = thresholds([3, 1])
        >>> draws.sources(np.zeros(16, dtype=int), np.arange(16), three_to_one).tolist()
        [0, 0, 0, 0, 1, 0, 1, 0, 0, 1, 0, 1, 0, 0, 0, 0]
        >>> draws.before(0, 10**15, three_to_one[1]), draws.position(0, 10**6, 0, three_to_one[1])
        (array(750000000000000), array(1333334))
    """

    def __init__(self, key: Key, index: int = 0) -> None:
        self.recipe: Final = (key, index)
        self.words: Final = key.words(3, index)

    def cells(self, lanes: Ids, numbers: Ids) -> Cells:
        """Draws the first two digits of whole blocks of rows.

        Args:
            lanes: of each block; shape (m,).
            numbers: of each block: k div 256 of its rows.

        Returns:
            uint8 array of shape (256 * m,): every block has each once.
        """
        rows_of_maps = map_table().reshape(MAPS, 16).astype(np.uint8)
        hashes = DrawHashes(self.words, lanes)
        digit = np.arange(16)
        counters = (numbers << 4)[:, None] + digit
        # Whole maps are copied, of bytes: the second digit then is a look-up in the block's own 256 ones.
        first = rows_of_maps[hashes.maps(0, counters) >> 4]
        second = rows_of_maps[hashes.maps(1, counters) >> 4]
        places = (np.arange(lanes.size) << 8)[:, None, None] + digit[:, None] + (first.astype(np.int64) << 4)
        cells: Cells = (first << 4) + second.reshape(-1)[places]
        return cells.reshape(-1)

    def sources(self, lanes: Ids, rows: Ids, ends: Ids, cells: Cells | None = None) -> Ids:
        """Returns which source each row reads.

        Args:
            lanes: of each row; shape (m,).
            rows: within the lanes, below 2^62.
            ends: from `thresholds`.
            cells: the first two digits of the rows, if they are known.
        """
        if cells is None:
            source, level = np.full_like(rows, -1), 0
            prefix = np.zeros_like(rows)
        else:
            source, level = _sources_of_cells(ends)[cells], 2
            prefix = cells.astype(np.int64)
        at = np.flatnonzero(source < 0)
        if at.size:
            hashes, rows, prefix = DrawHashes(self.words, lanes[at]), rows[at], prefix[at]
        while at.size:
            prefix = hashes.drawn(level, rows, prefix)
            level += 1
            draw = prefix << 60 - 4 * level
            candidate = np.searchsorted(ends, draw, side="right") - 1
            source[at] = candidate
            pending = np.flatnonzero(ends[candidate + 1] - draw < 1 << 60 - 4 * level)
            hashes, rows, prefix, at = hashes.of(pending), rows[pending], prefix[pending], at[pending]
        return source

    def sources_of_blocks(self, lanes: Ids, numbers: Ids, ends: Ids, cells: Cells) -> Ids:
        """Returns which source each row of whole blocks reads.

        Args:
            lanes: of each block; shape (m,).
            numbers: of each block.
            ends: from `thresholds`.
            cells: from `cells`, of these blocks.
        """
        source = _sources_of_cells(ends)[cells]
        at = np.flatnonzero(source < 0)
        if at.size:
            block = at >> 8
            source[at] = self.sources(lanes[block], (numbers[block] << 8) + (at & 255), ends, cells[at])
        return source

    def before(self, lanes: Any, rows: Any, thresholds: Any) -> Ids:
        """Counts the rows of a lane before a row whose draw is below a threshold.

        Args:
            lanes: int64 arrays, which are broadcast against one another.
            rows: likewise, each at most 2^62 + 1.
            thresholds: likewise, each in [0, 2^60].

        Returns:
            int64 array of their shape. Of all rows, a source reads those between two counts.
        """
        shape, lanes, rows, alpha = _broadcast(lanes, rows, thresholds)
        if not rows.size:
            return np.zeros(shape, dtype=np.int64)
        hashes = DrawHashes(self.words, lanes)
        levels = min(DIGITS, -(-int(rows.max()).bit_length() // 4))
        continues = _is_own_below(hashes, rows, alpha, levels).astype(np.int64) << 4
        counts = (rows >> 60) * alpha if levels == DIGITS else np.zeros_like(rows)
        for level in range(levels - 1, -1, -1):
            above, digit = rows >> 4 * level + 4, rows >> 4 * level & 15
            smaller, continues = _count_smaller(hashes, level, above, digit, alpha, continues)
            counts += smaller
        counted: Ids = counts.reshape(shape)
        return counted

    def position(self, lanes: Any, turns: Any, low: Any, high: Any) -> Ids:
        """Finds the row at which a lane reads a source for the turn-th time, from 0: the inverse of `before`.

        Args:
            lanes: int64 arrays, which are broadcast against one another.
            turns: likewise.
            low: likewise; the source's first draw.
            high: likewise; the end of its draws, larger than `low`.

        Returns:
            int64 array of their shape. A row beyond 2^62 is 2^62.
        """
        shape, lanes, turns, low, high = _broadcast(lanes, turns, low, high)
        if not turns.size:
            return np.zeros(shape, dtype=np.int64)
        digits, columns, hashes = np.arange(16)[:, None], np.arange(turns.size), DrawHashes(self.words, lanes)
        rows, remaining = np.divmod(turns, high - low)
        is_past_end = rows > 3
        rows = np.where(is_past_end, 0, rows)
        continues = [np.zeros_like(rows), np.zeros_like(rows)]
        for level in range(DIGITS - 1, -1, -1):
            sides = [
                _count_smaller(hashes, level, rows, digits, alpha, counted)
                for alpha, counted in zip((low, high), continues, strict=True)
            ]
            between = sides[1][0] - sides[0][0]
            digit = np.count_nonzero(between <= remaining, axis=0) - 1
            remaining = remaining - between[digit, columns]
            continues = [counted[digit, columns] for _, counted in sides]
            rows = rows * 16 + digit
        return np.where(is_past_end, 1 << 62, rows).reshape(shape)


@final
class DrawHashes:
    """Picks maps for rows of some lanes: the words of each lane and digit are hashes themselves."""

    def __init__(self, words: Any, lanes: Ids, inverse: Ids | None = None) -> None:
        self._words = words
        self._lanes, self._inverse = distinct(lanes) if inverse is None else (lanes, inverse)
        self._cached_words: Any = None

    def of(self, chosen: Ids) -> DrawHashes:
        """Returns those of rows chosen by their indices."""
        return DrawHashes(self._words, self._lanes, self._inverse[chosen])

    def maps(self, level: int, counters: Ids) -> Ids:
        """Picks a map for each counter, as the place in the table at which the map begins.

        Args:
            level: the digit.
            counters: k div 16^(level + 1), then the digits before; the first axis goes along the lanes.
        """
        words = self._lane_words(level)
        if self._lanes.size > 1:
            words = words[:, self._inverse]
        hashed = keyed_hash(words.reshape(3, -1, *(1,) * (counters.ndim - 1)), counters)
        hashed >>= np.uint64(32)
        hashed *= np.uint64(MAPS)
        hashed >>= np.uint64(32)
        hashed <<= np.uint64(4)
        return hashed.view(np.int64)

    def _lane_words(self, level: int) -> Any:
        """The words of each lane for a digit, shape (3, lanes)."""
        if self._lanes.size > _FEW_LANES:
            return keyed_hash(self._words, (self._lanes * 16 + level) * 4 + np.arange(3)[:, None])
        if self._cached_words is None:
            self._cached_words = _words_of_few(self._words.tobytes(), self._lanes.tobytes())
        return self._cached_words[level]

    def drawn(self, level: int, rows: Ids, prefix: Ids) -> Ids:
        """Returns the digits of draws up to a level, from those before."""
        pi = self.maps(level, (rows >> 4 * level + 4 << 4 * level) + prefix)
        return prefix * 16 + map_table()[pi + (rows >> 4 * level & 15)]


@lru_cache(maxsize=64)
def _words_of_few(words: bytes, lanes: bytes) -> Any:
    """The words of a few lanes for all digits, shape (15, 3, lanes): the same lanes are read again."""
    digits = np.frombuffer(lanes, dtype=np.int64) * 16 + np.arange(DIGITS)[:, None, None]
    return keyed_hash(np.frombuffer(words, dtype=np.uint64), digits * 4 + np.arange(3)[:, None])


def _count_smaller(
    hashes: DrawHashes, level: int, above: Ids, digit: Ids, alpha: Ids, continues: Ids
) -> tuple[Ids, Ids]:
    """Counts the rows below a threshold whose digit at a level is smaller, those above it the same.

    Args:
        hashes: of the rows.
        level: of the digit.
        above: the digits of the rows above it.
        digit: of the rows.
        alpha: the thresholds.
        continues: 16 where the row of the threshold's own share, down from the level above, counts; else 0.

    Returns:
        How many these are, and what to continue with.
    """
    share = alpha >> 60 - 4 * level
    pi = hashes.maps(level, (above << 4 * level) + share)
    entry = count_table()[(pi + (alpha >> 56 - 4 * level & 15) << 5) + continues + digit]
    return digit * share + (entry & 15), (entry & 16).astype(np.int64)


def _is_own_below(hashes: DrawHashes, rows: Ids, alpha: Ids, level: int) -> Any:
    """Returns whether the row of a threshold's own share lies below it, by the digits from a level on.

    There the rows have no digits but 0. At 15 of 16 the next digit decides already.
    """
    is_below = np.zeros(rows.size, dtype=bool)
    pending = np.arange(rows.size)
    while pending.size and level < DIGITS:
        share, next_digit = alpha >> 60 - 4 * level, alpha >> 56 - 4 * level & 15
        draw = hashes.drawn(level, rows[pending], share) & 15
        is_below[pending] = draw < next_digit
        tied = draw == next_digit
        pending, alpha, hashes, level = pending[tied], alpha[tied], hashes.of(np.flatnonzero(tied)), level + 1
    return is_below


def _broadcast(*values: Any) -> tuple[Any, ...]:
    """Returns the common shape of integers, and then these as int64 arrays of so many entries."""
    arrays = np.broadcast_arrays(*(np.asarray(part, dtype=np.int64) for part in values))
    return arrays[0].shape, *(part.reshape(-1) for part in arrays)


def _sources_of_cells(thresholds: Ids) -> Ids:
    """Returns the source with all draws of two first digits, -1 where several share them: shape (256,)."""
    draws = np.arange(256) << 52
    source = np.searchsorted(thresholds, draws, side="right") - 1
    return np.where(thresholds[source + 1] - draws < 1 << 52, -1, source)
