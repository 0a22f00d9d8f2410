"""The job of the demo: processes that train, whichever way they end, and the events that rank 0 reports."""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Callable, Generator
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from torch.multiprocessing.spawn import ProcessException, start_processes

from samplerkit.errors import SamplerkitError

_LOG_LINES = 30


class LaunchError(SamplerkitError, RuntimeError):
    """The job that a command launched failed; `report` is what the job said of it."""

    def __init__(self, place: str, problem: str, *, report: str) -> None:
        super().__init__(place, problem)
        self.report = report


def run_job(num_ranks: int, scratch: Path, train: Callable[..., None], *arguments: Any) -> Generator[Any]:
    """Runs a function in each rank, and yields what rank 0 reports, as it reports it.

    Closing the iterator ends the job, so close it (`contextlib.closing`) where an exception may come between.

    Args:
        num_ranks: processes of the job.
        scratch: for logs, and the file by which the ranks meet; the caller deletes it.
        train: takes a function that reports, the device, and the arguments.
        arguments: of it.

    Raises:
        LaunchError: a rank failed.
    """
    scratch.mkdir(parents=True, exist_ok=True)
    events = get_context("spawn").SimpleQueue()
    # That it ends the other ranks when one fails is no news.
    logging.getLogger(ProcessException.__module__).setLevel(logging.ERROR)
    work = (events, num_ranks, scratch, train, arguments)
    job: Any = start_processes(_rank, work, num_ranks, join=False)  # type: ignore[no-untyped-call]  # torch's
    try:
        is_done = False
        while not is_done:
            is_done = job.join(0.1)
            while not events.empty():
                yield events.get()
    except ProcessException as error:
        log = (scratch / f"rank-{error.error_index}.log").read_text(encoding="utf-8", errors="replace")
        report = "\n".join([*log.splitlines()[-_LOG_LINES:], error.msg])
        problem = "failed; its traceback is above"
        raise LaunchError(f"rank {error.error_index}", problem, report=report) from None
    finally:
        for process, file in zip(job.processes, job.error_files, strict=True):
            process.kill()
            process.join()
            Path(file).unlink(missing_ok=True)


def _rank(
    rank: int,
    events: Any,
    num_ranks: int,
    scratch: Path,
    train: Callable[..., None],
    arguments: tuple[Any, ...],
) -> None:
    """Does the work of one rank."""
    # What libraries print is not to stand in what the command prints.
    log = os.open(scratch / f"rank-{rank}.log", os.O_WRONLY | os.O_CREAT)
    for stream in (1, 2):
        os.dup2(log, stream)
    tempfile.tempdir = str(scratch)  # what libraries leave goes with the rest
    torch.set_num_threads(1)  # the ranks share the machine
    gpus = torch.cuda.device_count()
    device = torch.device("cuda", rank % gpus) if gpus else torch.device("cpu")
    # On loopback, which works without a network and a host name that resolves.
    os.environ["GLOO_SOCKET_IFNAME"] = "lo0" if os.uname().sysname == "Darwin" else "lo"
    meeting = f"file://{scratch / 'store'}"
    torch.distributed.init_process_group("gloo", meeting, rank=rank, world_size=num_ranks)
    train(events.put if rank == 0 else lambda _: None, device, *arguments)
    torch.distributed.destroy_process_group()
