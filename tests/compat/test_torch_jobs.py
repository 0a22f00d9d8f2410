"""The drop-ins in a real job of two ranks."""

import json
from collections import Counter

import pytest

from tests import ranks
from tests.compat.any_samplers import dealt_back
from tests.compat.partially_shuffle.folders import all_ranks, make_dataset, repeats
from tests.compat.webdataset.shards import once_each, write

RANKS, SAMPLES, EPOCHS = 2, 103, 3
FILE_SIZES = [20, 31, 7, 16] * 4


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("job")


@pytest.fixture(scope="module")
def job(folder):
    """What each of two ranks read: one launch for all tests."""
    make_dataset(folder / "files", FILE_SIZES)
    write(folder, 5, 51)
    code, _, errors = ranks.job(RANKS, "tests.compat.torch_job", folder, seconds=240)
    assert code == 0, errors
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(RANKS)]


@pytest.mark.parametrize("use", ["train", "evaluate", "merged", "alone"])
def test_the_documented_factory_reads_the_same_as_with_torchs_sampler(job, use):
    for rank in job:
        assert rank["factory, ours"][use] == rank["factory, torch"][use]
        assert len(rank["factory, ours"][use]) == EPOCHS
    read = [[sum(batches, []) for batches in rank["factory, ours"][use]] for rank in job]
    if use == "alone":
        assert read == [[list(range(SAMPLES))] * EPOCHS] * RANKS
        return
    for shares in zip(*read, strict=True):
        together = dealt_back(shares)
        if use == "evaluate":
            assert together == [*range(SAMPLES), 0]
        elif use == "train":
            assert sorted(together[:SAMPLES]) == list(range(SAMPLES))
        else:
            assert sorted(together) == sorted([*range(SAMPLES)] * 4)


@pytest.mark.parametrize("name", ["weighted, own generator", "batches"])
def test_any_sampler_is_dealt_from_the_same_draws(job, name):
    wholes = [rank["whole"][name] for rank in job]
    assert wholes[0] == wholes[1]
    for epoch, whole in enumerate(wholes[0]):
        shares = [rank["dealt"][name][epoch] for rank in job]
        assert dealt_back(shares) == [*whole, *whole[: len(whole) % RANKS]]
    assert wholes[0][0] != wholes[0][1]


def test_without_the_drop_in_the_ranks_draw_differently(job):
    """The negative control: the process-wide generators of the ranks do differ."""
    assert job[0]["plain"] != job[1]["plain"]


def test_ranks_that_draw_differently_or_begin_at_other_positions_are_an_error(job):
    for rank in job:
        assert "draws" in rank["other draws"]
        assert "{'position': " in rank["other position"]


def test_a_rank_that_reads_alone_does_not_wait_for_ever(job):
    assert job[0]["alone"] == [0, 2, 4, 6, 8]


def test_ranks_read_files_as_one_process_does_and_another_order_of_files_is_an_error(job, folder):
    files = make_dataset(folder / "files", FILE_SIZES)
    read = [rank["files"] for rank in job]
    assert [(one["ranks"], one["rank"]) for one in read] == [(2, 0), (2, 1)]
    assert [one["items"] for one in read] == all_ranks(files, 2, epoch=2, seed=3)
    assert repeats([one["items"] for one in read], sum(FILE_SIZES)) == 0
    for number, one in enumerate(read):
        assert f"rank {number} has" in one["disagreement"]
        assert "dataset" in one["disagreement"]


def test_ranks_and_workers_read_samples_of_shards_once_or_in_equal_numbers(job):
    for epoch in range(2):
        first, second = (rank["shards"]["epochs"][epoch] for rank in job)
        assert Counter(first + second) == once_each(51)
        assert (len(first), len(second)) == (26, 25)
    assert len({tuple(epoch) for rank in job for epoch in rank["shards"]["epochs"]}) == 4
    first, second = (rank["shards"]["equal"] for rank in job)
    assert len(first) == len(second) == 26
    assert {*first, *second} == {*range(51)}
