"""The keyed permutation is a bijection of [0, n) for every n, both ways, at a cost that n does not change."""

from __future__ import annotations

import math
import tracemalloc

import numpy as np
import pytest

from samplerkit.order import permutation
from samplerkit.order.arguments import LARGEST
from samplerkit.order.keys import Key
from samplerkit.order.permutation import (
    NARROW_LIMIT,
    TABLE_LIMIT,
    Network,
    backward,
    forward,
    half_modular_domain,
    stacked_constants,
    word_count,
)
from samplerkit.order.sequences import Permuted

KEY = Key(seed=7, epoch=3, depth=0, role="global")

AROUND_THE_TABLE = range(TABLE_LIMIT - 3, TABLE_LIMIT + 4)
AROUND_POWERS_OF_TWO = sorted({2**k + d for k in (9, 12, 13, 16, 20) for d in (-1, 0, 1)})
HUGE = [
    2**30 + 1,
    NARROW_LIMIT - 1,
    NARROW_LIMIT,
    NARROW_LIMIT + 1,
    3 * 10**9,
    2**32 - 1,
    2**32,
    2**32 + 1,
    2**40,
    10**12,
    2**61 + 1,
    2**62 - 1,
    2**62,
]


def bijects(n):
    shuffle = Permuted(n, KEY)
    everything = np.arange(n)
    values = shuffle.ids_at(everything)
    assert values.dtype == np.int64
    np.testing.assert_array_equal(np.sort(values), everything)
    np.testing.assert_array_equal(shuffle.backward(values), everything)
    np.testing.assert_array_equal(shuffle.ids_at(shuffle.backward(everything)), everything)


def sampled(n, number=20_000):
    """Positions that differ: the first, the last, and many between."""
    between = np.random.default_rng(7).integers(0, n, number)
    return np.unique(np.concatenate([np.arange(100), n - 1 - np.arange(100), between]))


def test_every_size_up_to_300_is_permuted_and_back():
    for n in range(301):
        bijects(n)


@pytest.mark.parametrize("n", [*AROUND_THE_TABLE, *AROUND_POWERS_OF_TWO, 10_007, 99_991])
def test_sizes_around_the_table_and_around_powers_of_two_are_permuted_and_back(n):
    bijects(n)


@pytest.mark.parametrize("n", HUGE)
def test_positions_of_huge_sizes_are_permuted_and_back(n):
    shuffle = Permuted(n, KEY)
    positions = sampled(n)
    values = shuffle.ids_at(positions)
    assert values.min() >= 0
    assert values.max() < n
    assert np.unique(values).size == positions.size
    np.testing.assert_array_equal(shuffle.backward(values), positions)
    np.testing.assert_array_equal(shuffle.ids_at(shuffle.backward(positions)), positions)


@pytest.mark.parametrize("n", [1000, 4097, 2**31 - 1, 2**31, 2**62])
def test_another_seed_epoch_depth_or_role_is_another_permutation(n):
    keys = [KEY, Key(8, 3, 0, "global"), Key(7, 4, 0, "global"), Key(7, 3, 1, "global"), Key(7, 3, 0, "x")]
    positions = np.arange(1000)
    values = [Permuted(n, key).ids_at(positions) for key in keys]
    for first in range(len(keys)):
        for second in range(first):
            assert (values[first] == values[second]).sum() < 10


