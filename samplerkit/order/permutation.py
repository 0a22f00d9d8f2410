"""A keyed permutation of [0, n) that can be evaluated at any position, both ways.

Up to `TABLE_LIMIT` the permutation is a table: the indices sorted by a keyed hash, which is uniform over
all n! permutations up to the 52 bits of the hashes. For larger n it is a Feistel network over a domain that
is half modular: a position is split into a left half in [0, a) and a right half of b bits, where
a = ceil(n / 2^b). Each round adds a keyed function of the right half to the left half, modulo a, or combines
the right half by xor with a keyed function of the left half. The domain has a * 2^b values, fewer than 2^b
(about sqrt(n)) more than n. A value outside of [0, n) is permuted again until it is inside (cycle walking).
Few values are outside for any n; with halves of whole bits, an n just above a power of two would need up to
four evaluations per value.

The keyed functions are multiply-shift hashes: the high bits of x * c + k with keyed c and k. Where they
change the left half, x * c + k is squared first, which makes the network nonlinear beyond carries. There are
eight rounds: six pass the tests of tests/order/test_uniformity.py, four fail them clearly.

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
"""Up to this number of values, a Python loop over the values is faster than numpy."""


def permuted_few(network: Any, values: list[int], *, inverse: bool) -> Iterator[int]:
    """Permutes a few values in a Python loop, with the same results as `permuted`.

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
            value = left << bits | right  # noqa: PLW2901  # cycle walking: a value outside is permuted again
            if value < size:
                break
        yield value


TABLE_LIMIT: Final = 4096
"""Domains up to this size are permuted by a table."""

NARROW_LIMIT: Final = 1 << 31
"""Domains below this size are evaluated in 32-bit words, larger ones in 64-bit words."""

ROUNDS: Final = 8
CHUNK: Final = 32_768
"""Positions that are evaluated at a time: three buffers of this length fit into the second-level cache."""

_TABLE_WORDS = 3
_LINE, _SHORT, _WORTH_KEEPING = 64, 4096, 12


@dataclass(frozen=True)
class Network:
    """The parameters of a Feistel network: of one permutation, or of a separate one for each position.

    Args:
        size: n; a scalar, or an array with an entry for each position. The others have the same shape.
        modulus: a, the number of values of the left half.
        bits: b, the width of the right half in bits.
        factors: the constants c, odd, one for each round.
        terms: the constants k, one for each round.
    """

    size: Any
    modulus: Any
    bits: Any
    factors: tuple[Any, ...]
    terms: tuple[Any, ...]

    @classmethod
    def of(cls, constants: Any) -> Network:
        """Makes the network of one permutation from a column of `network_constants`."""
        # Zero-dimensional arrays: numpy functions take two thirds of the time that they take with scalars.
        size, modulus, bits, *rounds = [constants[i, ...] for i in range(constants.size)]
        return cls(size, modulus, bits, tuple(rounds[:ROUNDS]), tuple(rounds[ROUNDS:]))

    @cached_property
    def walk_ends(self) -> Any:
        """For each value of the domain outside of [0, n), the first value inside that cycle walking reaches.

        Values of a cycle that is completely outside have no such value, and keep one outside. No walk from a
        value inside of [0, n) reaches such a cycle. Only for a network of one permutation.
        """
        outside = np.arange(int(self.size), int(self.modulus << self.bits)).astype(self.size.dtype)
        ends, right, scratch = np.empty((3, outside.size), dtype=outside.dtype)
        scratch[...] = outside
        _rounds(self, ends, right, scratch, inverse=False)
        # Pointer doubling: each iteration walks twice as many steps as the previous one. The number of
        # iterations is fixed, since a loop until all values are inside would not end if a cycle is completely
        # outside. No walk has more steps than there are values outside.
        for _ in range(outside.size.bit_length()):
            pending = np.flatnonzero(ends >= self.size)
            ends[pending] = ends[ends[pending] - self.size]
        return ends

    @classmethod
    def of_columns(cls, constants: Any, columns: Ids) -> Network:
        """Makes the network in which position i uses column columns[i] of `network_constants`."""
        if (columns[1:] >= columns[:-1]).all():
            # Several times as fast as indexing by column.
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
    """Computes the parameters of networks, a column for each permutation: n, a, b, all c, all k.

    Args:
        sizes: n of each permutation, all above `TABLE_LIMIT`; either all or none below `NARROW_LIMIT`.
        words: the random words, `word_count` in each column.
    """
    word = np.uint32 if max(sizes) < NARROW_LIMIT else np.uint64
    domains = np.array([(size, *half_modular_domain(size)) for size in sizes])
    constants = np.concatenate([domains.T.astype(word), words.astype(word)])
    constants[3 : 3 + ROUNDS] |= word(1)
    return constants


