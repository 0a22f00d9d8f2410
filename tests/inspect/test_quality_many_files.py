"""Recommendations over many files: what is counted once for speed is what was counted file by file."""

from __future__ import annotations

import sys

import numpy as np
import pytest

import samplerkit as sk
from samplerkit.inspect.quality.closed import Blocks, closed_figures
from samplerkit.inspect.quality.order_source import Plain
from samplerkit.inspect.quality.recommend import held, recommend
from samplerkit.order.modes import Mode, Shuffle

SIZES = {
    "equal": [100] * 24,
    "unequal": [3, 250, 1, 40, 99, 180, 7, 64, 64, 120, 31, 200],
    "with empty files": [0, 50, 0, 0, 70, 20, 90, 0, 33, 61],
}


@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES.keys())
@pytest.mark.parametrize("lanes", [1, 3])
@pytest.mark.parametrize("block", [7, 50, 100, 150])
def test_the_most_files_of_a_block_are_those_that_a_count_finds(sizes, lanes, block):
    layout = sk.Layout(sizes)
    plain = Plain(Mode(Shuffle.PARTIAL, block), layout, lanes, 0)
    most = 0
    for epoch in range(4):
        file = np.repeat(np.arange(len(sizes)), plain.file_sizes(epoch))
        for start, end in zip(plain.lane_starts, plain.lane_starts[1:], strict=False):
            pieces = [file[at : min(at + block, end)] for at in range(start, end, block)]
            most = max(most, *(np.unique(piece).size for piece in pieces))
    assert held(plain)[0] == most


@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES.keys())
def test_cells_begin_where_files_lanes_and_blocks_do(sizes):
    file_sizes, lane_starts = np.array(sizes), np.array([0, sum(sizes) // 3, sum(sizes)])
    blocks = Blocks.of(file_sizes, lane_starts, 30)
    begun = set(np.append(0, np.cumsum(file_sizes)).tolist()) | set(lane_starts.tolist())
    assert begun <= set(blocks.starts.tolist())
    assert (np.diff(blocks.starts) > 0).all()


@pytest.mark.parametrize("spread", [0, 100], ids=["equal", "unequal"])
def test_many_files_are_advised_on_from_less_and_to_the_same_effect(spread, monkeypatch):
    sizes = 200 + np.random.default_rng(1).integers(0, spread + 1, 300)
    full = recommend(sk.Layout(sizes), 64, lanes=4)
    for module in ("closed", "recommend"):  # of which one is a function too
        monkeypatch.setattr(sys.modules[f"samplerkit.inspect.quality.{module}"], "MANY_FILES", 20)
    less = recommend(sk.Layout(sizes), 64, lanes=4)
    assert str(less.chosen)[:20] == str(full.chosen)[:20]
    for one, other in zip(less.candidates, full.candidates, strict=True):
        assert (one.shuffle, one.partial_size, one.files) == (other.shuffle, other.partial_size, other.files)
        assert one.mixing == pytest.approx(other.mixing, abs=0.02)


@pytest.mark.parametrize("lanes", [1, 4])
@pytest.mark.parametrize("block", [250, 1000, 10_000])
def test_the_first_blocks_of_very_many_files_mix_as_all_of_them(lanes, block, monkeypatch):
    layout = sk.Layout(np.random.default_rng(2).integers(50, 150, 20_000))
    plain = Plain(Mode(Shuffle.PARTIAL, block), layout, lanes, 5)
    windows = (256, 2048, 16_384)
    few = closed_figures(plain, windows, ("file_mixing", "spread"))
    assert plain.first_blocks(0, block)[1][-1] < len(layout)
    monkeypatch.setattr("samplerkit.inspect.quality.order_source.MOST_FILES", 20_000)
    all_files = closed_figures(plain, windows, ("file_mixing", "spread"))
    for name, estimate in few.items():
        assert estimate.values == pytest.approx(all_files[name].values, abs=0.002)
