"""The ranks of a job: which rank this process is, and ranks that do not read all shards."""

import json
import subprocess
from collections import Counter

import pytest
import torch.distributed
from torch.distributed.device_mesh import init_device_mesh

import samplerkit as sk
from samplerkit.loading.world import detect_world
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


SLURM = {"SLURM_PROCID": "2", "SLURM_NTASKS": "4", "SLURM_STEP_ID": "0"}


@pytest.fixture
def process_group(tmp_path):
    store = torch.distributed.FileStore(str(tmp_path / "store"), 1)
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


@pytest.mark.parametrize(
    ("environment", "world"),
    [
        ({}, sk.World(1, 0)),
        ({"RANK": "3", "WORLD_SIZE": "8"}, sk.World(8, 3)),
        (SLURM, sk.World(4, 2)),
        ({"SLURM_PROCID": "0", "SLURM_JOB_ID": "7"}, sk.World()),  # a batch script without --ntasks
        ({**SLURM, "SLURM_STEP_NUM_TASKS": "3"}, sk.World(3, 2)),
        ({**SLURM, "RANK": "0", "WORLD_SIZE": "2"}, sk.World(2, 0)),
        ({"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"}, sk.World(2, 1)),
        ({"MV2_COMM_WORLD_RANK": "1", "MV2_COMM_WORLD_SIZE": "2"}, sk.World(2, 1)),
        ({"PMI_RANK": "1", "PMI_SIZE": "2"}, sk.World(2, 1)),
        # mpirun within a Slurm job starts one daemon a node by srun, whose variables its ranks have too.
        ({**SLURM, "OMPI_COMM_WORLD_RANK": "9", "OMPI_COMM_WORLD_SIZE": "16"}, sk.World(16, 9)),
        (
            {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2", "RANK": "0", "WORLD_SIZE": "1"},
            sk.World(),
        ),
        ({"PMI_RANK": "1"}, sk.World()),  # some launchers set no number of ranks
    ],
)
def test_the_environment_is_searched_for_torchrun_first_then_mpi_then_slurm(environment, world):
    assert detect_world(environment) == world


def test_a_process_outside_of_a_slurm_step_is_warned_once_for_any_number_of_loaders(monkeypatch, caplog):
    for name, value in {"SLURM_PROCID": "5", "SLURM_NTASKS": "19"}.items():
        monkeypatch.setenv(name, value)
    for name in ("RANK", "WORLD_SIZE", "SLURM_STEP_ID", "SLURM_STEP_NUM_TASKS"):
        monkeypatch.delenv(name, raising=False)
    for _ in range(3):
        assert sk.Loader(range(40), sk.RandomSampler(), batch_size=1).world == sk.World(19, 5)
    assert [message.count("World(1, 0)") for message in caplog.messages] == [1]


@pytest.mark.usefixtures("process_group")
def test_a_process_group_comes_before_the_environment():
    assert detect_world({"RANK": "3", "WORLD_SIZE": "8"}) == sk.World(1, 0)


@pytest.mark.usefixtures("process_group")
def test_a_mesh_gives_the_ranks_of_its_data_dimension():
    mesh = init_device_mesh("cpu", (1, 1), mesh_dim_names=("dp", "tp"))
    assert sk.World.from_mesh(mesh, "dp") == sk.World(1, 0)
    with pytest.raises(sk.WorldError, match="pp"):
        sk.World.from_mesh(mesh, "pp")


def test_the_job_is_detected_at_first_use_and_not_at_construction(monkeypatch):
    sampler = sk.DistributedSampler(shuffle=False)
    bridge = sk.TorchSampler(sampler, 8)
    loader = sk.Loader(range(8), sampler, batch_size=1)
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert list(sampler.order(8)) == list(bridge) == [1, 3, 5, 7]
    assert loader.world == sk.World(2, 1)


def test_explicit_numbers_come_before_the_job_and_must_not_be_contradicted(monkeypatch):
    monkeypatch.setenv("RANK", "broken")
    monkeypatch.setenv("WORLD_SIZE", "2")
    sampler = sk.DistributedSampler(4, 3, shuffle=False)
    assert list(sk.TorchSampler(sampler, 8)) == [3, 7]
    with pytest.raises(sk.ArgumentRangeError, match="differs from that of the distributed sampler"):
        sampler.order(8, world=sk.World(2, 1))


@pytest.mark.parametrize("kind", readers(None, None))
def test_a_reader_with_a_length_from_before_the_process_group_refuses_another_job(kind, monkeypatch, request):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    reader, fresh = (readers(None, None)[kind]() for _ in range(2))
    before = len(reader)
    request.getfixturevalue("process_group")
    with pytest.raises(sk.WorldError, match=r"now it is World\(num_shards=1, shard_id=0\)"):
        next(iter(reader))
    assert len(list(fresh)) == 2 * before
