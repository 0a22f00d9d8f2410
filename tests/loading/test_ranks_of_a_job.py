"""Ranks of a job whose orders do not fit together get an error that names them; others read all shards."""

import json
import subprocess
from collections import Counter

import pytest

import samplerkit as sk
from tests.jobs import reserved_port
from tests.loading.disagreeing_ranks import RESUMED, SAMPLES, readers
from tests.programs import Program
from tests.ranks import job

READERS = sorted(readers(0, 2))


RANKS = 4


@pytest.fixture(scope="module")
def reports(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ranks")
    code, _, errors = job(RANKS, "tests.loading.disagreeing_ranks", folder, seconds=240)
    assert code == 0, errors
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(RANKS)]


@pytest.mark.parametrize("reader", READERS)
def test_ranks_that_leave_shards_unread_get_an_error_with_any_reader(reports, reader):
    unread = {"a fixed shard": range(1, RANKS), "twice the ranks": range(RANKS, 2 * RANKS)}
    for numbers, shards in unread.items():
        named = f"no rank reads shards {', '.join(map(str, shards))} of"
        for outcomes in reports:
            assert named in outcomes[f"{reader}, {numbers}"].get("error", "no error"), numbers


@pytest.mark.parametrize("reader", READERS)
def test_ranks_that_read_all_shards_continue_even_if_some_share_one(reports, reader):
    for numbers, each in {"the job's": 1, "the ranks backwards": 1, "two ranks a shard": 2}.items():
        read = [outcomes[f"{reader}, {numbers}"] for outcomes in reports]
        counts = Counter(sample for outcome in read for sample in outcome["samples"])
        assert counts == dict.fromkeys(range(SAMPLES), each), numbers


@pytest.mark.parametrize("field", [name for name in RESUMED if name != "same"])
def test_a_rank_that_loads_another_state_is_named_on_every_rank_when_iteration_begins(reports, field):
    last = len(reports) - 1
    for rank, outcomes in enumerate(reports):
        message = outcomes[field].get("error", "no error")
        assert f"rank {rank} has {{'{field}': " in message
        assert f"rank {last} with {{'{field}': " in message or rank == last


def test_ranks_that_make_different_edits_are_refused_by_name_before_the_step(reports):
    for rank, outcomes in enumerate(reports):
        outcome = outcomes["edits"]
        assert len(outcome["samples"]) == 2
        assert f"rank {rank} has" in outcome["error"]
        assert f"skip={1 + rank}" in outcome["error"]


def test_ranks_that_load_the_same_state_read_the_rest_exactly_once(reports):
    received = Counter(sample for outcomes in reports for sample in outcomes["same"]["samples"])
    assert received == Counter(sk.RandomSampler(seed=0).order(24)[8:].tolist())


def test_ranks_share_the_ids_of_torchs_sampler_and_unseeded_ids_are_an_error(reports):
    shared = [sample for outcomes in reports for sample in outcomes["torch's sampler"]["samples"]]
    assert sorted(shared) == [*range(SAMPLES)]
    assert all("ids" in outcomes["the system"]["error"] for outcomes in reports)


KILLED = """
import os, sys, time
import torch.distributed
import samplerkit as sk

rank, address = int(sys.argv[1]), f"tcp://127.0.0.1:{sys.argv[2]}"
torch.distributed.init_process_group("gloo", init_method=address, rank=rank, world_size=3)
print("ready", flush=True)
sys.stdin.read() if rank else time.sleep(600)
try:
    list(sk.Loader(range(24), sk.RandomSampler(), batch_size=2, agreement_seconds=10_000))
except torch.distributed.DistNetworkError:
    print("lost", flush=True)
os._exit(0)  # gloo's threads still want the rank that was killed
"""


def test_a_job_whose_first_rank_is_dead_is_an_error_and_no_hang():
    """It holds the job's store, and is killed before the others begin to iterate."""
    with reserved_port() as port:
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        ranks = [Program(["-c", KILLED, str(rank), str(port)], **pipes) for rank in range(3)]
        try:
            assert [rank.stdout.readline() for rank in ranks] == ["ready\n"] * 3
            ranks[0].kill()
            printed = [rank.communicate(timeout=240) for rank in ranks]
        finally:
            for rank in ranks:
                rank.kill()
    assert [out for out, _ in printed] == ["", "lost\n", "lost\n"], printed
