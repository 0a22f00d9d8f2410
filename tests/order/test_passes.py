"""Orders made of orders equal their definitions; the pass of each position over its source, by counting."""

import itertools
from collections import Counter
from itertools import zip_longest

import numpy as np
import pytest

import samplerkit as sk
from samplerkit.order.algebra import Composed, Shard, Weave, compose, limited
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


LABELS = [0, 2, 1, 1, 0, 2, 2, 1, 0, 0]
REPEATING = {
    "a list with repeats": sk.SubsetSampler([3, 1, 3, 3, 1, 0]),
    "a shuffled one": sk.SubsetRandomSampler([3, 1, 3, 3, 1, 0], seed=1),
    "classes": sk.PKSampler(7, labels=LABELS, seed=1),
    "an iterable": sk.IterSampler([5, 5, 1]),
    "a mixture": sk.MixtureSampler([3, 1], num_samples=95, passes="restart", seed=1),
    "a mixture of repeats": sk.MixtureSampler(
        {"a": sk.RepeatSampler(3), "b": None}, 95, weights={"a": 9, "b": 1}, passes="restart", seed=1
    ),
    "a mixture in storage order": sk.MixtureSampler([1, 3], stop="all", passes="restart", shuffle=False),
    "a mixture of one source": sk.MixtureSampler({"a": None}, 9, passes="restart", lanes=1),
    "a repeat": sk.RepeatSampler(3, num_samples=28),
    "factors": sk.RepeatFactorSampler(np.arange(10) * 0.7, seed=1),
    "without replacement": sk.RandomSampler(seed=1),
    "files": sk.RandomSampler(shuffle="files", seed=1, lanes=3),
    "windows": sk.WindowSampler(2),
    "blocks": sk.BlockSampler(2, seed=1, windows_per_block=2),
    "a fold": sk.FoldSampler(3, 0),
}


def passes_of(order):
    return order.passes_at(np.arange(len(order))).tolist()


def counted(ids):
    """How often each id occurs before."""
    seen = Counter()
    passes = []
    for id in ids:
        passes.append(seen[id])
        seen[id] += 1
    return passes


@pytest.mark.parametrize("sampler", REPEATING.values(), ids=REPEATING.keys())
def test_a_pass_is_how_often_the_sample_came_before(sampler):
    order = sampler.order(sk.Layout.tree({"a": 4, "b": 6}), epoch=1)
    # Shuffled repeats of a list keep the numbers that they have in the list.
    passes, expected = passes_of(order), counted(order)
    if "shuffled" in repr(sampler) or isinstance(sampler, sk.SubsetRandomSampler):
        passes, expected = sorted(zip(order, passes, strict=True)), sorted(zip(order, expected, strict=True))
    assert passes == expected
    exact = 1 + max(counted(order))
    # A mixture has an upper bound only: the reads of a source are estimated by its share, and not counted.
    assert order.num_passes >= exact if isinstance(sampler, sk.MixtureSampler) else order.num_passes == exact


def random_order(random, depth):
    """A random order, with its ids, its passes and their number, by counting."""
    size = int(random.integers(1, 9))
    if depth == 0:
        ids = random.integers(0, 4, size)
        return Table(ids), ids.tolist(), counted(ids.tolist()), 1 + max(counted(ids.tolist()))
    order, ids, passes, count = random_order(random, depth - 1)
    kind = random.choice(["compose", "prefix", "shard", "weave", "cycled", "slice"])
    if kind == "compose":
        outer = random.integers(0, len(ids), size).tolist()
        turns, times = counted(outer), 1 + max(counted(outer))
        passes = [turn * count + passes[q] for turn, q in zip(turns, outer, strict=True)]
        return compose(Table(np.array(outer)), order), [ids[q] for q in outer], passes, times * count
    if kind == "weave":
        other, others_ids, others, times = random_order(random, depth - 1)
        both = zip_longest(zip(ids, passes, strict=True), zip(others_ids, others, strict=True))
        pairs = [pair for row in both for pair in row if pair is not None]
        return Weave([order, other]), *map(list, zip(*pairs, strict=True)), max(count, times)
    places = {
        "prefix": range(min(size, len(ids))),
        "slice": range(1, len(ids)),
        "shard": [place % len(ids) for place in range(1, len(ids) + 1, 2)],
        "cycled": [place % len(ids) for place in range(size)],
    }[kind]
    view = {
        "prefix": lambda: limited(order, size),
        "slice": lambda: compose(Range(1, len(ids) - 1), order),
        "shard": lambda: Shard(order, 2, 1, padded=True),
        "cycled": lambda: Shard(order, 1, 0, length=size),
    }[kind]()
    if len(places) == 0:
        return random_order(random, depth)
    return view, [ids[p] for p in places], [passes[p] for p in places], count


def test_passes_of_random_orders_equal_counting():
    random = np.random.default_rng(7)
    for depth in range(5):
        for _ in range(200):
            order, ids, passes, count = random_order(random, depth)
            assert list(order) == ids
            assert passes_of(order) == passes
            assert order.num_passes == count


def test_draws_with_replacement_are_all_in_pass_0():
    order = sk.RandomSampler(replacement=True, seed=1).order(9)
    assert len(set(order)) < 9
    assert passes_of(order) == [0] * 9


def test_passes_of_long_mixtures_need_no_scan():
    order = sk.MixtureSampler([3, 1], num_samples=2**50, seed=1).order(sk.Layout([100, 2**40]))
    positions = np.arange(2**50 - 40, 2**50)
    passes, is_small = order.passes_at(positions), order.ids_at(positions) < 100
    draws = 3 * 2**48
    # A lane is within 2 * 4.52 * ceil(log16 n) samples of its share, which is fewer than two passes.
    assert np.abs(passes[is_small] - draws // 100).max() <= 2
    assert np.abs(passes[~is_small] - 2**48 // 2**40).max() <= 1
    assert passes.max() < order.num_passes <= draws // 100 + 5
