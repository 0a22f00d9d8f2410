"""Reads fifty epochs with few descriptors to spare, and prints what the process held after each of them.

Run as `python -m tests.loading.fifty_epochs OPTIONS LEAKS`: OPTIONS are those of the loader, as JSON; where
LEAKS is `leaks`, a little memory, a thread and a descriptor are kept on purpose after each epoch.
"""

import json
import os
import resource
import sys
import threading
from pathlib import Path

import torch

import samplerkit as sk
from tests.numbers import Made

EPOCHS, SAMPLES, DESCRIPTORS = 50, 64, 64
LEAKED_BYTES = 256 << 10
PAGE = resource.getpagesize()


def row(index: int) -> torch.Tensor:
    """A row of numbers."""
    return torch.full((1024,), index)


def resident(pid: int | str) -> int:
    """The resident memory of a process, in bytes."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE


def main() -> None:
    """Reads the epochs and prints, for each thing that could grow, its amount after each epoch."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS))
    options, leaks = json.loads(sys.argv[1]), sys.argv[2] == "leaks"
    leaked, forever = [], threading.Event()
    held = {"memory": [], "worker_memory": [], "threads": [], "descriptors": []}
    with sk.Loader(Made(SAMPLES, row), sk.RandomSampler(seed=3), batch_size=8, **options) as loader:
        for _ in range(EPOCHS):
            received = sum(len(batch) for batch in loader)
            assert received == SAMPLES
            if leaks:
                leaked.append(b"1" * LEAKED_BYTES)
                # With workers, whose queues are few, one descriptor a loop would not reach the limit.
                leaked += [os.dup(0) for _ in range(1 + options["num_workers"])]
                leaked.append(threading.Thread(target=forever.wait, daemon=True))
                leaked[-1].start()
            workers = loader.worker_pids if options.get("persistent_workers") else []
            held["memory"].append(resident("self"))
            held["worker_memory"].append(sum(map(resident, workers)))
            held["threads"].append(len(list(Path("/proc/self/task").iterdir())))
            held["descriptors"].append(len(list(Path("/proc/self/fd").iterdir())))
    forever.set()
    print(json.dumps(held))


if __name__ == "__main__":
    main()
