"""The random engines and distributions of the C++ standard library that MindSpore uses, vectorized."""

from typing import Any

import numpy as np

from samplerkit.order import arguments
from samplerkit.order.typing import Ids

_MERSENNE_MIDDLE = 397
_MERSENNE_INIT = 1812433253

_MINSTD_MODULUS = 2**31 - 1
_MINSTD_MULTIPLIER = 16807
_MINSTD_BLOCK = 1 << 16
_MINSTD_DOUBLINGS = 16

_SEEDS_PER_CHUNK = 1 << 14

Words32 = np.ndarray[Any, np.dtype[np.uint32]]


class Mt19937:
    """`std::mt19937`: words of 32 bits.

    Args:
        seed: 0 <= seed < 2^32.

    Source: Matsumoto and Nishimura, "Mersenne Twister" (1998); the C++ standard names its constants.

    Example:
        >>> Mt19937(5489).peek(3)
        array([3499211612,  581869302, 3890346734])
    """

    span = 2**32 - 1
    """The largest word: what the C++ engine calls max() - min()."""

    def __init__(self, seed: int) -> None:
        self._engine = np.random.MT19937(0)
        # numpy's legacy seeding makes the same state from a seed as the C++ standard.
        np.random.RandomState(self._engine).seed(seed)
        self._ahead = np.zeros(0, dtype=np.int64)

    def peek(self, count: int) -> Ids:
        """Returns the next words without using them, as an int64 array of shape (count,)."""
        if count > self._ahead.size:
            missing = self._engine.random_raw(count - self._ahead.size).astype(np.int64)
            self._ahead = np.concatenate([self._ahead, missing]) if self._ahead.size else missing
        return self._ahead[:count]

    def skip(self, count: int) -> None:
        """Skips words, whether they were peeked at or not."""
        excess = count - self._ahead.size
        self._ahead = self._ahead[count:]
        if excess > 0:
            self._engine.random_raw(excess, output=False)


class MinstdRand0:
    """`std::minstd_rand0`, GCC's `std::default_random_engine`: words of 31 bits, minus the engine's min().

    Args:
        seed: 0 <= seed < 2^32; taken modulo 2^31 - 1, and 0 is replaced by 1.

    Source: Lewis, Goodman and Miller (1969), as in the C++ standard.

    Example:
        >>> MinstdRand0(1).peek(2) + 1
        array([    16807, 282475249])
    """

    span = _MINSTD_MODULUS - 2

    def __init__(self, seed: int) -> None:
        self._state = seed % _MINSTD_MODULUS or 1

    def peek(self, count: int) -> Ids:
        """Returns the next words without using them, same as `Mt19937.peek`."""
        words = np.empty(count, dtype=np.int64)
        state = self._state
        for start in range(0, count, _MINSTD_BLOCK):
            part = words[start : start + _MINSTD_BLOCK]
            np.multiply(_MINSTD_POWERS[: part.size], state, out=part)
            part %= _MINSTD_MODULUS
            state = int(part[-1])
        words -= 1
        return words

    def skip(self, count: int) -> None:
        """Skips words."""
        self._state = self._state * pow(_MINSTD_MULTIPLIER, count, _MINSTD_MODULUS) % _MINSTD_MODULUS


def _powers_of_the_multiplier() -> Ids:
    powers = np.array([_MINSTD_MULTIPLIER], dtype=np.int64)
    for _ in range(_MINSTD_DOUBLINGS):
        powers = np.concatenate([powers, powers * powers[-1] % _MINSTD_MODULUS])
    return arguments.read_only(powers)


_MINSTD_POWERS = _powers_of_the_multiplier()


Engine = Mt19937 | MinstdRand0


