"""The shuffle modes over files, compared with a reference that makes lists."""

from itertools import pairwise

import numpy as np
import pytest

import samplerkit as sk
from samplerkit.order import permutation
from samplerkit.order.keys import Key
from samplerkit.order.permutation import TABLE_LIMIT
from samplerkit.order.sequences import Permuted
from tests.samplers.dealing import cut, woven

FILE_AWARE = ["files", "infile", "partial"]
MODES = [*FILE_AWARE, "global", "false"]
WITH_POOLS = [*((mode, 1) for mode in MODES), ("partial", 2)]

LAYOUTS = {
    "no file": [],
    "one empty file": [0],
    "one file": [11],
    "two files": [7, 5],
    "empty files between": [0, 4, 0, 0, 9, 1, 0],
    "many files": [5] * 30,
    "files above the table's limit": [4097, 3, 4500],
}


def shuffled(rows, key, index=0, sub_index=0):
    """Shuffles a list by the words of one file or block."""
    n = len(rows)
    places = Permuted(n, key, index, sub_index).ids_at(np.arange(n))
    return [rows[place] for place in places.tolist()]


def in_blocks(run, size, key, lane, first=0):
    """Shuffles each block of a lane's run; the first block may be a shorter one."""
    borders = [0] * (first > 0) + list(range(first, len(run), size))
    blocks = [run[start:end] for start, end in pairwise([*borders, len(run)])]
    return [id for number, block in enumerate(blocks) for id in shuffled(block, key, lane, number)]


def reference(mode, sizes, lanes, partial_size, pools, seed, epoch):
    def key(role):
        return Key(seed, epoch, 0, role)

    starts = [sum(sizes[:file]) for file in range(len(sizes))]
    in_files = [list(range(start, start + size)) for start, size in zip(starts, sizes, strict=True)]
    if mode in {"files", "partial"}:
        in_files = shuffled(in_files, key("files"))
    if mode == "infile":
        in_files = [shuffled(rows, key("infile"), file) for file, rows in enumerate(in_files)]
    sequence = [id for rows in in_files for id in rows]
    if mode == "global":
        sequence = shuffled(sequence, key("global"))
    runs = cut(sequence, lanes)
    if mode == "partial":
        size = partial_size * pools
        runs = [in_blocks(run, size, key("partial"), lane) for lane, run in enumerate(runs)]
        if pools == 2:
            runs = [
                in_blocks(run, size, key("partial-2"), lane, partial_size) for lane, run in enumerate(runs)
            ]
    return woven(runs)


def order_of(mode, sizes, lanes=1, partial_size=10**6, pools=1, seed=7, epoch=3):
    sampler = sk.DistributedSampler(
        1, 0, mode, seed=seed, lanes=lanes, partial_size=partial_size, pools=pools
    )
    return sampler.order(sk.Layout(sizes), epoch)


BLOCKS = {"partial": (1, 4, 5000, 10**6)}
"""Sizes of blocks; modes without blocks are tested with one of any size."""


@pytest.mark.parametrize(
    ("mode", "pools", "partial_size"),
    [(mode, pools, size) for mode, pools in WITH_POOLS for size in BLOCKS.get(mode, (4,))],
)
@pytest.mark.parametrize("sizes", LAYOUTS.values(), ids=LAYOUTS)
def test_every_mode_equals_its_reference(mode, sizes, partial_size, pools):
    # The layout with files above the limit of tables takes long, and longer with thousands of blocks.
    is_large = sum(sizes) > TABLE_LIMIT
    partial_size *= 1000 if is_large else 1
    for lanes in [3] if is_large else [1, 2, 3, 8, 40]:
        order = order_of(mode, sizes, lanes, partial_size, pools)
        expected = reference(mode, sizes, lanes, partial_size, pools, seed=7, epoch=3)
        assert list(order) == expected, lanes
        assert sorted(expected) == list(range(sum(sizes)))
        which, positions = order.positions_of(expected)
        assert which.tolist() == positions.tolist() == list(range(len(expected)))


