"""webdataset's ImageNet example in a job of 2 ranks with 8 workers each: ours and webdataset itself."""

from __future__ import annotations

import json
from collections import Counter
from itertools import pairwise

import pytest

from tests import ranks
from tests.compat.webdataset_job import SAMPLES
from tests.compat.webdataset_shards import once_each, write_images

RANKS, SHARDS = 2, 5


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    """What each rank received: one job for all tests."""
    folder = tmp_path_factory.mktemp("job")
    pattern = write_images(folder, SHARDS, SAMPLES)
    code, _, errors = ranks.job(RANKS, "tests.compat.webdataset_job", folder, pattern, seconds=300)
    assert code == 0, errors
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(RANKS)]


def epochs(job, name):
    """Of each epoch, the ids that all ranks received, in order."""
    return [
        [id for rank in epoch for batch in rank for id in batch]
        for epoch in zip(*(results[name] for results in job), strict=True)
    ]


def steps(job, name):
    """Of each epoch, the number of batches of each rank."""
    return [[len(rank) for rank in epoch] for epoch in zip(*(results[name] for results in job), strict=True)]


def test_every_epoch_of_the_example_is_complete_shuffled_and_another_one(job):
    read = epochs(job, "ours")
    assert [Counter(epoch) for epoch in read] == [once_each(SAMPLES)] * 2
    assert read[0] != read[1]
    for epoch in read:
        ascending = sum(b == a + 1 for a, b in pairwise(epoch))
        assert ascending < 20, "neighbours on disk are no neighbours any more"
    by_rank = [Counter(id for batch in results["ours"][0] for id in batch) for results in job]
    assert [sum(counts.values()) for counts in by_rank] == [SAMPLES // 2] * 2


def test_equal_steps_are_equal_with_workers(job):
    assert all(len(set(of_ranks)) == 1 for of_ranks in steps(job, "ours, equal steps"))
    assert [Counter(epoch) for epoch in epochs(job, "ours, equal steps")] == [once_each(SAMPLES)]


def told(job, name):
    """In a line for each epoch, what was lost and repeated; or the error in place of epochs."""
    if isinstance(job[0][name], str):
        yield f"{name}: {job[0][name]}"
        return
    for number, epoch in enumerate(epochs(job, name)):
        counts = Counter(epoch)
        lost, repeated = SAMPLES - len(counts), counts.total() - len(counts)
        assert counts.total() == SAMPLES - lost + repeated
        yield (
            f"{name}: epoch {number}: {lost} of {SAMPLES} samples lost, {repeated} repeated, "
            f"batches of the ranks {steps(job, name)[number]}"
        )


def test_webdataset_is_counted_in_the_same_job(job):
    lines = [line for name in job[0] for line in told(job, name)]
    print("", *lines, sep="\n")
    assert sum("0 of 200 samples lost, 0 repeated" in line for line in lines if line.startswith("ours")) == 3
    # Each of the 16 workers draws shards for itself: that all samples come once is out of the question.
    assert all(len(set(epoch)) < SAMPLES for epoch in epochs(job, "webdataset, resampled"))
    # 5 shards on 2 ranks: by shard, one of them reads half as much again as the other.
    by_shard = [sum(map(len, results["webdataset, split by node, no check"][0])) for results in job]
    assert sorted(by_shard) == [2 * SAMPLES // SHARDS, 3 * SAMPLES // SHARDS]
