"""Slurm: ranks from its variables, a SIGTERM from the queue, and a requeued job with fewer tasks."""

from __future__ import annotations

import signal
import socket
import time

from tests.trainers.jobs import EXAMPLES, Job
from tests.trainers.ledgers import Ledger
from tests.trainers.restarted import SAMPLES, check_exactly_once

NEEDS = ("scikit-learn",)


def srun(job, folder, tasks):
    """Starts the tasks of a step with the variables that Slurm sets, and those of the batch script."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1])}
    slurm = {"SLURM_JOB_ID": "4711", "SLURM_STEP_ID": "0", "SLURM_NTASKS": str(tasks)}
    slurm |= {"SLURM_STEP_NUM_TASKS": str(tasks), **address}
    script = EXAMPLES / "train_slurm.py"
    return [job.start(script, folder, SLURM_PROCID=str(task), **slurm) for task in range(tasks)]


def wait_for_step(folder, tasks, step, seconds=200):
    end = time.monotonic() + seconds
    ledgers = [folder / f"rank-{task}.jsonl" for task in range(tasks)]
    while not all(path.exists() and len(path.read_text().splitlines()) > step for path in ledgers):
        assert time.monotonic() < end, "the tasks take no steps"
        time.sleep(0.02)


def test_a_job_that_the_queue_stops_goes_on_with_one_task_in_place_of_two(tmp_path):
    with Job(tmp_path) as job:
        tasks = srun(job, tmp_path, 2)
        wait_for_step(tmp_path, 2, step=25)
        for task in tasks:
            task.send_signal(signal.SIGTERM)
        ended = [job.end(task, seconds=100) for task in tasks]
        assert [code for code, _ in ended] == [0, 0], ended
        assert "stopped in epoch 1" in ended[0][1]
        ended = [job.end(task, seconds=200) for task in srun(job, tmp_path, 1)]
    assert [code for code, _ in ended] == [0], ended
    ledger = Ledger.read(tmp_path, SAMPLES)
    assert ledger.ranks == [2, 1]
    assert not ledger.replayed  # the step was finished and saved
    check_exactly_once(ledger, pads=[1, 0])