def first_words(seeds: Ids) -> Ids:
    """Returns the first word of the `std::mt19937` with each seed.

    Args:
        seeds: int64 array of shape (m,), each in [0, 2^32).

    Returns:
        int64 array of shape (m,).

    Example:
        >>> first_words(np.array([5489, 5489]))
        array([3499211612, 3499211612])
    """
    words = np.empty(seeds.size, dtype=np.int64)
    for start in range(0, seeds.size, _SEEDS_PER_CHUNK):
        part = slice(start, start + _SEEDS_PER_CHUNK)
        words[part] = _first_words(seeds[part].astype(np.uint32))
    return words


def _first_words(seeds: Words32) -> Words32:
    # The first word depends on only three words of the state. Products of uint32 wrap, as in C++.
    state, shifted = seeds.copy(), np.empty_like(seeds)
    second = seeds
    for number in range(1, _MERSENNE_MIDDLE + 1):
        np.right_shift(state, np.uint32(30), out=shifted)
        state ^= shifted
        state *= np.uint32(_MERSENNE_INIT)
        state += np.uint32(number)
        if number == 1:
            second = state.copy()
    joined = seeds & np.uint32(0x80000000) | second & np.uint32(0x7FFFFFFF)
    word: Words32 = state ^ joined >> np.uint32(1) ^ (joined & np.uint32(1)) * np.uint32(0x9908B0DF)
    word ^= word >> np.uint32(11)
    word ^= word << np.uint32(7) & np.uint32(0x9D2C5680)
    word ^= word << np.uint32(15) & np.uint32(0xEFC60000)
    word ^= word >> np.uint32(18)
    return word


_MIN_WORDS = 64
_MAX_WORDS = 1 << 14


def uniform_integers(generator: Engine, ranges: Ids) -> Ids:
    """Draws an integer below each range in sequence, as `std::uniform_int_distribution` does.

    The span of words is divided into as many equal parts as the range has integers; words beyond these parts
    are rejected.

    Args:
        generator: the source of words; afterwards it is positioned after the last word used.
        ranges: int64 array of shape (m,), each in [1, span].

    Returns:
        int64 array of shape (m,), each in [0, range).

    Source: `bits/uniform_int_dist.h` of libstdc++ 9. Later versions multiply instead of dividing.

    Example:
        >>> from samplerkit.compat.mindspore.generators import Mt19937
        >>> uniform_integers(Mt19937(1), np.array([10, 10, 10]))
        array([4, 9, 7])
    """
    drawn = np.empty(ranges.size, dtype=np.int64)
    done, count = 0, _MAX_WORDS
    while done < ranges.size:
        words = generator.peek(min(count, ranges.size - done))
        part = ranges[done : done + words.size]
        scale = generator.span // part
        rejected = np.flatnonzero(words >= part * scale)
        accepted = int(rejected[0]) if rejected.size else words.size
        np.floor_divide(words[:accepted], scale[:accepted], out=drawn[done : done + accepted])
        # The words after a rejected one move by one position, and are examined again.
        generator.skip(accepted + bool(rejected.size))
        done += accepted
        count = max(_MIN_WORDS, 2 * accepted) if rejected.size else min(_MAX_WORDS, 2 * count)
    return drawn


def drawn_rows(size: int, count: int, seed: int) -> Ids:
    """Draws rows with replacement, each with a new `std::mt19937`, seeded by seed, seed + 1, ..."""
    seeds = (seed + np.arange(count)) % 2**32
    words = first_words(seeds)
    scale = Mt19937.span // size
    rejected = np.flatnonzero(words >= scale * size).tolist()
    words //= scale
    for place in rejected:
        words[place] = uniform_integers(Mt19937(int(seeds[place])), np.array([size]))[0]
    return words


def canonical(generator: Engine, count: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Draws numbers in [0, 1) from two words each, as `std::generate_canonical<double, 53>` does.

    Returns:
        float64 array of shape (count,).
    """
    words = generator.peek(2 * count).reshape(count, 2).astype(np.float64)
    generator.skip(2 * count)
    numbers = (words[:, 0] + words[:, 1] * 2.0**32) * 2.0**-64
    return np.minimum(numbers, np.nextafter(1.0, 0.0))
