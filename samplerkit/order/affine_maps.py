"""The maps a x + b over the field of 16 elements, as tables: of these dice pick one a digit."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

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
