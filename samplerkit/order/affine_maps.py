"""The maps a x + b over the field of 16 elements, as tables: of these dice pick one a digit."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

import numpy as np

from samplerkit.order.typing import Ids

MAPS: Final = 240
"""How many there are: a is one of 15, b of 16."""


@lru_cache(maxsize=1)
def map_tables() -> tuple[Ids, Ids, Ids]:
    """The 240 maps a x + b over GF(16), by a from 1, then b, and how many smaller digits go below a value.

    Returns:
        pi(x) at 16 * map + x; its inverse at 16 * map + y; #{x' < x: pi(x') < y} at 16 * (16 * map + y) + x.
    """
    product = np.zeros((16, 16), dtype=np.int64)
    digit = np.arange(16)
    for bit in range(4):
        shifted = digit.copy()
        for _ in range(bit):
            shifted = shifted << 1 ^ np.where(shifted & 8, 0b10011, 0)
        product ^= (digit >> bit & 1)[:, None] * shifted
    number = np.arange(MAPS)
    maps = product[number % 15 + 1] ^ (number // 15)[:, None]
    inverses = np.argsort(maps, axis=1)
    is_smaller = maps[:, None, :] < digit[:, None]
    smaller: Ids = np.cumsum(is_smaller, axis=2) - is_smaller
    return maps.reshape(-1), inverses.reshape(-1), smaller.reshape(-1)


@lru_cache(maxsize=1)
def count_table() -> np.ndarray[Any, np.dtype[np.uint8]]:
    """What one digit of a row adds to a count, and what it makes of the next one: a byte for each case.

    Returns:
        At 32 * (16 * map + y) + 16 * b + x: how many digits below x go below y, and one more if y itself
        comes below x and b says that its row counts. 16 is added if a row that has x counts: below y, or y
        with b.
    """
    maps, inverses, smaller = map_tables()
    digit, is_counted = np.arange(16), np.array([[False], [True]])
    die, goes = maps.reshape(MAPS, 1, 1, 16), digit[:, None, None]
    counts = smaller.reshape(MAPS, 16, 1, 16) + (is_counted & (inverses.reshape(MAPS, 16, 1, 1) < digit))
    goes_on = (die < goes) | ((die == goes) & is_counted)
    table: np.ndarray[Any, np.dtype[np.uint8]] = (counts + 16 * goes_on).astype(np.uint8).reshape(-1)
    return table
