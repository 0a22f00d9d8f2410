"""A keyed permutation of [0, n) that can be evaluated at any position, both ways.

Up to `TABLE_LIMIT` the permutation is a table: the indices sorted by a keyed hash, which is uniform over
all n! permutations as far as 52-bit hashes can be. Above, it is a Feistel network over a domain that is
half modular: a position is split into a left half in [0, a) and a right half of b bits, a = ceil(n / 2^b).
The left half moves by addition modulo a, the right half by xor, each by a keyed function of the other. The
domain a * 2^b exceeds n by less than 2^b, about sqrt(n), whatever n is: walking the few values that fall
outside back in (cycle walking) costs nothing just above a power of two, where a domain of whole bits
would walk a value four times.

The keyed functions are multiply-shift hashes, the high bits of x * c + k with keyed c and k; where they move
the left half, they are squared first, which makes the network nonlinear beyond carries. Six rounds pass the
tests of tests/order/test_uniformity.py, four fail them by far; there are eight.

Sources: Black and Rogaway, "Ciphers with arbitrary finite domains" (2002), for generalised Feistel
networks and cycle walking; Dietzfelbinger et al., "A reliable randomized algorithm for the closest-pair
problem" (1997), for multiply-shift; Widynski, "Squares: a fast counter-based RNG" (2020), for squaring.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from samplerkit.order.caching import cached_property
from samplerkit.order.keys import keyed_hash
from samplerkit.order.typing import Ids, Words

FEW: Final = 4
"""Up to this many values are faster to permute one by one."""


def permuted_few(network: Any, values: list[int], *, inverse: bool) -> Iterator[int]:
    """Permutes a few values, as `order.permutation` permutes many.

    Args:
        network: the `Network` of one permutation of [0, n).
        values: each in [0, n).
        inverse: whether to apply the inverse.
    """
    size, modulus, bits = int(network.size), int(network.modulus), int(network.bits)
    width, sign = network.size.dtype.itemsize * 8, -1 if inverse else 1
    word, mask = (1 << width) - 1, (1 << bits) - 1
    rounds = [*enumerate(zip(map(int, network.factors), map(int, network.terms), strict=True))][::sign]
    for value in values:
        while True:
            left, right = value >> bits, value & mask
            for step, (factor, term) in rounds:
                if step % 2:
                    right ^= (left * factor + term & word) >> width - bits
                    continue
                mixed = right * factor + term & word
                mixed = (mixed * mixed & word) >> width // 2 - 1
                left = (left + sign * (mixed * modulus >> width // 2 + 1)) % modulus
            value = left << bits | right  # noqa: PLW2901  # one that is outside is walked on
            if value < size:
                break
        yield value


TABLE_LIMIT: Final = 4096
"""Domains up to this size are permuted by a table."""

NARROW_LIMIT: Final = 1 << 31
"""Domains below this size are evaluated in 32-bit words, larger ones in 64-bit words."""

ROUNDS: Final = 8
CHUNK: Final = 32_768
"""Positions evaluated at a time: three buffers of this length fit the second-level cache."""

_TABLE_WORDS = 3
_LINE, _SHORT, _WORTH_KEEPING = 64, 4096, 12


@dataclass(frozen=True)
class Network:
    """The parameters of the Feistel network: of one permutation, or of one per position.

    Args:
        size: n. Scalar, or an array with an entry for every position.
        modulus: a, the size of the left half.
        bits: b, the width of the right half.
        factors: the constants c, odd, one per round; each a scalar or an array like `size`.
        terms: the constants k, likewise.
    """

    size: Any
    modulus: Any
    bits: Any
    factors: tuple[Any, ...]
    terms: tuple[Any, ...]

    @classmethod
    def of(cls, constants: Any) -> Network:
        """Makes the network of one permutation."""
        # Arrays without dimensions: numpy functions take them in two thirds of the time of scalars.
        size, modulus, bits, *rounds = [constants[i, ...] for i in range(constants.size)]
        return cls(size, modulus, bits, tuple(rounds[:ROUNDS]), tuple(rounds[ROUNDS:]))

    @cached_property
    def walk_ends(self) -> Any:
        """Where each walk of one permutation returns, by the value of the domain outside of [0, n).

        A walk that cycles outside for ever stays there; no walk that began inside reaches such a cycle.
        """
        outside = np.arange(int(self.size), int(self.modulus << self.bits)).astype(self.size.dtype)
        ends, right, scratch = np.empty((3, outside.size), dtype=outside.dtype)
        scratch[...] = outside
        _rounds(self, ends, right, scratch, inverse=False)
        # Each turn goes twice as far as the last. Some cycles are completely outside, so a walk until all are
        # back in need not end, and as many steps as there are values outside are always enough.
        for _ in range(outside.size.bit_length()):
            pending = np.flatnonzero(ends >= self.size)
            ends[pending] = ends[ends[pending] - self.size]
        return ends

    @classmethod
    def of_columns(cls, constants: Any, columns: Ids) -> Network:
        """Makes the network in which position i uses column columns[i]; all sizes have words of one width."""
        if (columns[1:] >= columns[:-1]).all():
            # Several times as fast as looking each of them up.
            counts = np.bincount(columns, minlength=constants.shape[1])
            constants = np.repeat(constants, counts, axis=1)
        else:
            constants = constants[:, columns]
        size, modulus, bits, *rounds = constants
        return cls(size, modulus, bits, tuple(rounds[:ROUNDS]), tuple(rounds[ROUNDS:]))

    def at(self, chosen: Any) -> Network:
        """Restricts the network to the chosen positions (a slice, or an array of indices)."""
        if np.ndim(self.size) == 0:
            return self
        rounds = zip(self.factors, self.terms, strict=True)
        factors, terms = zip(*((c[chosen], k[chosen]) for c, k in rounds), strict=True)
        return Network(self.size[chosen], self.modulus[chosen], self.bits[chosen], factors, terms)


def half_modular_domain(size: int) -> tuple[int, int]:
    """Splits [0, size) into a left half of a values and a right half of b bits, about square.

    Returns:
        (a, b) with a * 2^b >= size and a * 2^b - size < 2^b.

    Example:
        >>> half_modular_domain(2**30 + 1)
        (16385, 16)
    """
    bits = ((size - 1).bit_length() + 1) // 2
    return -(-size >> bits), bits


def network_constants(sizes: list[int], words: Words) -> Any:
    """Returns the numbers that make the networks of permutations, a column each: size, domain and rounds.

    Args:
        sizes: all above `TABLE_LIMIT`, and below `NARROW_LIMIT` or none.
        words: `word_count` of them in each column.
    """
    word = np.uint32 if max(sizes) < NARROW_LIMIT else np.uint64
    domains = np.array([(size, *half_modular_domain(size)) for size in sizes])
    constants = np.concatenate([domains.T.astype(word), words.astype(word)])
    constants[3 : 3 + ROUNDS] |= word(1)
    return constants


def word_count(size: int) -> int:
    """Returns how many words the permutation of [0, size) needs."""
    return _TABLE_WORDS if size <= TABLE_LIMIT else 2 * ROUNDS


def table(size: int, words: Words) -> Ids:
    """Makes the permutation of [0, size), size <= TABLE_LIMIT, as an array.

    The index is in the low bits of its hash, so that no two hashes are equal and the result does not depend
    on numpy's sorting algorithm.
    """
    mask = _index_mask(size)
    hashes = _hashed(words, np.arange(size), mask)
    hashes.sort()
    hashes &= mask
    return hashes.view(np.int64)


def tables(sizes: list[int], words: Words) -> list[Ids]:
    """Makes several, three times as fast as one by one where they are small; `words` has a column of each."""
    counters = np.concatenate([np.arange(size) for size in sizes])
    masks = np.repeat(np.array([*map(_index_mask, sizes)]), sizes)
    hashes = _hashed(np.repeat(words, sizes, axis=1), counters, masks)
    ends = np.cumsum(sizes).tolist()
    permutations = [hashes[end - size : end] for size, end in zip(sizes, ends, strict=True)]
    for permutation in permutations:
        permutation.sort()
    hashes &= masks
    # Copies, so that one that is kept does not keep the others.
    return [permutation.view(np.int64).copy() for permutation in permutations]


def _index_mask(size: int) -> Any:
    return np.uint64((1 << max(size - 1, 1).bit_length()) - 1)


def _hashed(words: Words, counters: Ids, mask: Any) -> Words:
    hashes = keyed_hash(words, counters)
    # In place, for speed: a source of a hundred samples has a table for each pass.
    hashes &= ~mask
    hashes |= counters.view(np.uint64)
    return hashes


def permuted(network: Network, values: Ids, *, inverse: bool = False) -> Ids:
    """Evaluates a network.

    Args:
        network: of one permutation, or with an entry for every value.
        values: int64 array of shape (m,), each in [0, n).
        inverse: whether to apply the inverse.

    Returns:
        int64 array of shape (m,), each in [0, n).
    """
    if values.size <= FEW and np.ndim(network.size) == 0:
        return np.array([*permuted_few(network, values.tolist(), inverse=inverse)], dtype=np.int64)
    result = np.empty(values.size, dtype=np.int64)
    buffers = _buffers(min(values.size, CHUNK), np.asarray(network.size).dtype)
    for start in range(0, values.size, CHUNK):
        part = slice(start, start + CHUNK)
        _walk(network.at(part), values[part], result[part], buffers, inverse=inverse)
    return result


def _buffers(size: int, word: Any) -> Any:
    """Makes three arrays; long ones begin at a cache line, which saves a quarter of the time."""
    if size < _SHORT:
        return np.empty((3, size), dtype=word)
    length = -(-size // _LINE) * _LINE
    room = np.empty(3 * length + _LINE, dtype=word)
    begin = -room.ctypes.data % _LINE // room.itemsize
    return room[begin : begin + 3 * length].reshape(3, length)


def _walk(network: Network, values: Ids, result: Ids, buffers: Any, *, inverse: bool) -> None:
    left, right, scratch = buffers[:, : values.size]
    scratch[...] = values
    _rounds(network, left, right, scratch, inverse=inverse)
    result[...] = left
    is_scalar = np.ndim(network.size) == 0
    if is_scalar and left.max() < network.size:
        return
    outside = np.flatnonzero(left >= network.size)
    if is_scalar and not inverse and values.size >> max(_WORTH_KEEPING, int(network.bits) + 3):
        # Fewer than 2^b values are outside: walking all of them once costs less than walking them part by
        # part.
        result[outside] = network.walk_ends[left[outside] - network.size]
    else:
        result[outside] = _walk_back(network.at(outside), left[outside], inverse=inverse)


def _walk_back(network: Network, current: Any, *, inverse: bool) -> Ids:
    """Permutes values of the domain again until each is in [0, n)."""
    result, outside = np.empty(current.size, dtype=np.int64), np.arange(current.size)
    while outside.size:
        pending = network.at(outside)
        left, right, scratch = np.empty((3, outside.size), dtype=current.dtype)
        scratch[...] = current
        _rounds(pending, left, right, scratch, inverse=inverse)
        inside = left < pending.size
        result[outside[inside]] = left[inside]
        outside, current = outside[~inside], left[~inside]
    return result


def _rounds(network: Network, left: Any, right: Any, scratch: Any, *, inverse: bool) -> None:
    """Permutes the domain values in `scratch` into `left`, once around, in place."""
    word, width = left.dtype.type, left.dtype.itemsize * 8
    # The left half has fewer than width / 2 bits, so that the product with a fits. The more bits of the hash
    # are in it, the less does it prefer some of the residues.
    hash_shift, product_shift = np.asarray(word(width // 2 - 1)), np.asarray(word(width // 2 + 1))
    modulus, bits = network.modulus, network.bits
    right_shift = word(width) - bits
    mask = (word(1) << bits) - word(1)
    np.right_shift(scratch, bits, out=left)
    np.bitwise_and(scratch, mask, out=right)
    for step in range(ROUNDS - 1, -1, -1) if inverse else range(ROUNDS):
        moves_left = step % 2 == 0
        np.multiply(right if moves_left else left, network.factors[step], out=scratch)
        np.add(scratch, network.terms[step], out=scratch)
        if not moves_left:
            np.right_shift(scratch, right_shift, out=scratch)
            np.bitwise_xor(right, scratch, out=right)
            continue
        np.multiply(scratch, scratch, out=scratch)
        np.right_shift(scratch, hash_shift, out=scratch)
        np.multiply(scratch, modulus, out=scratch)
        np.right_shift(scratch, product_shift, out=scratch)
        # An unsigned difference below zero wraps around to a huge value, so that the minimum of the two
        # candidates is the residue: two passes without a branch or a division.
        if inverse:
            np.subtract(left, scratch, out=left)
            np.add(left, modulus, out=scratch)
        else:
            np.add(left, scratch, out=left)
            np.subtract(left, modulus, out=scratch)
        np.minimum(left, scratch, out=left)
    np.left_shift(left, bits, out=left)
    np.bitwise_or(left, right, out=left)
