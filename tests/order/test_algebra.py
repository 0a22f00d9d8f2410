"""Orders made of orders equal their definitions, at small sizes and at the largest ones."""

import itertools

import numpy as np
import pytest

from samplerkit.order.algebra import Composed, Shard, compose, limited
from samplerkit.order.intervals import groups
from samplerkit.order.keys import scaled
from samplerkit.order.sequences import LaneWeave, Permuted, Range, Table
from samplerkit.samplers.chain import Context


def permuted(n, seed=0):
    return Permuted(n, Context(epoch=0).key(seed, "test"))


def test_composition_is_associative_and_flat():
    a, b, c, d = Table(np.array([2, 0])), Table(np.array([4, 4, 1])), permuted(5), Range(3, 5)
    left = compose(compose(compose(a, b), c), d)
    right = compose(a, compose(b, compose(c, d)))
    assert list(left) == list(right) == [d[c[b[a[p]]]] for p in range(2)]
    assert isinstance(left, Composed)
    assert left.parts == right.parts == (a, b, c, d)


def test_composing_with_an_identity_range_returns_the_other_order():
    order = permuted(5)
    assert compose(order, Range(0, 5)) is order
    assert compose(Range(0, 5), order) is order
    assert compose(Range(0, 3), order) is not order
    assert list(compose(Range(0, 3), order)) == list(order)[:3]
    assert list(compose(Range(1, 4), order)) == list(order)[1:]


def test_no_limit_or_a_large_one_returns_the_same_order():
    order = permuted(5)
    assert limited(order, None) is order
    assert limited(order, 5) is order
    assert list(limited(order, 0)) == []
    assert list(limited(order, 3)) == list(order)[:3]


def test_shards_of_a_huge_order_read_its_last_position():
    n, width = 2**62, 7
    order = permuted(n)
    last = n - 1
    shard = Shard(order, width, last % width, padded=True)
    assert shard[-1] == order[last]
    wrapped = Shard(order, width, (last + 1) % width, padded=True)
    assert len(wrapped) == len(shard)
    assert wrapped[-1] == order[0]
    assert 0 in wrapped.positions_of(order[(last + 1) % width])


def test_lanes_of_a_huge_order_are_woven_and_unwoven():
    for rows, count in itertools.product((2**62, 2**62 - 1, 2**40 + 3), (1, 3, 2**24)):
        weave = LaneWeave(rows, count)
        positions = np.array([0, 1, count, rows // 2, rows - 1])
        inverse = weave.positions_of(weave[positions])[1]
        assert inverse.tolist() == positions.tolist()


@pytest.mark.parametrize("labels", [[], [3], [5, 3, 5], [-7, 2**40, -7, 0], [65535, 0], [65536, 0]])
def test_groups_are_the_indices_of_each_label(labels):
    indices = {label: at.tolist() for label, at in groups(np.array(labels, dtype=np.int64))}
    assert indices == {label: [i for i, other in enumerate(labels) if other == label] for label in labels}


@pytest.mark.parametrize(
    "total", [1, 2, 3, 10**6, 2**31 - 1, 2**32, 2**32 + 1, 10**12 + 39, 2**62 + 12345, 2**63]
)
def test_words_are_scaled_exactly_as_by_python_integers(total):
    borders = [0, 1, 2**31, 2**32 - 1, 2**32, 2**63, 2**64 - 2**32, 2**64 - 1]
    words = np.random.default_rng(total % 1000).integers(0, 2**64, 500, dtype=np.uint64)
    words = np.append(words, np.array(borders, dtype=np.uint64))
    assert scaled(words, total).tolist() == [word * total >> 64 for word in words.tolist()]
