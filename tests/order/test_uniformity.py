"""Statistics of uniformity: the orders pass all of them, and worse algorithms fail.

The seeds are fixed, so that scores are the same on every machine: one above `uniformity.LIMIT` is a flaw of
the algorithm and no accident. The golden vectors freeze the orders, so scores can change with a new algorithm
only; run these tests for one (`pytest -m statistics`).
"""

import math

import numpy as np
import pytest

import samplerkit as sk
from samplerkit.order import permutation
from samplerkit.order.keys import Key
from samplerkit.order.permutation import TABLE_LIMIT, half_modular_domain
from samplerkit.order.sequences import Permuted
from tests.order import uniformity
from tests.order.uniformity import LIMIT

pytestmark = pytest.mark.statistics

VISIBLE = 6.0
"""A worse algorithm must fail by far: p = 2e-9."""

TABLE_SIZES = [257, 1000]
NETWORK_SIZES = [4097, 10_007, 65_537, 100_000]
SIZES = [*TABLE_SIZES, *NETWORK_SIZES]
IDS_PER_TEST = {size: 1_000_000 if size <= TABLE_LIMIT else 10_000_000 for size in SIZES}
PER_PERMUTATION = 100
ACROSS = pytest.mark.parametrize("across", ["seeds", "epochs"])


def shuffled(n, seed, epoch=0):
    return Permuted(n, Key(seed, epoch, depth=0, role="global")).ids_at(np.arange(n))


