"""Blocks cut into windows: the windows read first cover the same blocks, whatever their length."""

from itertools import product

import numpy as np
import pytest

import samplerkit as sk
from samplerkit.samplers.block import block_sampler_of
from tests.chains import under
from tests.numbers import Numbers

PIECES = (1, 3, 4, 12)
"""Divisors of 12: windows in a block, as `seq_len` goes from the block down to a twelfth of it."""

CHILDREN = {
    "none": lambda: None,
    "sequential": sk.SequentialSampler,
    "partial": lambda: sk.RandomSampler(shuffle="partial", partial_size=3, lanes=2, seed=1),
    "files": lambda: sk.RandomSampler(shuffle="files", seed=1),
    "a subset": lambda: sk.SubsetSampler([3, 1, 3, 0]),
    "a mixture": lambda: sk.MixtureSampler([2, 0, 1], num_samples=11, passes="restart", seed=1),
}


def blocks(pieces, pool=2, child=None, seed=7):
    return under(sk.BlockSampler(pool, seed=seed, windows_per_block=pieces), child)


def first_pieces(order, pieces, count):
    """Which twelfths of which blocks are in the first `count` blocks' worth of windows, and how often."""
    ids = order[: count * pieces]
    begins = ids * (12 // pieces)
    covered = (begins[:, None] + np.arange(12 // pieces)).reshape(-1)
    return sorted(covered.tolist())


@pytest.mark.parametrize("name", CHILDREN)
def test_the_windows_of_the_first_pools_cover_the_same_whatever_their_length(name):
    cases = 0
    for sizes, pool, epoch in product([(5, 0, 3), (7, 1, 4)], (1, 2, 3, 64), (0, 3)):
        whole = CHILDREN[name]() or sk.RandomSampler()
        count = len(whole.order(sk.Layout(sizes), epoch))
        orders = {
            pieces: blocks(pieces, pool, CHILDREN[name]()).order(
                sk.Layout([size * pieces for size in sizes]), epoch
            )
            for pieces in PIECES
        }
        for reached in {*range(0, count, pool), count}:
            seen = [first_pieces(order, pieces, reached) for pieces, order in orders.items()]
            assert all(one == seen[0] for one in seen)
            cases += len(seen)
    print(f"{name}: {cases} prefixes")


def test_within_a_pool_other_windows_come_first():
    """The control: a prefix that ends within a pool is not the same, so that the law says something."""
    orders = [blocks(pieces, 4).order(sk.Layout(40 * pieces)) for pieces in (2, 4)]
    assert first_pieces(orders[0], 2, 2) != first_pieces(orders[1], 4, 2)


@pytest.mark.parametrize("pieces", [1, 4])
@pytest.mark.parametrize("name", CHILDREN)
def test_every_window_of_a_block_comes_as_often_as_the_child_yields_the_block(name, pieces):
    sizes = (5, 0, 3)
    sampler, layout = blocks(pieces, 2, CHILDREN[name]()), sk.Layout([size * pieces for size in sizes])
    order = sampler.order(layout, 1)
    child = CHILDREN[name]() or sk.SequentialSampler()
    counts = np.bincount(child.order(sk.Layout(sizes), 1)[:], minlength=8)
    assert np.bincount(order[:], minlength=8 * pieces).tolist() == counts.repeat(pieces).tolist()
    which, positions = order.positions_of(np.arange(-2, 8 * pieces + 2))
    assert order[positions].tolist() == (which - 2).tolist()
    assert positions.size == len(order)
    assert order.passes_at(np.arange(len(order))).max() == counts.max() - 1


def test_a_dataset_or_its_parts_report_how_many_windows_make_a_block():
    class Windows(Numbers):
        def __init__(self, pieces):
            super().__init__(sk.Layout([2 * pieces, pieces]))
            self.windows_per_block = pieces

    of_dataset = sk.BlockSampler(2, seed=7).order(Windows(4))
    assert of_dataset[:].tolist() == blocks(4).order(Windows(4))[:].tolist()
    tree = sk.TreeDataset({"a": Windows(4), "b": sk.TreeDataset({"c": Windows(4)})})
    assert len(sk.BlockSampler().order(tree)) == 24
    mixed = sk.TreeDataset({"a": Windows(4), "b": Windows(2)})
    mixed.windows_per_block = 2
    assert len(sk.BlockSampler().order(mixed)) == 18
    del mixed.windows_per_block
    with pytest.raises(sk.DatasetError, match="different numbers of windows"):
        sk.BlockSampler().order(mixed)
    with pytest.raises(sk.DatasetError, match="contradict the dataset"):
        blocks(2).order(Windows(4))
    with pytest.raises(sk.DatasetError, match="has no number of windows per block"):
        sk.BlockSampler().order(12)
    alone = Windows(4)
    alone.parts = ["of no tree"]
    del alone.windows_per_block
    assert blocks(4).order(alone)[:].tolist() == of_dataset[:].tolist()


def test_windows_of_a_huge_dataset_cost_nothing_and_more_than_the_limit_are_refused():
    order = blocks(2**10, 64).order(2**60)
    assert order[order.index(123456789)] == 123456789
    with pytest.raises(sk.ArgumentRangeError, match=r"windows: must be at most 2\^62"):
        blocks(2**10, child=sk.RepeatSampler(4)).order(2**61)


def test_a_deal_stands_above_it_and_never_below():
    dealt = under(sk.DistributedSampler(2, 1, shuffle=False), blocks(4))
    assert list(dealt.order(24)) == blocks(4).order(24)[1::2].tolist()
    assert block_sampler_of(dealt) is dealt.get_child()
    assert block_sampler_of(under(sk.DistributedSampler(2, 1), blocks(4))) is None
    assert block_sampler_of(under(sk.RandomSampler(), blocks(4))) is None
