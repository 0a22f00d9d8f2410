"""Which rank of how many: what is searched, in which order, and which settings contradict each other."""

import pytest
import torch.distributed
from torch.distributed.device_mesh import init_device_mesh

import samplerkit as sk
from samplerkit.loading.world import detect_world
from tests.loading.disagreeing_ranks import readers

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
    with pytest.raises(sk.ArgumentRangeError, match="contradicts"):
        sampler.order(8, world=sk.World(2, 1))


@pytest.mark.parametrize("kind", readers(None, None))
def test_a_reader_with_a_length_from_before_the_process_group_refuses_another_job(kind, monkeypatch, request):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    reader, fresh = (readers(None, None)[kind]() for _ in range(2))
    before = len(reader)
    request.getfixturevalue("process_group")
    with pytest.raises(sk.WorldError, match=r"now it says World\(num_shards=1, shard_id=0\)"):
        next(iter(reader))
    assert len(list(fresh)) == 2 * before