@pytest.mark.parametrize("mode", FILE_AWARE)
@pytest.mark.parametrize("number", [2, 5, 3000])
def test_blocks_of_32_and_64_bit_words_are_the_same_together_and_one_by_one(mode, number, monkeypatch):
    monkeypatch.setattr(permutation, "CHUNK", 700)
    sizes = [5000, 2**33, 300, 2**31, 2**31 - 1]
    # PARTIAL: three blocks of 64-bit words, and 5284 rows in one of 32-bit words.
    order = order_of(mode, sizes, lanes=1, partial_size=2**32 + 5)
    generator = np.random.default_rng(7)
    places = [*np.cumsum([0, *sizes[:-1]]), len(order) - 5000]
    positions = np.concatenate([place + generator.integers(0, 300, number) for place in places])
    together = order[positions]
    one_by_one = [order[position] for position in positions[:: number // 2 + 1].tolist()]
    assert together[:: number // 2 + 1].tolist() == one_by_one
    np.testing.assert_array_equal(order.positions_of(together)[1], positions)
    assert [order.positions_of(id).tolist() for id in one_by_one[:12]] == [
        [position] for position in positions[:: number // 2 + 1][:12].tolist()
    ]


SIZES = [9, 0, 30, 1, 17, 17, 40]


def test_partial_treats_a_layout_without_files_as_one_file():
    sampler = sk.RandomSampler(shuffle="partial", partial_size=10, seed=7)
    assert list(sampler.order(35)) == list(sampler.order(sk.Layout([35])))


@pytest.mark.parametrize("size", [99, 100, 101])
def test_adaptive_is_global_up_to_its_threshold_and_partial_above(size):
    def ids(mode):
        sampler = sk.RandomSampler(shuffle=mode, seed=7, adaptive_threshold=100, partial_size=10)
        return list(sampler.order(sk.Layout([size - 50, 50])))

    assert ids("adaptive") == ids("global" if size <= 100 else "partial")
    assert ids("global") != ids("partial")


def test_modes_that_ignore_files_have_one_lane_by_default():
    for mode in (True, False):
        plain = list(sk.DistributedSampler(4, 0, mode).undealt_order(20))
        in_lanes = list(sk.DistributedSampler(4, 0, mode, lanes=4).undealt_order(20))
        assert in_lanes == woven(cut(plain, 4))
        assert in_lanes != plain


@pytest.mark.parametrize("mode", FILE_AWARE)
def test_file_aware_modes_have_one_lane_per_shard_by_default(mode):
    layout = sk.Layout(SIZES)
    by_default = list(sk.DistributedSampler(4, 1, mode).undealt_order(layout))
    assert by_default == list(sk.DistributedSampler(4, 1, mode, lanes=4).undealt_order(layout))
    assert by_default != list(sk.DistributedSampler(4, 1, mode, lanes=1).undealt_order(layout))
    constants = sk.RunConstants(lanes=4)
    on_six = sk.DistributedSampler(6, 1, mode).undealt_order(layout, constants=constants)
    assert list(on_six) == by_default
    one_lane = sk.DistributedSampler(6, 1, mode).undealt_order(layout, constants=sk.RunConstants())
    assert list(one_lane) == list(sk.DistributedSampler(1, 0, mode).undealt_order(layout))


@pytest.mark.parametrize(("shuffle", "pools"), [("infile", 1), ("partial", 1), ("partial", 2)])
def test_slices_equal_the_same_positions_in_random_order(shuffle, pools):
    """Ascending rows are cut into one slice per block; others are sorted into blocks."""
    layout = sk.Layout([700, 0, 4100, 2, 3000, 900])
    sampler = sk.RandomSampler(shuffle=shuffle, partial_size=1100, pools=pools, lanes=2, seed=7)
    order = sampler.order(layout)
    mixed = np.random.default_rng(7).permutation(len(order))
    expected = np.empty(len(order), dtype=np.int64)
    expected[mixed] = order[mixed]
    for begin, end, step in [(0, len(order), 1), (300, 7000, 2), (699, 702, 1), (len(order) - 1, 10, -3)]:
        assert np.array_equal(order[begin:end:step], expected[begin:end:step])
    which, positions = order.positions_of(np.sort(expected))
    assert np.array_equal(expected[positions], np.sort(expected)[which])


@pytest.mark.parametrize("pool", [2**61 - 1, 2**61, 2**61 + 1, 2**62])
def test_blocks_as_long_as_the_longest_order_do_not_overflow(pool):
    n = 2**62
    order = sk.RandomSampler(shuffle="partial", seed=7, partial_size=pool, pools=2).order(n)
    positions = np.array([0, 1, pool - 1, min(pool, n - 1), n // 2, n - 2, n - 1])
    ids = order[positions]
    assert ((ids >= 0) & (ids < n)).all()
    np.testing.assert_array_equal(order.positions_of(ids)[1], positions)
