"""The orders are uniformly random as far as one can see, and each statistic sees a worse way to make them.

The seeds are fixed, so that these tests give the same scores on every machine: a score beyond
`uniformity.LIMIT` is a flaw of the algorithm and no accident. The golden vectors freeze the orders: what is
measured here can change with a new algorithm only, and is run for one (`pytest -m statistics`).
"""

from __future__ import annotations

import math

import numpy as np
import pytest

import samplerkit as sk
from samplerkit.order import files, permutation
from samplerkit.order.keys import Key
from samplerkit.order.permutation import TABLE_LIMIT, half_modular_domain, word_count
from samplerkit.order.sequences import Permuted
from tests.order import uniformity
from tests.order.uniformity import LIMIT

pytestmark = pytest.mark.statistics

VISIBLE = 6.0
"""A control must fail by far: p = 2e-9."""

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
    """Six rounds on whole bits, left and right by xor, and cycle walking: what one would write first."""
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


def test_a_random_sampler_reads_the_permutation_that_is_tested_here():
    for n in (5, 257, 4097):
        order = np.asarray(sk.RandomSampler(seed=7).order(n, epoch=3))
        np.testing.assert_array_equal(order, shuffled(n, 7, 3))


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
    "which ids stand at which positions": uniformity.positions,
    "differences of neighbours": lambda n, found: uniformity.differences(n, found, distances(n)),
    "pairs of neighbours": lambda n, found: uniformity.pairs(n, found, distances(n)),
    "an order and the next one": uniformity.successors,
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


@pytest.mark.parametrize("n", NETWORK_SIZES)
def test_three_rounds_show_in_positions(n, monkeypatch):
    monkeypatch.setattr(permutation, "ROUNDS", 3)
    assert worst(uniformity.positions(n, orders(n, "seeds"))) > VISIBLE


@pytest.mark.parametrize("n", NETWORK_SIZES)
def test_six_rounds_still_pass_so_that_eight_have_two_to_spare(n, monkeypatch):
    monkeypatch.setattr(permutation, "ROUNDS", 6)
    assert passes(uniformity.positions(n, orders(n, "seeds")))
    assert passes(uniformity.differences(n, orders(n, "seeds"), distances(n)))
    assert passes(uniformity.pairs(n, orders(n, "seeds"), distances(n)))


def grid(n, order_of):
    return np.stack([order_of(n, seed, epoch) for seed in range(16) for epoch in range(16)])


@pytest.mark.parametrize("n", [6, 257, 1000, 4097])
def test_orders_of_any_two_seeds_and_epochs_agree_only_by_chance(n):
    assert abs(uniformity.agreements(grid(n, shuffled))) < LIMIT


@pytest.mark.parametrize("n", [6, 257, 1000, 4097])
def test_keys_of_seed_plus_epoch_show_in_agreements(n):
    def of_the_sum(n, seed, epoch):
        return shuffled(n, seed + epoch)

    assert uniformity.agreements(grid(n, of_the_sum)) > VISIBLE


def test_one_key_for_all_epochs_shows_in_successors():
    same = [shuffled(1000, 7)] * 100
    assert worst(uniformity.successors(1000, same)) > VISIBLE


def parent_over_child(seed):
    parent = sk.RandomSampler(seed=seed)
    parent.add_child(sk.RandomSampler(seed=seed))
    return np.asarray(parent.order(4))


def test_a_parent_and_a_child_of_one_seed_shuffle_independently():
    permutations = np.stack([parent_over_child(seed) for seed in range(PER_PERMUTATION * 24)])
    assert abs(uniformity.all_permutations(permutations)) < LIMIT


def test_a_parent_that_shuffles_as_its_child_does_shows():
    children = [shuffled(4, seed) for seed in range(PER_PERMUTATION * 24)]
    squares = np.stack([child[child] for child in children])
    assert uniformity.all_permutations(squares) > VISIBLE


# INFILE and PARTIAL: each block is uniform, and no two blocks know of one another.

LANES = 4


def infile_blocks(size, number):
    """The permutations of the files of one order: one a row."""
    order = sk.RandomSampler(shuffle="infile", seed=7).order(sk.Layout([size] * number))
    return np.asarray(order).reshape(number, size) - size * np.arange(number)[:, None]


def partial_blocks(size, number):
    """The permutations of the blocks of one order, those of a lane after one another: one a row."""
    sampler = sk.RandomSampler(shuffle="partial", seed=7, partial_size=size, lanes=LANES)
    order = np.asarray(sampler.order(size * number))
    lane_by_lane = np.concatenate([order[lane::LANES] for lane in range(LANES)])
    return lane_by_lane.reshape(number, size) - size * np.arange(number)[:, None]


