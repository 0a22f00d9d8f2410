"""Draws with replacement and by weight come in the shares that were asked for."""

from __future__ import annotations

import numpy as np

import samplerkit as sk
from samplerkit.order.keys import Key
from samplerkit.order.sequences import DrawsWithReplacement
from tests.order import uniformity
from tests.order.uniformity import LIMIT

VISIBLE = 6.0
"""A control must fail by far: p = 2e-9."""


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


def test_draws_by_a_few_integer_weights_meet_every_border_exactly():
    key = Key(seed=7, epoch=0, depth=0, role="weighted")
    draws = np.asarray(DrawsWithReplacement(70_000, key, cumulative=np.array([0, 2, 2, 7])))
    seen = np.bincount(draws, minlength=4)
    assert seen[[0, 2]].tolist() == [0, 0]
    assert abs(uniformity.chi_square(seen[[1, 3]], np.array([20_000, 50_000]))) < LIMIT


def test_draws_by_weight_without_replacement_follow_the_weights_that_are_left():
    weights = [1.0, 2.0, 5.0]
    trials = 6000
    draws = np.stack(
        [
            np.asarray(sk.WeightedRandomSampler(weights, replacement=False, seed=seed).order(3))
            for seed in range(trials)
        ]
    )
    every = [[a, b, 3 - a - b] for a in range(3) for b in range(3) if a != b]
    chances = [weights[a] / 8 * weights[b] / (8 - weights[a]) for a, b, _ in every]
    expected = np.zeros(6)
    expected[uniformity.ranks(np.array(every))] = chances
    seen = np.bincount(uniformity.ranks(draws), minlength=6)
    assert abs(uniformity.chi_square(seen, expected * trials)) < LIMIT
