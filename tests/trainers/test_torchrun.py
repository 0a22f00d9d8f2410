"""Plain torch: torchrun, FSDP over a mesh, Slurm's variables, a StatefulDataLoader, and texts in batches."""

import json
import re
import runpy
import signal

import numpy as np
import pytest
import torch

from tests.jobs import reserved_port
from tests.trainers.jobs import EXAMPLES, Job, output_of, run_until_killed, torchrun
from tests.trainers.ledgers import Ledger
from tests.trainers.restarted import SAMPLES, check_exactly_once, check_restarted_in_mid_epoch
from tests.waiting import wait_until

NEEDS = ("torchdata", "scikit-learn")
DDP = EXAMPLES / "train_ddp.py"


def test_a_ddp_run_resumes_with_as_many_ranks_with_fewer_and_with_more(tmp_path):
    """Two agents stand for two nodes; a worker of the second one is killed, and later the whole node.

    The rendezvous is on the first one. What torchrun could not do by itself comes last: a third rank.
    """
    rendezvous = ["--rdzv-backend=c10d", "--local-addr=127.0.0.1"]
    agent = ["-m", "torch.distributed.run", "--nnodes=1:2", "--nproc-per-node=1", "--max-restarts=3"]
    agent += rendezvous
    patience = "last_call_timeout=5,keep_alive_interval=1,keep_alive_max_attempt=6"
    script = [DDP, tmp_path]
    # The rendezvous decides which rank the second agent gets.
    kills = "0:8,1:8,0:33:agent,1:33:agent"
    with reserved_port() as port, Job(tmp_path) as job:
        agent.append(f"--rdzv-endpoint=127.0.0.1:{port}")
        first = job.start(*agent, f"--rdzv-conf={patience},is_host=true", *script)
        job.start(*agent, f"--rdzv-conf={patience},is_host=false", *script, DIGITS_KILL=kills)
        code, printed = job.end(first, seconds=300)
    assert code == 0, printed
    assert len(list(tmp_path.glob("killed-*"))) == 2
    printed = output_of(tmp_path, *torchrun(3, *script, "--epochs=3"))
    assert "continues in epoch 1, step 45, on 3 ranks" in printed

    ledger = Ledger.read(tmp_path, SAMPLES)
    print(f"ranks {ledger.ranks}, received again {sum(len(line.ids) for line in ledger.replayed)}")
    # A node that joins late makes the other one begin alone, and again.
    assert ledger.ranks[-3:] == [2, 1, 3]
    assert len(ledger.ranks) >= 4
    assert {line.step for line in ledger.replayed} >= {5, 6, 7, 8, 30, 31, 32, 33, 45}
    # Two ranks need a pad, one does not; nor do three, of the 29 samples left and of 1437.
    check_exactly_once(ledger, pads=[1, -29 % 3, 0])


def test_ranks_of_a_replica_get_the_same_batches_and_another_mesh_resumes(tmp_path):
    script = [EXAMPLES / "train_fsdp.py", tmp_path]
    run_until_killed(tmp_path, *torchrun(4, *script), rank=3, step=33)
    printed = output_of(tmp_path, *torchrun(2, *script, "--tensor-parallel=1"))
    assert "continues in epoch 1, step 30, as 2 x 1" in printed

    # Before: ranks 0 and 1 hold one replica, 2 and 3 the other one. After: one replica a rank.
    everyone = Ledger.read(tmp_path, SAMPLES)
    assert everyone.ranks == [4, 2]
    received = {(line.start, line.rank, line.step): line.ids for line in everyone.kept}
    for step in range(30):
        assert received[0, 0, step] == received[0, 1, step]
        assert received[0, 2, step] == received[0, 3, step]
        assert not set(received[0, 0, step]) & set(received[0, 2, step])

    one_rank_each = everyone.only(lambda line: line.start > 0 or line.rank in {0, 2})
    check_exactly_once(one_rank_each, pads=[1, 1])
    # The negative control: all ranks together received everything twice as long as a replica had two.
    assert everyone.repeated[0] == SAMPLES + 2


def srun(job, folder, tasks, port):
    """Starts the tasks of a step with the variables that Slurm sets, and those of the batch script."""
    address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    slurm = {"SLURM_JOB_ID": "4711", "SLURM_STEP_ID": "0", "SLURM_NTASKS": str(tasks)}
    slurm |= {"SLURM_STEP_NUM_TASKS": str(tasks), **address}
    script = EXAMPLES / "train_slurm.py"
    return [job.start(script, folder, SLURM_PROCID=str(task), **slurm) for task in range(tasks)]


