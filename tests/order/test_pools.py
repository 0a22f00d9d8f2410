"""PARTIAL with two pools: samples cross the borders of blocks, and how far they come is as stated."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

import numpy as np
import pytest

import samplerkit as sk
from samplerkit.order import modes
from tests.order import uniformity
from tests.order.uniformity import LIMIT

SEEDS = range(3)


def order_of(n, pool, pools=2, seed=7, epoch=0, lanes=1):
    """The order of n samples without files."""
    sampler = sk.RandomSampler(shuffle="partial", seed=seed, partial_size=pool, pools=pools, lanes=lanes)
    return sampler.order(n, epoch)


def ids_of(n, pool, pools=2, seed=7):
    return np.asarray(order_of(n, pool, pools, seed))


def by_two_pools(n, pool, seed):
    """The algorithm with two pools: a draw from the first is replaced by one from the second.

    The first pool holds the first samples, the second those that follow. When the second is empty, it is
    filled with the next ones.
    """
    draw = random.Random(seed)

    def taken(items):
        place = draw.randrange(len(items))
        items[place], items[-1] = items[-1], items[place]
        return items.pop()

    first, second, end = list(range(pool)), list(range(pool, 2 * pool)), 2 * pool
    ids = []
    while first:
        ids.append(taken(first))
        if second:
            first.append(taken(second))
        if not second:
            second = list(range(end, min(end + pool, n)))
            end += pool
    return np.array(ids)


@dataclass(frozen=True)
class Figures:
    """How far samples come, in units of the pool; and successors that stay successors, times the pool."""

    mean: float
    median: float
    high: float
    longest: float
    successors: float

    @classmethod
    def of(cls, shuffle, n, pool):
        """The figures of all seeds together."""
        orders = [shuffle(n, pool, seed) for seed in SEEDS]
        moves = np.abs(np.stack(orders) - np.arange(n)) / pool
        successors = np.mean([np.diff(ids) == 1 for ids in orders]) * pool
        high = np.quantile(moves, 0.9)
        return cls(moves.mean(), np.median(moves), high, moves.max(), float(successors))


def ours(n, pool, seed):
    return ids_of(n, pool, 2, seed)


def ours_of_one_pool(n, pool, seed):
    return ids_of(n, pool, 1, seed)


SIZES = [(100_000, 500), (300_000, 1000), (1_000_000, 1000)]
# Of 300 to 1000 successors that are expected, three standard deviations are 10 to 17 percent.
OF_CHANCE = 0.2


@pytest.mark.statistics
@pytest.mark.parametrize(("n", "pool"), SIZES)
def test_displacements_of_two_passes_are_as_stated(n, pool):
    found = Figures.of(ours, n, pool)
    assert found.mean == pytest.approx(1.08, abs=0.015)
    assert found.median == pytest.approx(1.00, abs=0.02)
    assert found.high == pytest.approx(2.11, abs=0.03)
    assert 2.8 < found.longest < 3
    assert found.successors == pytest.approx(0.27, rel=OF_CHANCE)


@pytest.mark.statistics
@pytest.mark.parametrize(("n", "pool"), SIZES)
def test_they_mix_no_less_than_the_algorithm_with_two_pools(n, pool):
    found, reference = Figures.of(ours, n, pool), Figures.of(by_two_pools, n, pool)
    # The stated figures of the reference: so it is the algorithm that was meant.
    assert reference.mean == pytest.approx(0.80, abs=0.015)
    assert reference.median == pytest.approx(0.65, abs=0.02)
    assert reference.high == pytest.approx(1.54, abs=0.03)
    assert reference.successors == pytest.approx(0.35, rel=OF_CHANCE)
    assert found.mean > reference.mean
    assert found.median > reference.median
    assert found.high > reference.high
    assert found.successors < reference.successors
    # The bound is what makes memory foreseeable: the algorithm with pools has none.
    assert found.longest < 3 < reference.longest


@pytest.mark.statistics
@pytest.mark.parametrize(("n", "pool"), SIZES[:2])
def test_one_pool_of_the_same_size_mixes_less_and_fails_every_figure(n, pool):
    found, reference = Figures.of(ours_of_one_pool, n, pool), Figures.of(by_two_pools, n, pool)
    assert found.mean < reference.mean
    assert found.median < reference.median
    assert found.high < reference.high
    assert found.longest < 1


@pytest.mark.parametrize("pool", [3, 50, 700])
def test_samples_cross_the_border_of_every_block(pool):
    n = pool * 40 + 1
    blocks = np.arange(n) // (2 * pool)
    crossing = (ids_of(n, pool) // (2 * pool)) != blocks
    assert (np.bincount(blocks[crossing], minlength=blocks[-1]) > 0)[:-1].all()
    one_pool = ids_of(n, 2 * pool, pools=1) // (2 * pool)
    assert (one_pool == blocks).all()


@pytest.mark.parametrize("n", [10**12, 2**62])
def test_a_huge_order_is_evaluated_where_it_is_asked(n):
    pool = 10**9
    order = order_of(n, pool)
    positions = np.sort(np.random.default_rng(7).integers(0, n, 2000))
    ids = order[positions]
    assert np.abs(ids - positions).max() < 3 * pool
    assert np.abs(ids - positions).mean() == pytest.approx(1.08 * pool, rel=0.1)
    np.testing.assert_array_equal(order.positions_of(ids)[1], positions)


@pytest.mark.parametrize("pool", [2**61 - 1, 2**61, 2**61 + 1, 2**62])
def test_blocks_as_long_as_the_longest_order_do_not_overflow(pool):
    n = 2**62
    order = order_of(n, pool)
    positions = np.array([0, 1, pool - 1, min(pool, n - 1), n // 2, n - 2, n - 1])
    ids = order[positions]
    assert ((ids >= 0) & (ids < n)).all()
    np.testing.assert_array_equal(order.positions_of(ids)[1], positions)


@pytest.mark.parametrize("mode", ["global", "files", "infile"])
def test_pools_change_no_other_mode(mode):
    layout = sk.Layout([20, 30, 25])
    orders = [sk.RandomSampler(shuffle=mode, partial_size=5, pools=pools).order(layout) for pools in (1, 2)]
    assert list(orders[0]) == list(orders[1])


# Uniformity: a block of one pass is whole, and the two passes share no key.


@pytest.mark.parametrize("size", [3, 4, 5])
def test_a_run_that_fits_into_one_block_comes_in_all_permutations(size):
    number = 120 * math.factorial(size)
    sampler = sk.RandomSampler(shuffle="partial", seed=7, partial_size=size, pools=2, lanes=number)
    woven = np.asarray(sampler.order(size * number)).reshape(size, number)
    permutations = woven.T - size * np.arange(number)[:, None]
    assert abs(uniformity.all_permutations(permutations)) < LIMIT


def test_one_key_for_both_passes_shows_as_squares_of_permutations(monkeypatch):
    size, number = 4, 2880
    sampler = sk.RandomSampler(shuffle="partial", seed=7, partial_size=size, pools=2, lanes=number)
    blocks = modes.BlockShuffle

    def of_one_key(starts, block_size, key, **options):
        same = type(key)(key.seed, key.epoch, key.depth, "partial")
        return blocks(starts, block_size, same, **options)

    monkeypatch.setattr(modes, "BlockShuffle", of_one_key)
    woven = np.asarray(sampler.order(size * number)).reshape(size, number)
    permutations = woven.T - size * np.arange(number)[:, None]
    assert uniformity.all_permutations(permutations) > 2 * LIMIT


@pytest.mark.parametrize("n", [257, 1000, 5000])
def test_orders_of_any_two_seeds_and_epochs_agree_only_by_chance(n):
    orders = [np.asarray(order_of(n, n, seed=seed, epoch=epoch)) for seed in range(8) for epoch in range(8)]
    assert abs(uniformity.agreements(np.stack(orders))) < LIMIT
