"""Orders are indexed like arrays, have an inverse, and are sequences of Python: `in`, `==`, `index`."""

import copy
from itertools import product

import numpy as np
import pytest
import torch

import samplerkit as sk
from samplerkit.order.algebra import Shard, Weave, compose, limited
from samplerkit.order.deal import MAX_SHARDS
from samplerkit.order.files import BlockShuffle, FileSequence
from samplerkit.order.keys import Key
from samplerkit.order.sequences import SCAN_LIMIT, DrawsWithReplacement, LaneWeave, Permuted, Range, Table

KEY = Key(seed=7, epoch=0, depth=0, role="test")
LAYOUT = sk.Layout([3, 0, 5, 4])

EVERY_KIND = {
    "empty range": Range(0, 0),
    "range": Range(4, 12),
    "one permuted": Permuted(1, KEY),
    "permuted": Permuted(12, KEY),
    "permuted by a network": Permuted(5000, KEY),
    "table with duplicates": Table(np.array([5, 3, 5, 0, 9, 9, 9])),
    "empty table": Table(np.zeros(0, dtype=np.int64)),
    "draws": DrawsWithReplacement(40, KEY, population=6),
    "draws by weight": DrawsWithReplacement(40, KEY, cumulative=np.array([2, 2, 7])),
    "composed": compose(Table(np.array([3, 3, 1])), Permuted(12, KEY)),
    "prefix": limited(Permuted(12, KEY), 5),
    "padded shard": Shard(Permuted(12, KEY), 5, 4, padded=True),
    "padded shard of fewer samples than shards": Shard(Permuted(2, KEY), 5, 4, padded=True),
    "shard that begins again twice": Shard(Permuted(5, KEY), 3, 2, length=4),
    "order that begins again twice": Shard(Permuted(5, KEY), 1, 0, length=13),
    "ragged shard": Shard(Permuted(12, KEY), 5, 4, padded=False),
    "weave": Weave([Range(0, 2), Permuted(12, KEY), Range(4, 0), Range(1, 5)]),
    "files": FileSequence(LAYOUT, Permuted(LAYOUT.num_files, KEY).ids_at(np.arange(LAYOUT.num_files))),
    "windows of files": FileSequence(LAYOUT, np.array([2, 0]), np.array([1, 2]), 2),
    "lanes": LaneWeave(12, 5),
    "blocks": BlockShuffle(LAYOUT.starts, None, KEY),
    "blocks in lanes": BlockShuffle(LaneWeave(12, 2).starts, 4, KEY),
}
KINDS = pytest.mark.parametrize("order", EVERY_KIND.values(), ids=EVERY_KIND.keys())

SLICES = [
    slice(None),
    slice(3),
    slice(2, 9),
    slice(-4, None),
    slice(None, -2),
    slice(None, None, -1),
    slice(9, 1, -3),
    slice(1, None, 2),
    slice(5, 2),
    slice(-100, 100, 3),
    slice(10**30, None, -1),
]


@KINDS
def test_a_slice_equals_the_slice_of_the_array(order):
    for part in SLICES:
        ids = order[part]
        assert ids.dtype == np.int64
        np.testing.assert_array_equal(ids, np.asarray(order)[part])


@KINDS
def test_an_array_of_positions_returns_ids_of_its_shape(order):
    generator = np.random.default_rng(7)
    for dtype, shape in product((np.int64, np.int8, np.uint16), ((0,), (7,), (2, 0, 3), (2, 3), ())):
        least = -min(len(order), 128) if np.issubdtype(dtype, np.signedinteger) else 0
        end = min(len(order), np.iinfo(dtype).max)
        if end == 0 and np.prod(shape) > 0:
            continue
        positions = generator.integers(least, end, shape).astype(dtype) if end else np.zeros(shape, dtype)
        ids = order[positions]
        assert ids.dtype == np.int64
        assert ids.shape == shape
        np.testing.assert_array_equal(ids, np.asarray(order)[positions])


