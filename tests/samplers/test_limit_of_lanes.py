"""How many lanes there may be, wherever they are said, and what very many of them cost: nothing."""

from __future__ import annotations

import tracemalloc

import pytest

import samplerkit as sk
from samplerkit.compat.webdataset import WebDataset
from samplerkit.inspect.quality import recommend
from samplerkit.order.arguments import MOST_LANES

LAYOUT = sk.Layout([5, 0, 9, 3])


def in_a_config(lanes):
    sampler = {"kind": "random", "shuffle": "partial", "lanes": lanes}
    return sk.load_config({"dataset": {"kind": "layout", "sizes": [5, 9]}, "sampler": sampler})


def in_webdataset(lanes):
    with sk.TarWriter("%d.tar", overwrite=True) as writer:
        writer.write({"__key__": "a", "cls": 1})
    return WebDataset("0.tar", lanes=lanes, shardshuffle=False, cache_dir="cache")


PLACES = {
    "random": lambda lanes: sk.RandomSampler(shuffle="partial", lanes=lanes),
    "distributed": lambda lanes: sk.DistributedSampler(2, 0, "files", lanes=lanes),
    "recommend": lambda lanes: recommend(LAYOUT, 4, lanes=lanes),
    "config": in_a_config,
    "webdataset": in_webdataset,
}


@pytest.mark.parametrize("say", PLACES.values(), ids=PLACES)
def test_lanes_up_to_the_limit_are_taken_and_others_refused_with_it(say, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for lanes in (1, 2, MOST_LANES):
        say(lanes)
    for lanes, problem in ((0, "be positive"), (-1, "be positive"), (MOST_LANES + 1, "be at most 16777216")):
        with pytest.raises(sk.SamplerkitError, match=f"must {problem}, got {lanes}") as caught:
            say(lanes)
        assert "lanes" in caught.value.place


@pytest.mark.parametrize("mode", ["files", "infile", "partial"])
@pytest.mark.parametrize("size", [1, 16, 17])
def test_more_lanes_than_samples_are_as_many_as_samples(mode, size):
    layout = sk.Layout([size])
    few = sk.RandomSampler(shuffle=mode, partial_size=3, seed=1, lanes=size).order(layout)
    for lanes in (size + 1, MOST_LANES):
        peaks = []
        for _ in range(2):  # tables of the process, which double at some moment, do so in one of them
            tracemalloc.start()
            many = sk.RandomSampler(shuffle=mode, partial_size=3, seed=1, lanes=lanes).order(layout)
            assert many[:].tolist() == few[:].tolist()
            peaks.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
        assert min(peaks) < 1 << 20