def has_reached(step, ledgers):
    return all(path.exists() and len(path.read_text().splitlines()) > step for path in ledgers)


def test_a_job_that_the_queue_stops_resumes_with_one_task_in_place_of_two(tmp_path):
    with reserved_port() as port, reserved_port() as other, Job(tmp_path) as job:
        tasks = srun(job, tmp_path, 2, port)
        wait_until(lambda: has_reached(25, [tmp_path / f"rank-{task}.jsonl" for task in range(2)]), 200)
        for task in tasks:
            task.send_signal(signal.SIGTERM)
        ended = [job.end(task, seconds=100) for task in tasks]
        assert [code for code, _ in ended] == [0, 0], ended
        assert "stopped in epoch 1" in ended[0][1]
        ended = [job.end(task, seconds=200) for task in srun(job, tmp_path, 1, other)]
    assert [code for code, _ in ended] == [0], ended
    ledger = Ledger.read(tmp_path, SAMPLES)
    assert ledger.ranks == [2, 1]
    assert not ledger.replayed  # the step was finished and saved
    check_exactly_once(ledger, pads=[1, 0])


def test_a_run_is_restarted_and_resumes_in_mid_epoch(tmp_path):
    assert "continues in epoch 1, step 30" in check_restarted_in_mid_epoch(tmp_path, "train_torchdata.py")


TEXTS = EXAMPLES / "train_text.py"
PRINTED = re.compile(
    r"epoch \d: (\d+) steps, (\d+) letters, (\d+) with padding, \S+ s, loss on new texts (\S+)"
)


@pytest.fixture
def texts():
    """The module that the examples share."""
    return runpy.run_path(str(EXAMPLES / "texts.py"))


def losses(folder, rank):
    """The losses of a rank, by step; those of a killed run and of its resume are the same."""
    by_step = {}
    for line in (folder / f"losses-{rank}.jsonl").read_text().splitlines():
        step, loss = json.loads(line)
        assert by_step.setdefault(step, loss) == loss
    return by_step


def check_batches(ledger, texts, ranks):
    """Each text once an epoch, no batch above the budget, and as many steps for each rank."""
    lengths = texts["Texts"]().lengths
    assert ledger.ranks == ranks
    assert ledger.lost == ledger.repeated == [0 for _ in ledger.epochs]
    assert max(len(line.ids) * lengths[list(line.ids)].max() for line in ledger.kept) <= 2048
    assert len({len(line.ids) for line in ledger.kept}) > 10


def test_a_killed_run_resumes_with_the_same_losses_and_then_on_one_rank(tmp_path, texts):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    printed = output_of(tmp_path, *torchrun(2, TEXTS, whole))
    resumed = output_of(tmp_path, *torchrun(2, TEXTS, killed, restarts=1), DIGITS_KILL="1:22")
    assert "continues in epoch 1, step 20, on 2 ranks" in resumed
    for rank in range(2):
        assert losses(killed, rank) == losses(whole, rank)
    check_batches(Ledger.read(killed, 1200), texts, [2, 2])

    steps, letters, padded, loss = PRINTED.findall(printed)[-1]
    assert int(steps) == 32
    assert int(letters) == texts["Texts"]().lengths.sum()
    assert int(letters) / int(padded) > 0.9
    assert float(loss) < 3.1

    # The loss of all ranks together is that of one rank that reads all of their texts.
    first = [line.ids for line in Ledger.read(whole, 1200).kept if line.step == 0]
    ids = np.concatenate(first)
    batch = texts["COLLATE"]([texts["Texts"]()[id] for id in ids.tolist()])
    expected = texts["loss_sum"](texts["Reader"]()(batch["letters"]), batch["targets"]) / sum(
        texts["Texts"]().lengths[ids]
    )
    together = sum(losses(whole, rank)[0] for rank in range(2)) / 2
    torch.testing.assert_close(torch.tensor(together), expected.detach(), rtol=1e-5, atol=1e-5)

    # Its last checkpoint is in the middle of epoch 1.
    printed = output_of(tmp_path, *torchrun(1, TEXTS, killed, "--epochs=3"))
    assert "continues in epoch 1, step 30, on 1 ranks" in printed
    check_batches(Ledger.read(killed, 1200), texts, [2, 2, 1])