def test_an_unsigned_position_above_int64_does_not_wrap_around():
    with pytest.raises(sk.OutOfDatasetError, match=str(2**64 - 1)):
        sk.SequentialSampler().order(5)[np.array([0, 2**64 - 1], dtype=np.uint64)]


def test_results_share_no_memory_with_positions_or_the_order():
    for order in EVERY_KIND.values():
        if not len(order):
            continue
        before = np.asarray(order).copy()
        positions = np.zeros(3, dtype=np.int64)
        order[positions][:] = 99
        order[:][:] = 99
        np.asarray(order)[:] = 99
        assert positions.tolist() == [0, 0, 0]
        np.testing.assert_array_equal(order, before)


def test_a_table_keeps_its_own_copy():
    ids = np.array([1, 2, 3])
    order = Table(ids)
    ids[0] = 9
    assert list(order) == [1, 2, 3]


@KINDS
def test_chunks_concatenate_to_the_order_from_any_start(order):
    ids = np.asarray(order)
    for size, start in product((1, 3, 5000), {0, len(order) // 2, len(order)}):
        chunks = list(order.chunks(size, start=start))
        assert all(chunk.size == size for chunk in chunks[:-1])
        assert all(chunk.size > 0 for chunk in chunks)
        np.testing.assert_array_equal(np.concatenate([ids[:0], *chunks]), ids[start:])


# positions_of


def test_a_scan_that_is_too_long_raises_an_error():
    draws = DrawsWithReplacement(SCAN_LIMIT + 1, KEY, population=10)
    assert 0 <= draws[SCAN_LIMIT] < 10
    with pytest.raises(MemoryError, match=str(SCAN_LIMIT + 1)) as caught:
        draws.positions_of(3)
    assert isinstance(caught.value, sk.InverseTooLargeError)


def test_repr_shows_the_first_ids_and_the_length():
    assert repr(Range(3, 2)) == "Order([3, 4], length 2)"
    assert repr(Range(0, 10**12)) == "Order([0, 1, 2, 3, 4, 5, ...], length 1000000000000)"


@pytest.mark.parametrize(("positions", "outside"), [([-12, 12], 12), ([11, -13, 12], -13)])
def test_the_position_in_the_error_is_the_first_one_outside(positions, outside):
    with pytest.raises(sk.OutOfDatasetError, match=rf"samples, got {outside}$"):
        Range(4, 12)[positions]


# Orders as sequences of Python.


def test_an_order_is_not_equal_to_a_list_or_to_one_made_in_another_way():
    order = sk.SequentialSampler().order(5)
    assert order != [0, 1, 2, 3, 4]
    assert order != sk.SubsetSampler(range(5)).order(5)
    assert order == copy.copy(order)
    own = type("Own", (sk.Order,), dict.fromkeys(("__len__", "ids_at", "locate")))
    assert own() != own()


def test_membership_and_counts_of_an_order_of_two_to_the_sixty_are_arithmetic():
    """A scan of 2^60 positions would take years."""
    order = sk.DistributedSampler(3, 0, seed=7).order(2**60)
    assert order[123_456_789] in order
    assert 2**60 not in order
    assert -1 not in order
    assert order.index(order[99]) == 99
    assert order.count(order[99]) == 1


def test_only_integers_are_in_an_order():
    order = sk.SequentialSampler().order(5)
    inside, outside = (0, np.int32(4), np.array(3), torch.tensor(1)), (5, "0", 0.0, None, True, 2**70, [1])
    assert [value in order for value in (*inside, *outside)] == [True] * 4 + [False] * 7


def test_repeats_are_counted_and_a_missing_id_has_no_index():
    order = sk.SubsetSampler([4, 2, 4]).order(5)
    assert (order.count(4), order.count(3), order.index(4), order.index(2)) == (2, 0, 0, 1)
    with pytest.raises(ValueError, match="id: is not in an order of 3 samples, got 3"):
        order.index(3)


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
