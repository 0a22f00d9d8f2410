"""Threads that share shards: none waits for ever, and each gets its samples."""

from __future__ import annotations

import sys

import numpy as np
import pytest

import samplerkit as sk
from samplerkit.storage.ahead.batches import BatchesAhead, SampleBatch
from tests.storage.crowd import all_done
from tests.storage.tar.remote_shards import EACH, NUMBERS, SHARDS, write_shards

KEYS = [f"{number:05}" for number in NUMBERS]
LENGTHS = [EACH] * SHARDS


@pytest.fixture(name="often")
def fixture_often():
    """Threads take turns as often as can be."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.parametrize("max_shards", [1, 2])
def test_the_keys_of_many_shards_are_found_with_few_of_them_open(tmp_path, max_shards):
    pattern = write_shards(tmp_path / "data", index=False)
    for attempt in range(3):
        cache = tmp_path / f"cache-{attempt}"
        with sk.TarDataset(pattern, lengths=LENGTHS, max_shards=max_shards, cache=cache) as dataset:
            found = []
            all_done(lambda dataset=dataset, found=found: found.extend(dataset.keys()))
            assert found == KEYS


@pytest.mark.parametrize("is_told", [False, True])
@pytest.mark.parametrize("max_shards", [1, 2])
def test_threads_read_shards_of_which_few_may_be_open(tmp_path, max_shards, is_told):
    pattern = write_shards(tmp_path / "data")
    rng = np.random.default_rng(max_shards)
    plans = [rng.integers(0, len(KEYS), (12, 3)) for _ in range(3)]
    with sk.TarDataset(pattern, lengths=LENGTHS, max_shards=max_shards, cache=tmp_path / "cache") as dataset:
        if is_told:
            dataset.expect(iter(plans[0]))

        def read(plan):
            for ids in plan:
                found = [sample["__key__"] for sample in dataset.__getitems__(ids)]
                assert found == [KEYS[id] for id in ids.tolist()]

        all_done(*(lambda plan=plan: read(plan) for plan in plans))
        assert dataset.stats.peak_files <= max_shards


@pytest.mark.usefixtures("often")
def test_threads_that_want_the_batch_that_was_read_ahead_all_get_it():
    plan = [np.arange(first, first + 3) for first in range(40)]
    for _ in range(20):
        batches = BatchesAhead(lambda ids: SampleBatch(ids.tolist(), ids.nbytes), iter(plan))

        def read(batches=batches):
            for ids in plan:
                assert batches.read(ids) == ids.tolist()

        all_done(read, read)
        batches.close()


def test_threads_read_the_same_archives_at_the_same_time(tmp_path):
    with sk.TarWriter(f"{tmp_path}/%02d.tar", samples_per_shard=250) as writer:
        for number in range(1000):
            writer.write({"__key__": f"{number:05}", "txt": str(number)})
    dataset = sk.TarDataset(f"{tmp_path}/*.tar", cache=tmp_path, progress=False)

    def read(seed):
        for _ in range(60):
            ids = np.random.default_rng(seed).permutation(1000)
            found = [(sample["__key__"], sample["txt"]) for sample in dataset.__getitems__(ids)]
            assert found == [(f"{id:05}", b"%d" % id) for id in ids.tolist()]
            assert dataset[int(ids[0])]["__key__"] == f"{ids[0]:05}"

    all_done(lambda: read(0), lambda: read(1))
