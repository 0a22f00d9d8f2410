"""How many lanes there may be, wherever they are said, and what very many of them cost: nothing."""

from __future__ import annotations

import tracemalloc

import pytest

import samplerkit as sk
from samplerkit.compat.webdataset import WebDataset
from samplerkit.inspect.quality import recommend
from samplerkit.order.arguments import MOST_LANES
from samplerkit.order.modes import Mode

LAYOUT = sk.Layout([5, 0, 9, 3])


def in_a_config(lanes):
    return sk.load_config(
        {
            "dataset": {"kind": "layout", "sizes": [5, 9]},
            "sampler": {"kind": "random", "shuffle": "partial", "lanes": lanes},
        }
    )


PLACES = {
    "random": lambda lanes: sk.RandomSampler(shuffle="partial", lanes=lanes),
    "distributed": lambda lanes: sk.DistributedSampler(2, 0, "files", lanes=lanes),
    "recommend": lambda lanes: recommend(LAYOUT, 4, lanes=lanes),
    "config": in_a_config,
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("lanes", [1, 2, MOST_LANES])
def test_lanes_up_to_the_limit_are_taken(place, lanes):
    PLACES[place](lanes)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    ("lanes", "problem"),
    [(0, "must be positive, got 0"), (-1, "must be positive, got -1")]
    + [(MOST_LANES + more, f"at most 16777216, got {MOST_LANES + more}") for more in (1, 1 << 40)],
)
def test_lanes_beyond_the_limit_are_refused_with_the_limit_and_their_number(place, lanes, problem):
    with pytest.raises(sk.SamplerkitError, match=problem) as caught:
        PLACES[place](lanes)
    assert "lanes" in caught.value.place


def test_the_webdataset_drop_in_has_the_same_limit(tmp_path):
    with sk.TarWriter(f"{tmp_path}/%d.tar") as writer:
        writer.write({"__key__": "a", "cls": 1})
    options = {"shardshuffle": False, "cache_dir": str(tmp_path / "cache")}
    for lanes in (1, MOST_LANES):
        WebDataset(f"{tmp_path}/0.tar", lanes=lanes, **options)
    with pytest.raises(sk.ArgumentRangeError, match=f"lanes: must be at most 16777216, got {MOST_LANES + 1}"):
        WebDataset(f"{tmp_path}/0.tar", lanes=MOST_LANES + 1, **options)


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


def test_an_order_of_no_samples_has_a_lane_all_the_same():
    assert list(sk.RandomSampler(shuffle="partial", lanes=5).order(sk.Layout([0, 0]))) == []


def test_where_nobody_says_lanes_there_are_as_many_as_ranks_and_one_where_files_do_not_count():
    for shuffle, expected in {"files": 6, "infile": 6, "partial": 6, "global": 1, "false": 1}.items():
        mode = Mode(sk.Shuffle.parse(shuffle))
        assert mode.lane_count(LAYOUT, 6) == expected
        assert Mode(sk.Shuffle.parse(shuffle), lanes=3).lane_count(LAYOUT, 6) == 3