def in_plain_integers(n, key, position):
    """The definition of the network, in Python's integers: slow, and plain to see."""
    width = 32 if n < 2**31 else 64
    words = [int(word) % 2**width for word in key.words(16)]
    b = ((n - 1).bit_length() + 1) // 2
    a = -(-n // 2**b)
    value = position
    while True:
        left, right = value >> b, value % 2**b
        for number in range(8):
            c, k = words[number] | 1, words[8 + number]
            if number % 2 == 0:
                hashed = (right * c + k) ** 2 % 2**width >> (width // 2 - 1)
                left = (left + (hashed * a >> (width // 2 + 1))) % a
            else:
                right ^= (left * c + k) % 2**width >> (width - b)
        value = left << b | right
        if value < n:
            return value


@pytest.mark.parametrize("n", [4097, 10_007, 2**20 + 1, *HUGE])
def test_the_network_is_what_its_definition_says_in_plain_integers(n):
    positions = sampled(n, 200)
    expected = [in_plain_integers(n, KEY, position) for position in positions.tolist()]
    assert Permuted(n, KEY).ids_at(positions).tolist() == expected


def test_no_positions_give_no_values():
    for n in (0, 1, 4097, 2**62):
        assert Permuted(n, KEY).ids_at(np.zeros(0, dtype=np.int64)).shape == (0,)
        assert Permuted(n, KEY).backward(np.zeros(0, dtype=np.int64)).shape == (0,)


def test_the_positions_that_are_given_stay_as_they_are():
    for n in (100, 4097, 2**62):
        positions = np.arange(100)
        Permuted(n, KEY).ids_at(positions)
        Permuted(n, KEY).backward(positions)
        np.testing.assert_array_equal(positions, np.arange(100))


@pytest.mark.parametrize(
    "sizes",
    [
        [5000],
        [4097, 5000, 2**20 + 1, NARROW_LIMIT - 1],
        [NARROW_LIMIT, 2**32 + 1, 2**62],
    ],
)
@pytest.mark.parametrize("chunk", [7, permutation.CHUNK])
def test_a_stacked_network_equals_its_single_networks(sizes, chunk, monkeypatch):
    monkeypatch.setattr(permutation, "CHUNK", chunk)
    words = [KEY.words(word_count(size), index=file) for file, size in enumerate(sizes)]
    generator = np.random.default_rng(7)
    which = generator.integers(0, len(sizes), 3000)
    positions = generator.integers(0, np.array(sizes)[which])
    stacked = Network.each(stacked_constants(sizes, words), which)
    values = forward(stacked, positions)
    for number, size in enumerate(sizes):
        mine = which == number
        single = Network.of(size, words[number])
        np.testing.assert_array_equal(values[mine], forward(single, positions[mine]))
    np.testing.assert_array_equal(backward(stacked, values), positions)


def peak_memory(n, positions):
    shuffle = Permuted(n, KEY)
    tracemalloc.start()
    try:
        shuffle.backward(shuffle.ids_at(positions))
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_memory_grows_with_the_positions_and_not_with_the_size():
    positions = np.arange(4000)
    peaks = {n: peak_memory(n, positions) for n in (10**4, 10**6, 10**9, 10**12, 2**62)}
    assert max(peaks.values()) < 2**20
    many = peak_memory(2**62, np.arange(400_000))
    assert many < 400_000 * 8 * 3 + 2**21


@pytest.mark.parametrize("exponent", range(12, 63))
def test_the_domain_exceeds_no_size_by_more_than_two_square_roots(exponent):
    for n in (2**exponent - 1, 2**exponent, 2**exponent + 1, 3 * 2**exponent // 2 + 1):
        if n <= LARGEST:
            left, bits = half_modular_domain(n)
            excess = left * 2**bits - n
            assert 0 <= excess < 2**bits <= 2 * math.isqrt(n) + 2


@pytest.mark.parametrize("n", [2**13 + 1, 2**17 + 1, 2**20 + 1, 2**20, 2**20 - 1])
def test_cycles_are_walked_by_fewer_values_than_two_square_roots(n, monkeypatch):
    evaluated = []
    rounds = permutation._rounds

    def counted(network, left, right, scratch, *, inverse):
        evaluated.append(scratch.size)
        rounds(network, left, right, scratch, inverse=inverse)

    monkeypatch.setattr(permutation, "_rounds", counted)
    Permuted(n, KEY).ids_at(np.arange(n))
    walked = sum(evaluated) - n
    assert walked <= 2 * math.isqrt(n) + 2


@pytest.mark.parametrize("n", [2**12 + 1, 100_000, 2**20 + 1, 10**6])
def test_walks_that_are_looked_up_end_where_walks_of_a_few_values_end(n):
    bits = half_modular_domain(n)[1]
    many, few = Permuted(n, KEY), Permuted(n, KEY)
    positions = np.arange(0, n, max(1, n >> 17))[: 1 << 17]
    looked_up = many.ids_at(positions)
    assert "ways_in" in vars(many._network)
    walked = [few.ids_at(part) for part in np.array_split(positions, -(-positions.size >> (bits + 2)))]
    assert "ways_in" not in vars(few._network)
    np.testing.assert_array_equal(looked_up, np.concatenate(walked))


def test_cycles_that_lie_outside_as_a_whole_are_not_walked_for_ever():
    n, found = 5000, 0
    positions = np.arange(n)
    for epoch in range(200):
        order = Permuted(n, Key(seed=7, epoch=epoch, depth=0, role="global"))
        ways_in = order._network.ways_in
        outside = np.flatnonzero(ways_in >= n)
        found += outside.size > 0
        # They are cycles of their own: a step from one of them leads to one of them.
        left, right, scratch = np.empty((3, outside.size), dtype=ways_in.dtype)
        scratch[...] = n + outside
        permutation._rounds(order._network, left, right, scratch, inverse=False)
        assert set(left.tolist()) == set((n + outside).tolist())
        np.testing.assert_array_equal(np.sort(order.ids_at(positions)), positions)
    assert found > 0
