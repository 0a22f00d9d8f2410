"""The keyed permutation is a bijection of [0, n) for every n, with an inverse, and few values are walked."""

import math

import numpy as np
import pytest

from samplerkit.order import permutation
from samplerkit.order.keys import Key
from samplerkit.order.permutation import NARROW_LIMIT, TABLE_LIMIT, half_modular_domain
from samplerkit.order.sequences import Permuted, make_tables

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


@pytest.mark.parametrize(
    "sizes",
    [range(301), *([n] for n in (*AROUND_THE_TABLE, *AROUND_POWERS_OF_TWO, 10_007, 99_991))],
    ids=lambda sizes: f"up to {sizes[-1]}" if len(sizes) > 1 else str(sizes[0]),
)
def test_small_sizes_and_sizes_around_limits_are_permuted_and_back(sizes):
    for n in sizes:
        shuffle = Permuted(n, KEY)
        everything = np.arange(n)
        values = shuffle.ids_at(everything)
        assert values.dtype == np.int64
        np.testing.assert_array_equal(np.sort(values), everything)
        np.testing.assert_array_equal(shuffle.locate(values)[1], everything)
        np.testing.assert_array_equal(shuffle.ids_at(shuffle.locate(everything)[1]), everything)


def sampled(n, number=20_000):
    """Distinct positions: the first 100, the last 100, and many between."""
    between = np.random.default_rng(7).integers(0, n, number)
    return np.unique(np.concatenate([np.arange(100), n - 1 - np.arange(100), between]))


def in_plain_integers(n, key, position):
    """The definition of the network, in Python's integers."""
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
def test_the_network_equals_its_definition_in_python_integers(n):
    positions = sampled(n, 200)
    expected = [in_plain_integers(n, KEY, position) for position in positions.tolist()]
    assert Permuted(n, KEY).ids_at(positions).tolist() == expected
    assert Permuted(n, KEY).locate(np.array(expected))[1].tolist() == positions.tolist()


@pytest.mark.parametrize("n", [2**13 + 1, 2**17 + 1, 2**20 + 1, 2**20, 2**20 - 1])
def test_cycle_walking_evaluates_at_most_two_square_roots_of_values_again(n, monkeypatch):
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
def test_walks_by_table_end_where_walks_step_by_step_end(n):
    bits = half_modular_domain(n)[1]
    many, few = Permuted(n, KEY), Permuted(n, KEY)
    positions = np.arange(0, n, max(1, n >> 17))[: 1 << 17]
    by_table = many.ids_at(positions)
    assert "walk_ends" in vars(many._network)
    step_by_step = [few.ids_at(part) for part in np.array_split(positions, -(-positions.size >> (bits + 2)))]
    assert "walk_ends" not in vars(few._network)
    np.testing.assert_array_equal(by_table, np.concatenate(step_by_step))


def test_cycles_completely_outside_are_not_walked_for_ever():
    n, orders_with_such_cycles = 5000, 0
    positions = np.arange(n)
    for epoch in range(200):
        order = Permuted(n, Key(seed=7, epoch=epoch, depth=0, role="global"))
        walk_ends = order._network.walk_ends
        outside = np.flatnonzero(walk_ends >= n)
        orders_with_such_cycles += outside.size > 0
        # A step from one of these values leads to another of them.
        left, right, scratch = np.empty((3, outside.size), dtype=walk_ends.dtype)
        scratch[...] = n + outside
        permutation._rounds(order._network, left, right, scratch, inverse=False)
        assert set(left.tolist()) == set((n + outside).tolist())
        np.testing.assert_array_equal(np.sort(order.ids_at(positions)), positions)
    assert orders_with_such_cycles > 0


def test_tables_made_together_equal_those_made_one_by_one():
    sizes = [1, 2, 4096, 100, 4097, *range(1, 300)]
    one_by_one, together = ([Permuted(size, KEY, run) for run, size in enumerate(sizes)] for _ in range(2))
    make_tables(together)
    assert ["_table" in vars(order) for order in together] == [size <= TABLE_LIMIT for size in sizes]
    assert all((first[:] == second[:]).all() for first, second in zip(one_by_one, together, strict=True))


def test_a_table_replaces_no_more_bits_of_its_hashes_than_its_indices_need(monkeypatch):
    shifted = np.uint64(3)
    monkeypatch.setattr(permutation, "keyed_hash", lambda _, counters: (~counters).view(np.uint64) << shifted)
    assert permutation.table(8, None).tolist() == [7, 6, 5, 4, 3, 2, 1, 0]
