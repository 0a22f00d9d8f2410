"""Ranks that share lanes, as after a resume on others: shards are fetched, and warnings are right."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import samplerkit as sk
from samplerkit.inspect.download_costs import downloads_of_parts
from samplerkit.inspect.plan import plan
from samplerkit.inspect.view import RunView
from samplerkit.storage.tar.fetch_costs import stretch_of
from tests.storage.tar.remote_shards import as_list
from tests.storage.tar.server import Server

SHARDS, EACH = 32, 60
SAMPLER = sk.DistributedSampler(shuffle="partial", partial_size=2 * EACH, seed=7)
MIB = 1 << 20


def resumed(dataset, before, world, steps, batch_size=16, **options):
    """A loader of a job that began with other ranks."""
    begun = sk.Loader(dataset, SAMPLER, batch_size=batch_size, world=sk.World(before, 0))
    loader = sk.Loader(dataset, SAMPLER, batch_size=batch_size, world=world, **options)
    loader.load_state_dict(begun.state_dict(step=steps))
    return loader


def stretch(loader, shard_bytes):
    layout = sk.Layout([EACH] * SHARDS)
    shards = (layout.file_of(loader.ids(step)) for step in range(loader.steps_left))
    return stretch_of(shards, layout.sizes, SHARDS, 1, shard_bytes)


@pytest.mark.parametrize(("before", "now"), [(2, 3), (3, 2), (2, 5), (4, 6), (3, 4)])
@pytest.mark.parametrize("share", [0.0, 0.5, 0.9], ids=["start", "middle", "near the end"])
def test_ranks_that_share_lanes_fetch_shards_of_small_samples(before, now, share):
    layout = sk.Layout([EACH] * SHARDS)
    for rank in range(now):
        steps = int(share * SHARDS * EACH / 4 / before)
        loader = resumed(layout, before, sk.World(now, rank), steps, batch_size=4)
        found = stretch(loader, EACH * 1000)
        assert (found.is_whole, found.is_local) == (True, True), rank


def test_the_last_samples_of_an_epoch_tell_nothing_of_it():
    for rank in range(3):
        loader = resumed(sk.Layout([EACH] * SHARDS), 2, sk.World(3, rank), 59)
        assert loader.steps_left == 1
        found = stretch(loader, EACH * MIB)
        assert (found.is_whole, found.is_short) == (False, True)


@pytest.mark.parametrize("megabytes", [1, 4])
def test_ranks_of_which_each_wants_little_of_every_shard_read_large_samples_one_by_one(megabytes):
    """One in eight samples of a shard: fetching all of it would take eight times the bytes."""
    for rank in range(16):
        loader = resumed(sk.Layout([EACH] * SHARDS), 2, sk.World(16, rank), 3, batch_size=2)
        found = stretch(loader, EACH * megabytes * MIB)
        assert (found.is_whole, found.is_local, found.is_short) == (False, True, False), rank


def is_of_costs(warning):
    return "single samples" in str(warning.message)


@pytest.mark.parametrize("shuffle", ["partial", "global"])
def test_after_two_ranks_came_three_and_only_global_is_warned_of(tmp_path, shuffle):
    with sk.TarWriter(f"{tmp_path}/%02d.tar", samples_per_shard=EACH) as writer:
        for number in range(SHARDS * EACH):
            writer.write({"__key__": f"{number:05}", "txt": "." * 100})
    sampler = SAMPLER if shuffle == "partial" else sk.DistributedSampler(seed=7)
    with Server(tmp_path) as server:
        urls = f"{server.url}/{{00..{SHARDS - 1}}}.tar"
        for rank in range(3):
            with (
                sk.TarDataset(urls, lengths=[EACH] * SHARDS, cache=tmp_path / f"cache-{rank}") as dataset,
                warnings.catch_warnings(record=True) as caught,
            ):
                warnings.simplefilter("always")
                begun = sk.Loader(dataset, sampler, batch_size=16, world=sk.World(2, 0))
                loader = sk.Loader(
                    dataset, sampler, batch_size=16, world=sk.World(3, rank), collate_fn=as_list
                )
                loader.load_state_dict(begun.state_dict(step=5))
                batches = iter(loader)
                for _ in range(4):
                    next(batches)
                loader.close()
                is_global = shuffle == "global"
                assert any(map(is_of_costs, caught)) == is_global, rank
                assert (dataset.stats.downloads > 0) != is_global, rank
                assert plan(loader).transfers.way == ("ranges" if is_global else "whole")


class Remote:
    """Looks like remote shards of some size."""

    is_remote = True
    fetch = "auto"

    def __init__(self, sample_bytes):
        self.layout = sk.Layout([EACH] * SHARDS)
        self._shard_bytes = EACH * sample_bytes

    def __len__(self):
        return len(self.layout)

    def shard_bytes(self):
        return np.full(SHARDS, self._shard_bytes)


@pytest.mark.parametrize(
    ("sample_bytes", "way", "advice"),
    [
        (1000, "whole", ""),
        (MIB // 2, "ranges", "several ranks read each file, say lanes: 16"),
        (9 * MIB, "ranges", ""),
    ],
)
def test_the_plan_of_ranks_that_share_lanes_says_what_they_will_do(sample_bytes, way, advice):
    loader = resumed(Remote(sample_bytes), 2, sk.World(16, 0), 3, batch_size=2)
    found = downloads_of_parts(RunView.of(loader), 0)[""]
    assert found.way == way
    assert found.advice.endswith(advice)
    assert bool(found.advice) == bool(advice)