def orders(n, across, number=None):
    """Orders that differ in the seed, or in the epoch."""
    for trial in range(IDS_PER_TEST[n] // n if number is None else number):
        yield shuffled(n, trial) if across == "seeds" else shuffled(n, 7, trial)


def distances(n):
    row = 1 << half_modular_domain(n)[1]
    return 1, 2, row, row + 1


def passes(scores):
    assert {name: round(z, 1) for name, z in scores.items() if not abs(z) < LIMIT} == {}
    return True


def worst(scores):
    return max(abs(z) for z in scores.values())


def bare_feistel(n, seed):
    """The textbook network: halves of whole bits, six rounds of xor, and cycle walking."""
    half = max(1, -(-(n - 1).bit_length() // 2))
    mask = (1 << half) - 1
    words = [int(word) >> 1 for word in Key(seed, 0, 0, "bare").words(6)]

    def once(value):
        left, right = value >> half, value & mask
        for word in words:
            hashed = ((right ^ word) * 0x9E3779B97F4A7C15) & (2**64 - 1)
            left, right = right, left ^ (hashed >> 40 & mask)
        return left << half | right

    result = []
    for position in range(n):
        value = once(position)
        while value >= n:
            value = once(value)
        result.append(value)
    return result


@ACROSS
@pytest.mark.parametrize("n", [2, 3, 4, 5, 6])
def test_all_permutations_of_a_few_samples_come_equally_often(n, across):
    trials = PER_PERMUTATION * math.factorial(n)
    permutations = np.stack(list(orders(n, across, trials)))
    assert abs(uniformity.all_permutations(permutations)) < LIMIT


@pytest.mark.parametrize("n", [4, 5, 6])
def test_all_permutations_do_not_come_equally_often_from_a_bare_feistel_network(n):
    trials = 60 * math.factorial(n)
    permutations = np.array([bare_feistel(n, seed) for seed in range(trials)])
    assert uniformity.all_permutations(permutations) > VISIBLE


SCORES = {
    "ids at positions": uniformity.positions,
    "differences of neighbours": lambda n, orders: uniformity.differences(n, orders, distances(n)),
    "pairs of neighbours": lambda n, orders: uniformity.pairs(n, orders, distances(n)),
}


@ACROSS
@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("scores_of", SCORES.values(), ids=SCORES)
def test_orders_are_uniform(n, across, scores_of):
    assert passes(scores_of(n, orders(n, across)))


@pytest.mark.parametrize("n", NETWORK_SIZES)
def test_four_rounds_show_in_differences_and_pairs(n, monkeypatch):
    monkeypatch.setattr(permutation, "ROUNDS", 4)
    assert worst(uniformity.differences(n, orders(n, "seeds"), distances(n))) > VISIBLE
    assert worst(uniformity.pairs(n, orders(n, "seeds"), distances(n))) > VISIBLE


# Orders that are too long to be read completely: random positions and their neighbours.

HUGE = [2**30 + 1, 2**31 - 1, 2**31 + 1, 2**32 + 1, 10**12, 2**62]
SAMPLED = 250_000
PARTS = 64


def part_of(values, n):
    return (values / n * PARTS).astype(np.int64)


def sampled_scores(n, seeds=range(4)):
    counts = {}
    generator = np.random.default_rng(7)

    def count(name, values, cells=PARTS):
        counts[name] = counts.get(name, 0) + np.bincount(values, minlength=cells)

    for seed in seeds:
        order = sk.RandomSampler(seed=seed).order(n)
        positions = np.sort(generator.integers(0, n - distances(n)[-1], SAMPLED))
        ids = order[positions]
        count("leading digits", part_of(ids, n))
        count("last digits", ids % PARTS)
        count("moves", part_of((ids - positions) % n, n))
        for distance in distances(n):
            next_ids = order[positions + distance]
            difference = (next_ids - ids) % n
            place = f"at distance {distance}"
            count(f"differences {place}, leading", part_of(difference, n))
            count(f"differences {place}, last", difference % PARTS)
            count(f"pairs {place}, leading", part_of(ids, n) * PARTS + part_of(next_ids, n), PARTS**2)
            count(f"pairs {place}, last", ids % PARTS * PARTS + next_ids % PARTS, PARTS**2)
    return {name: uniformity.chi_square(seen, seen.sum() / seen.size) for name, seen in counts.items()}


@pytest.mark.parametrize("n", HUGE)
def test_samples_of_huge_orders_are_uniform(n):
    assert passes(sampled_scores(n))


@pytest.mark.parametrize("n", HUGE)
def test_three_rounds_show_in_samples_of_huge_orders(n, monkeypatch):
    monkeypatch.setattr(permutation, "ROUNDS", 3)
    assert worst(sampled_scores(n, seeds=[0])) > VISIBLE


# Draws with replacement and by weight have the requested shares.


def test_draws_with_replacement_are_uniform_and_independent():
    n = 1000
    draws = np.concatenate(
        [
            np.asarray(sk.RandomSampler(replacement=True, seed=seed).order(n, epoch))
            for seed in range(50)
            for epoch in range(50)
        ]
    )
    assert abs(uniformity.chi_square(np.bincount(draws, minlength=n), draws.size / n)) < LIMIT
    joint = np.bincount(draws[:-1] * n + draws[1:], minlength=n * n)
    assert abs(uniformity.chi_square(joint, joint.sum() / joint.size)) < LIMIT


def test_draws_by_weight_come_in_proportion_to_the_weights():
    weights = np.array([1.0, 0.25, 0.0, 3.0, 1e-3])
    draws = np.asarray(sk.WeightedRandomSampler(weights, 1_000_000, seed=7).order(5))
    expected = weights / weights.sum() * draws.size
    drawn = weights > 0
    seen = np.bincount(draws, minlength=5)
    assert seen[2] == 0
    assert abs(uniformity.chi_square(seen[drawn], expected[drawn])) < LIMIT
    uniform = np.full(4, draws.size / 4)
    assert uniformity.chi_square(seen[drawn], uniform) > VISIBLE


def test_draws_by_weight_without_replacement_follow_the_remaining_weights():
    weights = [1.0, 2.0, 5.0]
    trials = 6000
    draws = np.stack(
        [
            np.asarray(sk.WeightedRandomSampler(weights, replacement=False, seed=seed).order(3))
            for seed in range(trials)
        ]
    )
    permutations = [[a, b, 3 - a - b] for a in range(3) for b in range(3) if a != b]
    chances = [weights[a] / 8 * weights[b] / (8 - weights[a]) for a, b, _ in permutations]
    expected = np.zeros(6)
    expected[uniformity.ranks(np.array(permutations))] = chances
    seen = np.bincount(uniformity.ranks(draws), minlength=6)
    assert abs(uniformity.chi_square(seen, expected * trials)) < LIMIT


# PARTIAL with two pools: how far samples move.


@pytest.mark.parametrize(("n", "pool"), [(100_000, 500), (300_000, 1000), (1_000_000, 1000)])
def test_displacements_of_two_pools_are_as_stated(n, pool):
    samplers = [sk.RandomSampler(shuffle="partial", seed=s, partial_size=pool, pools=2) for s in range(3)]
    orders = np.stack([np.asarray(sampler.order(n)) for sampler in samplers])
    moves = np.abs(orders - np.arange(n)) / pool
    assert moves.mean() == pytest.approx(1.08, abs=0.015)
    assert np.median(moves) == pytest.approx(1.00, abs=0.02)
    assert np.quantile(moves, 0.9) == pytest.approx(2.11, abs=0.03)
    assert 2.8 < moves.max() < 3
    # Of 300 to 1000 successors that are expected, three standard deviations are 10 to 17 percent.
    assert (np.diff(orders) == 1).mean() * pool == pytest.approx(0.27, rel=0.2)
