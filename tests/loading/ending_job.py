"""A process that iterates with workers and ends in some way.

Run as `python -m tests.loading.ending_job END OPTIONS`; OPTIONS are those of the loader, as JSON. It prints
the process ids of its workers, then `read` when the end may come, and last what it received and its state.
"""

import faulthandler
import json
import os
import signal
import sys
import time
from typing import Any

import torch

import samplerkit as sk
from tests.numbers import Made

SIZE, BATCH_SIZE, STEPS = 10_000, 2, 5


def slow(index: int) -> torch.Tensor:
    """A sample that takes a while, so that workers are at work when the end comes."""
    time.sleep(0.02)
    return torch.full((4096,), index)


left_behind: list[Any] = []
"""The iterator, which ends only with the interpreter."""


def leave(*_: Any) -> None:
    sys.exit(0)


def main(end: str, options: dict[str, Any]) -> None:
    """Reads until the end comes."""
    if end == "SIGTERM with a handler":
        faulthandler.dump_traceback_later(20)  # prints where it hangs
        signal.signal(signal.SIGTERM, leave)
    options = {"batch_size": BATCH_SIZE, "num_workers": 2, **options}
    loader = sk.Loader(Made(SIZE, slow), sk.SequentialSampler(), **options)
    batches: list[torch.Tensor] = []
    iteration = iter(loader)
    if end == "the end of the script":
        left_behind.append(iteration)
    try:
        for batch in iteration:
            # One call: Python runs signal handlers after calls, so the batch is noted before one can raise.
            batches.append(batch)
            if loader.step == 1:
                print(json.dumps(loader.worker_pids), flush=True)
                if end == "SIGKILL of the parent of a fork" and os.fork() == 0:
                    os.close(sys.stdout.fileno())  # who reads it waits for its end
                    time.sleep(120)
                    os._exit(0)
            if loader.step == STEPS:
                print("read", flush=True)
                if end == "exception":
                    raise ValueError("of the loop")
                if end == "the end of the script":
                    break
    finally:
        received = [sample for batch in batches for sample in batch[:, 0].tolist()]
        print(json.dumps([received, loader.state_dict()]), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
