"""SourceDraws by their definition, row by row in Python's integers: the reference for the vectorized code."""

import numpy as np

from samplerkit.order.keys import Key
from samplerkit.order.mixing.source_draws import DIGITS, DigitMaps, SourceDraws
from samplerkit.order.typing import Ids

MASK = (1 << 64) - 1


def product(a: int, b: int) -> int:
    """Multiplies in the field of 16 elements, modulo x^4 + x + 1."""
    result = 0
    for bit in range(4):
        if b >> bit & 1:
            result ^= a << bit
    for bit in (6, 5, 4):
        if result >> bit & 1:
            result ^= 0b10011 << (bit - 4)
    return result


def hashed(words: list[int], counter: int) -> int:
    """The keyed hash: two rounds of splitmix64's finaliser."""
    mixed = (counter * 0x9E3779B97F4A7C15 + words[0]) & MASK
    for word in words[1:]:
        mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9 & MASK
        mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EB & MASK
        mixed = mixed ^ mixed >> 31 ^ word
    return mixed


def draw_of(key: Key, lane: int, row: int, index: int = 0) -> int:
    """The draw of a row, in 60 bits."""
    words = [int(word) for word in key.words(3, index)]
    prefix = 0
    for level in range(15):
        lane_words = [hashed(words, (lane * 16 + level) * 4 + number) for number in range(3)]
        counter = (row >> 4 * (level + 1) << 4 * level) + prefix
        number = (hashed(lane_words, counter) >> 32) * 240 >> 32
        a, b = number % 15 + 1, number // 15
        prefix = prefix * 16 + (product(a, row >> 4 * level & 15) ^ b)
    return prefix


def draws_of_rows(draws: SourceDraws, lanes: Ids, rows: Ids) -> Ids:
    """The draws of rows, each in [0, 2^60), as the package computes them."""
    maps, values = DigitMaps(draws.words, lanes), np.zeros_like(rows)
    for level in range(DIGITS):
        values = maps.with_digit(level, rows, values)
    return values
