"""The pass over its source of each position, compared with counting, in all kinds of orders."""

from collections import Counter
from itertools import zip_longest

import numpy as np
import pytest

import samplerkit as sk
from samplerkit.order.algebra import Shard, Weave, compose, limited
from samplerkit.order.sequences import Range, Table

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
