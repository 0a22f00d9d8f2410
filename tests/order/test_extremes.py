"""Huge numbers of ranks, huge orders and unusual indices: results are right, or the error is typed."""

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
def test_shards_and_their_inverses_work_for_the_largest_number_of_shards(size, padded):
    for first in (0, size - 1, size, MAX_SHARDS - 1):
        shard = Shard(Range(0, size), MAX_SHARDS, first, padded=padded)
        ids = list(shard)
        assert ids == ([first % size] if padded or first < size else [])
        which, positions = shard.positions_of(np.arange(size))
        assert which.tolist() == ids
        assert positions.tolist() == [0] * len(ids)


def test_tensors_index_like_arrays_and_scalar_tensors_like_integers():
    for index in ([1, 3], [2], [[0], [4]]):
        assert FIVE[torch.tensor(index)].tolist() == index
        assert sorted(FIVE.positions_of(torch.tensor(index))[1].tolist()) == np.ravel(index).tolist()
    assert FIVE[torch.tensor([], dtype=torch.int64)].tolist() == []
    assert FIVE[range(1, 3)].tolist() == [1, 2]
    assert FIVE[torch.tensor(3)] == 3
    assert FIVE.positions_of(torch.tensor(3)).tolist() == [3]
    assert FIVE.count(torch.tensor([3, 9])).tolist() == [1, 0]


def test_ids_of_more_than_64_bits_have_no_positions():
    assert FIVE.positions_of(2**70).tolist() == []
    assert FIVE.positions_of(-(2**70)).tolist() == []
    which, positions = FIVE.positions_of([3, 2**70])
    assert (which.tolist(), positions.tolist()) == ([0], [3])
    assert FIVE.positions_of(np.uint64(2**64 - 1)).tolist() == []


class BrokenRepr:
    """An object whose `repr` fails."""

    def __repr__(self) -> str:
        raise AttributeError("not made yet")


def test_a_value_whose_repr_fails_still_raises_a_typed_error():
    with pytest.raises(sk.DatasetError, match="got <BrokenRepr>"):
        sk.Layout.of(BrokenRepr())
