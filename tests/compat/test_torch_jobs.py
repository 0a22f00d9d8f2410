"""The drop-ins in real jobs: of two ranks, and in memory."""

from __future__ import annotations

import json

import pytest

from tests.compat.any_samplers import dealt_back
from tests.jobs import ended

RANKS, SAMPLES, EPOCHS = 2, 103, 3


def finished(*command):
    """Runs a command to its end, with all that it starts; gives what it printed."""
    code, printed, errors = ended(*command, seconds=240)
    assert code == 0, errors
    return printed


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    """What each of two ranks read: one launch for all tests."""
    folder = tmp_path_factory.mktemp("job")
    finished("-m", "tests.ranks", str(RANKS), "tests.compat.torch_job", str(folder))
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(RANKS)]


def test_the_usual_wiring_reads_what_it_read_with_torchs_sampler(job):
    for rank in job:
        assert rank["ours"] == rank["torch"]
        assert len(rank["ours"]) == EPOCHS
    assert job[0]["ours"] != job[1]["ours"]


@pytest.mark.parametrize("use", ["train", "evaluate", "merged", "alone"])
def test_the_factory_of_the_documentation_reads_what_it_read_with_torchs_sampler(job, use):
    for rank in job:
        assert rank["factory, ours"][use] == rank["factory, torch"][use]
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


@pytest.mark.parametrize("name", ["random", "subset", "weighted", "weighted, own generator", "batches"])
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


def test_ranks_that_draw_differently_are_told_so(job):
    for rank in job:
        assert "draws" in rank["disagreeing"]


def test_a_rank_that_reads_alone_does_not_wait_for_ever(job):
    assert job[0]["alone"] == [0, 2, 4, 6, 8]


PEAKS = """
import gc, json
from itertools import islice
from pathlib import Path
import torch.utils.data
from samplerkit.compat.torch import DistributedSampler
def memory(name):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(name))
def taken(sampler):
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before = memory("VmRSS")
    read = min(len(sampler), 10**6)  # what it takes all along, it has taken by then
    assert sum(1 for _ in islice(sampler, read)) == read
    return memory("VmHWM") - before
def torchs(dataset, ranks, rank, algorithm):
    return torch.utils.data.DistributedSampler(dataset, ranks, rank)
for kind in (torchs, DistributedSampler):
    taken(kind(range(10), 1, 0, algorithm="torch"))
print(json.dumps({
    f"{name}, {ranks} ranks": taken(kind(range(10**7), ranks, 0, algorithm=algorithm))
    for name, kind, algorithm in [
        ("samplerkit-1", DistributedSampler, "samplerkit-1"),
        ("torch", DistributedSampler, "torch"),
        ("torch's own", torchs, None),
    ]
    for ranks in (8, 1)
}))
"""


def test_ten_million_samples_take_less_memory_than_with_torchs_sampler():
    taken = json.loads(finished("-c", PEAKS))
    print("peak at 10^7 samples:", {kind: f"{peak / 1e6:.0f} MB" for kind, peak in taken.items()})
    for ranks in (8, 1):
        assert 80e6 < taken[f"torch, {ranks} ranks"] < taken[f"torch's own, {ranks} ranks"] / 2
        assert taken[f"samplerkit-1, {ranks} ranks"] < 20e6
