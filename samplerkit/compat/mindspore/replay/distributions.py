"""GCC 9's distributions: how words become integers and numbers."""

from __future__ import annotations

import numpy as np

from samplerkit.compat.mindspore.replay.generators import Engine
from samplerkit.order.typing import Ids

_LEAST_WORDS = 64
_MOST_WORDS = 1 << 14


def uniform_integers(generator: Engine, ranges: Ids) -> Ids:
    """Draws an integer below each range, as `std::uniform_int_distribution` does, one after another.

    A word is cut into as many equal parts as the range has integers; a word of the rest is thrown away.

    Args:
        generator: where the words come from; it is left behind the last word used.
        ranges: int64 array of shape (m,), each in [1, span].

    Returns:
        int64 array of shape (m,), each in [0, range).

    Source: `bits/uniform_int_dist.h` of libstdc++ 9. Later versions multiply in place of dividing.

    Example:
        >>> from samplerkit.compat.mindspore.replay.generators import Mt19937
        >>> uniform_integers(Mt19937(1), np.array([10, 10, 10]))
        array([4, 9, 7])
    """
    drawn = np.empty(ranges.size, dtype=np.int64)
    done, count = 0, _MOST_WORDS
    while done < ranges.size:
        words = generator.peek(min(count, ranges.size - done))
        part = ranges[done : done + words.size]
        scale = generator.span // part
        rejected = np.flatnonzero(words >= part * scale)
        good = int(rejected[0]) if rejected.size else words.size
        np.floor_divide(words[:good], scale[:good], out=drawn[done : done + good])
        # What follows a word that was thrown away shifts by one, and is looked at again.
        generator.skip(good + bool(rejected.size))
        done += good
        count = max(_LEAST_WORDS, 2 * good) if rejected.size else min(_MOST_WORDS, 2 * count)
    return drawn


def canonical(generator: Engine, count: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Draws numbers in [0, 1) from two words each, as `std::generate_canonical<double, 53>` does.

    Returns:
        float64 array of shape (count,).
    """
    words = generator.peek(2 * count).reshape(count, 2).astype(np.float64)
    generator.skip(2 * count)
    numbers = (words[:, 0] + words[:, 1] * 2.0**32) * 2.0**-64
    return np.minimum(numbers, np.nextafter(1.0, 0.0))
