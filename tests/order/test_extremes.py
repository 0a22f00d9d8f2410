"""Huge numbers of ranks, huge orders and odd indices: right or refused by a typed error, and at once."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import samplerkit as sk
from samplerkit.order.algebra import Shard
from samplerkit.order.deal import MAX_SHARDS
from samplerkit.order.sequences import Range

FIVE = Range(0, 5)


@pytest.mark.parametrize("size", [1, 1000])
@pytest.mark.parametrize("padded", [True, False])
def test_the_inverse_of_a_shard_costs_nothing_for_the_most_shards(size, padded):
    for first in (0, size - 1, size, MAX_SHARDS - 1):
        shard = Shard(Range(0, size), MAX_SHARDS, first, padded=padded)
        ids = list(shard)
        assert ids == ([first % size] if padded or first < size else [])
        which, positions = shard.positions_of(np.arange(size))
        assert which.tolist() == ids
        assert positions.tolist() == [0] * len(ids)


def test_a_tensor_of_positions_is_an_array_of_them_and_one_without_dimensions_an_integer():
    for index in ([1, 3], [2], [[0], [4]]):
        assert FIVE[torch.tensor(index)].tolist() == index
        assert sorted(FIVE.positions_of(torch.tensor(index))[1].tolist()) == np.ravel(index).tolist()
    assert FIVE[torch.tensor([], dtype=torch.int64)].tolist() == []
    assert FIVE[range(1, 3)].tolist() == [1, 2]
    assert FIVE[torch.tensor(3)] == 3
    assert FIVE.positions_of(torch.tensor(3)).tolist() == [3]
    assert FIVE.count(torch.tensor([3, 9])).tolist() == [1, 0]


def test_an_id_beyond_all_integers_stands_nowhere():
    assert FIVE.positions_of(2**70).tolist() == []
    assert FIVE.positions_of(-(2**70)).tolist() == []
    which, positions = FIVE.positions_of([3, 2**70])
    assert (which.tolist(), positions.tolist()) == ([0], [3])
    assert FIVE.positions_of(np.uint64(2**64 - 1)).tolist() == []


class Unspeakable:
    """An object that cannot be shown."""

    def __repr__(self) -> str:
        raise AttributeError("not made yet")


def test_a_value_that_cannot_be_shown_is_refused_all_the_same():
    with pytest.raises(sk.DatasetError, match="got <Unspeakable>"):
        sk.Layout.of(Unspeakable())
