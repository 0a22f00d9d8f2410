"""What an order shares with every Python sequence: membership, counting, equality."""

from __future__ import annotations

import copy

import numpy as np
import pytest

import samplerkit as sk


@pytest.mark.parametrize(
    "sampler",
    [
        sk.RandomSampler(seed=1),
        sk.RandomSampler(seed=1, shuffle="files"),
        sk.RandomSampler(seed=1, shuffle="infile"),
        sk.RandomSampler(seed=1, shuffle="partial", partial_size=7),
        sk.RandomSampler(True, seed=1),
        sk.WeightedRandomSampler(np.arange(1, 31), seed=1),
        sk.MixtureSampler([3, 1], seed=1),
        sk.DistributedSampler(2, 1, seed=1),
    ],
    ids=repr,
)
def test_orders_of_other_epochs_and_lengths_are_not_equal(sampler):
    layout = sk.Layout([20, 10])
    assert sampler.order(layout, 0) == sampler.order(layout, 0)
    # Two files have but two sequences, and so epochs may well be equal: not all of them.
    assert any(sampler.order(layout, 0) != sampler.order(layout, epoch) for epoch in range(1, 9))
    assert sampler.order(layout, 0) != sampler.order(sk.Layout([20, 13]), 0)


def test_an_order_is_not_equal_to_a_list_nor_to_one_that_was_made_in_another_way():
    order = sk.SequentialSampler().order(5)
    assert order != [0, 1, 2, 3, 4]
    assert order != sk.SubsetSampler(range(5)).order(5)
    assert order == copy.copy(order)


def test_membership_and_counts_of_an_order_of_two_to_the_sixty_are_arithmetic():
    """A scan of 2^60 positions would never end."""
    order = sk.DistributedSampler(3, 0, seed=7).order(2**60)
    assert order[123_456_789] in order
    assert 2**60 not in order
    assert -1 not in order
    assert order.index(order[99]) == 99
    assert order.count(order[99]) == 1


def test_what_is_no_integer_is_in_no_order():
    order = sk.SequentialSampler().order(5)
    assert [value in order for value in (0, np.int32(4), 5, "0", 0.0, None, True, 2**70)] == [
        True,
        True,
        *[False] * 6,
    ]


def test_repeats_are_counted_and_a_missing_id_has_no_index():
    order = sk.SubsetSampler([4, 2, 4]).order(5)
    assert (order.count(4), order.count(3), order.index(4), order.index(2)) == (2, 0, 0, 1)
    with pytest.raises(ValueError, match="id: is not in an order of 3 samples, got 3"):
        order.index(3)
