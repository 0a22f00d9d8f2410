"""In a job, a shard that no rank reads is an error, and one that several ranks share is none."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from tests.loading.sharded_ranks import SAMPLES, readers
from tests.ranks import job

READERS = sorted(readers(0, 2))


@pytest.fixture(scope="module", params=[2, 4])
def told(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("ranks")
    code, _, errors = job(request.param, "tests.loading.sharded_ranks", folder, seconds=240)
    assert code == 0, errors
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(request.param)]


@pytest.mark.parametrize("reader", READERS)
def test_ranks_that_leave_shards_unread_are_told_whatever_reads_them(told, reader):
    ranks = len(told)
    unread = {"a fixed shard": range(1, ranks), "twice the ranks": range(ranks, 2 * ranks)}
    if ranks == 2:
        unread["two ranks a shard"] = range(1, 2)
    for numbers, shards in unread.items():
        named = f"no rank reads shard{'s' * (len(shards) > 1)} {', '.join(map(str, shards))} of"
        for outcomes in told:
            assert named in outcomes[f"{reader}, {numbers}"].get("error", "it went on"), numbers


@pytest.mark.parametrize("reader", READERS)
def test_ranks_that_read_all_shards_go_on_also_where_some_share_one(told, reader):
    times = {"the job's": 1, "the ranks backwards": 1} | ({"two ranks a shard": 2} if len(told) == 4 else {})
    for numbers, each in times.items():
        read = [outcomes[f"{reader}, {numbers}"] for outcomes in told]
        counts = Counter(sample for outcome in read for sample in outcome["samples"])
        assert counts == dict.fromkeys(range(SAMPLES), each), numbers
