"""Slurm: ranks from its variables, a SIGTERM from the queue, and a requeued job with fewer tasks."""

from __future__ import annotations

import signal

from tests.jobs import reserved_port
from tests.trainers.jobs import EXAMPLES, Job
from tests.trainers.ledgers import Ledger
from tests.trainers.restarted import SAMPLES, check_exactly_once
from tests.waiting import wait_until

NEEDS = ("scikit-learn",)


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