def word_count(size: int) -> int:
    """Returns how many random words the permutation of [0, size) needs."""
    return _TABLE_WORDS if size <= TABLE_LIMIT else 2 * ROUNDS


def table(size: int, words: Words) -> Ids:
    """Makes the permutation of [0, size), size <= TABLE_LIMIT, as an array.

    The low bits of each hash are replaced by the index: so no two hashes are equal, and the result does not
    depend on numpy's sorting algorithm.
    """
    mask = _index_mask(size)
    hashes = _hashed(words, np.arange(size), mask)
    hashes.sort()
    hashes &= mask
    return hashes.view(np.int64)


def tables(sizes: list[int], words: Words) -> list[Ids]:
    """Makes several tables; three times as fast as one by one if they are small.

    Args:
        sizes: of the permutations.
        words: the random words, a column for each permutation.
    """
    counters = np.concatenate([np.arange(size) for size in sizes])
    masks = np.repeat(np.array([*map(_index_mask, sizes)]), sizes)
    hashes = _hashed(np.repeat(words, sizes, axis=1), counters, masks)
    ends = np.cumsum(sizes).tolist()
    permutations = [hashes[end - size : end] for size, end in zip(sizes, ends, strict=True)]
    for permutation in permutations:
        permutation.sort()
    hashes &= masks
    # Copies: a view would keep the memory of all tables alive.
    return [permutation.view(np.int64).copy() for permutation in permutations]


def _index_mask(size: int) -> Any:
    return np.uint64((1 << max(size - 1, 1).bit_length()) - 1)


def _hashed(words: Words, counters: Ids, mask: Any) -> Words:
    hashes = keyed_hash(words, counters)
    # In place, for speed: small sources of a mixture make many tables, one for each pass.
    hashes &= ~mask
    hashes |= counters.view(np.uint64)
    return hashes


def permuted(network: Network, values: Ids, *, inverse: bool = False) -> Ids:
    """Permutes values by a network.

    Args:
        network: of one permutation, or with an entry for each value.
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
    """Makes three arrays; long ones are aligned to cache lines, which saves a quarter of the time."""
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
        # Fewer than 2^b values of the domain are outside: with this many values to permute, a table of all
        # their walks costs less than a walk for each.
        result[outside] = network.walk_ends[left[outside] - network.size]
    else:
        result[outside] = _walk_back(network.at(outside), left[outside], inverse=inverse)


def _walk_back(network: Network, current: Any, *, inverse: bool) -> Ids:
    """Permutes values of the domain again until each is in [0, n): cycle walking."""
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
    """Runs all rounds once on the domain values in `scratch`; the results are in `left`.

    `left`, `right` and `scratch` are all overwritten.
    """
    word, width = left.dtype.type, left.dtype.itemsize * 8
    # The hash is scaled to [0, a) by a product with a and a shift. Since a <= 2^(width / 2 - 1), a hash of
    # width / 2 + 1 bits fits. The more bits it has, the less the scaling prefers some residues.
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
        # The sum or difference modulo a is one of two candidates. The wrong one is larger: an unsigned
        # difference below zero wraps around to a huge value. So their minimum is the residue, and no branch
        # or division is needed.
        if inverse:
            np.subtract(left, scratch, out=left)
            np.add(left, modulus, out=scratch)
        else:
            np.add(left, scratch, out=left)
            np.subtract(left, modulus, out=scratch)
        np.minimum(left, scratch, out=left)
    np.left_shift(left, bits, out=left)
    np.bitwise_or(left, right, out=left)