BLOCKS = pytest.mark.parametrize("blocks", [infile_blocks, partial_blocks])


@BLOCKS
@pytest.mark.parametrize("size", [3, 4, 5])
def test_small_blocks_of_one_order_come_in_all_permutations(blocks, size):
    permutations = blocks(size, PER_PERMUTATION * math.factorial(size))
    assert abs(uniformity.all_permutations(permutations)) < LIMIT


@BLOCKS
def test_a_small_block_tells_nothing_of_the_next_one(blocks):
    assert abs(next_to_one_another(blocks(3, 7200))) < LIMIT


@BLOCKS
@pytest.mark.parametrize(("size", "number"), [(50, 400), (1000, 120), (5000, 60)])
def test_blocks_of_one_size_agree_only_by_chance(blocks, size, number):
    assert abs(uniformity.agreements(blocks(size, number))) < LIMIT


@BLOCKS
@pytest.mark.parametrize(("size", "number"), [(50, 400), (1000, 120), (5000, 60)])
def test_one_key_for_all_blocks_shows_in_agreements(blocks, size, number, monkeypatch):
    monkeypatch.setattr(files.Block, "words", lambda block, key: key.words(word_count(block.size)))
    assert uniformity.agreements(blocks(size, number)) > VISIBLE
    monkeypatch.undo()
    assert abs(uniformity.agreements(blocks(size, number))) < LIMIT


def test_keys_of_lane_plus_block_show_in_agreements(monkeypatch):
    def words(block, key):
        return key.words(word_count(block.size), block.run + block.number)

    monkeypatch.setattr(files.Block, "words", words)
    assert uniformity.agreements(partial_blocks(1000, 120)) > VISIBLE


def test_one_key_for_all_blocks_shows_in_neighbours(monkeypatch):
    monkeypatch.setattr(files.Block, "words", lambda block, key: key.words(word_count(block.size)))
    assert next_to_one_another(infile_blocks(3, 7200)) > VISIBLE


def next_to_one_another(permutations):
    """Scores the pairs of permutations of neighbouring blocks; each block is in one pair."""
    cells = math.factorial(permutations.shape[1])
    ranks = uniformity.ranks(permutations)
    counts = np.bincount(ranks[::2] * cells + ranks[1::2], minlength=cells**2)
    return uniformity.chi_square(counts, counts.sum() / cells**2)


# Orders too long to be read whole: positions here and there, and their neighbours.

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
        here = order[positions]
        count("leading digits", part_of(here, n))
        count("last digits", here % PARTS)
        count("moves", part_of((here - positions) % n, n))
        for distance in distances(n):
            there = order[positions + distance]
            difference = (there - here) % n
            place = f"at distance {distance}"
            count(f"differences {place}, leading", part_of(difference, n))
            count(f"differences {place}, last", difference % PARTS)
            count(f"pairs {place}, leading", part_of(here, n) * PARTS + part_of(there, n), PARTS**2)
            count(f"pairs {place}, last", here % PARTS * PARTS + there % PARTS, PARTS**2)
    return {name: uniformity.chi_square(seen, seen.sum() / seen.size) for name, seen in counts.items()}


@pytest.mark.parametrize("n", HUGE)
def test_samples_of_huge_orders_are_uniform(n):
    assert passes(sampled_scores(n))


@pytest.mark.parametrize("n", HUGE)
def test_three_rounds_show_in_samples_of_huge_orders(n, monkeypatch):
    monkeypatch.setattr(permutation, "ROUNDS", 3)
    assert worst(sampled_scores(n, seeds=[0])) > VISIBLE


def hash_periods(n):
    """Scores whether the left half prefers the residues that the round function prefers.

    A hash of h bits, scaled to a residues, hits some of them once more than others: a wave of frequency 2^h
    modulo a, which h bits barely above a make high.
    """
    modulus, bits = half_modular_domain(n)
    generator = np.random.default_rng(7)
    moves = []
    for seed in range(4):
        positions = generator.integers(0, n, 1_000_000)
        ids = sk.RandomSampler(seed=seed).order(n)[positions]
        moves.append((ids >> bits) - (positions >> bits))
    return {
        f"{h} bits": uniformity.harmonic(np.concatenate(moves) * ((1 << h) % modulus) / modulus)
        for h in (15, 16, 17, 18)
    }


@pytest.mark.parametrize("n", [1_746_000_000, 1_930_000_000, 3_000_000_000])
def test_the_scaling_of_hashes_to_residues_leaves_no_wave(n):
    assert passes(hash_periods(n))


def test_four_rounds_leave_a_wave(monkeypatch):
    monkeypatch.setattr(permutation, "ROUNDS", 4)
    assert hash_periods(1_930_000_000)["17 bits"] > VISIBLE
