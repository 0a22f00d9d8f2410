"""The program that torchrun starts for each rank of the demo."""

from __future__ import annotations

import os
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed

# Before the process group exists: DDP imports this module, and ten default arguments in it take hold of the
# group if there is one. Then destroying it does not end gloo's threads, and one that lets go of a tensor
# while Python ends aborts the process (one run in ten or so).
import torch.distributed.nn.functional

from samplerkit.cli.demo.configs import MODES
from samplerkit.cli.demo.events import tell
from samplerkit.cli.demo.train import Job, train


def train_each_mode(job: Job, num_seeds: int) -> None:
    """Trains with each mode and seed in turn, as one rank of the job."""
    for mode in MODES:
        for seed in range(num_seeds):
            training = train(job, mode, seed)
            if job.rank == 0:
                tell(training.to_event())


def run_rank(reports: Path, folder: Path, work: Callable[[Job], None]) -> None:
    """Does the work of one rank of a job.

    Args:
        reports: gets the traceback if this rank fails.
        folder: holds the data.
        work: what to do once the process group is there.
    """
    threading.Thread(target=_end_with_the_command, daemon=True).start()
    torch.set_num_threads(1)  # the ranks share the machine
    rank, local_rank = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
    try:
        backend, device = _place(local_rank)
        torch.distributed.init_process_group(backend)
        work(Job(folder, rank, device))
        torch.distributed.destroy_process_group()
    except Exception:
        (reports / f"rank-{rank}.txt").write_text(traceback.format_exc(), encoding="utf-8")
        raise


def _place(local_rank: int) -> tuple[str, torch.device]:
    """A GPU for each rank, or one for all (which nccl refuses), or none."""
    gpus = torch.cuda.device_count()
    if gpus > local_rank and gpus >= int(os.environ["LOCAL_WORLD_SIZE"]):
        torch.cuda.set_device(local_rank)
        return "nccl", torch.device("cuda", local_rank)
    return "gloo", torch.device("cuda", 0) if gpus else torch.device("cpu")


def _end_with_the_command() -> None:
    """Ends this process when the command is gone, however it went: then its end of our stdin is closed.

    torchrun gives each rank a session of its own, so that no signal to a process group reaches it.
    """
    while os.read(0, 1):
        pass
    os._exit(1)


if __name__ == "__main__":
    run_rank(Path(sys.argv[1]), Path(sys.argv[2]), lambda job: train_each_mode(job, int(sys.argv[3])))
