"""One rank of three, that begins to iterate in several jobs, in some of which the last rank differs.

Run three at once, as `python -m tests.loading.disagreeing_ranks RANK FOLDER PORT`. It prints as JSON, for
each case, the samples that the rank received or the error that its loop raised, and how long that took. In
the last case, rank 0, which holds the store of the job, is killed before the others begin.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch.distributed

import samplerkit as sk
from tests.numbers import Numbers

RANKS, SAMPLES = 3, 24
PATIENCE = 10_000
"""Seconds of the time limit, which nobody waits for."""


def loader(*, seed: int = 0, sizes: tuple[int, ...] = (12, 12), step: int = 2, batch: int = 2) -> sk.Loader:
    """A loader that goes on from a checkpoint of one rank after some steps."""
    sampler, layout = sk.RandomSampler(seed=seed), sk.Layout(sizes)
    saved = sk.Loader(layout, sampler, batch_size=3, world=sk.World(1, 0)).state_dict(step=step)
    again = sk.Loader(Numbers(layout), sampler, batch_size=batch, agreement_seconds=PATIENCE)
    again.load_state_dict(saved)
    return again


CASES: dict[str, dict[str, Any]] = {
    "same": {},
    "position": {"step": 3},
    "seed": {"seed": 1},
    "dataset": {"sizes": (11, 13)},
    "batch_size": {"batch": 4},
}


def outcome(work: Callable[[], list[int]]) -> dict[str, Any]:
    start, result = time.monotonic(), {}
    try:
        result["received"] = work()
    except Exception as error:  # the test says which one it must be
        result["error"], result["message"] = type(error).__name__, str(error)
    return {**result, "seconds": time.monotonic() - start}


def received(rank: int, **differs: Any) -> list[int]:
    differing = loader(**(differs if rank == RANKS - 1 else {}))
    return [sample for batch in differing for sample in batch.tolist()]


def main() -> None:
    """Runs all cases, each in a process group of its own."""
    rank, folder, port = int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
    outcomes = {}
    for name, differs in CASES.items():
        torch.distributed.init_process_group(
            "gloo", init_method=f"file://{folder / name}", rank=rank, world_size=RANKS
        )
        outcomes[name] = outcome(lambda differs=differs: received(rank, **differs))
        torch.distributed.barrier()
        torch.distributed.destroy_process_group()
    if rank == 0:
        print(json.dumps(outcomes), flush=True)  # it prints nothing later
    torch.distributed.init_process_group(
        "gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=RANKS
    )
    (folder / f"ready-{rank}").touch()
    while rank == 0:
        if all((folder / f"ready-{other}").exists() for other in range(RANKS)):
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(0.01)
    outcomes["killed"] = outcome(lambda: received(rank))
    print(json.dumps(outcomes), flush=True)
    os._exit(0)  # gloo's threads still want the rank that was killed


if __name__ == "__main__":
    main()
