"""Processes that are killed while they save a checkpoint, and what is found afterwards.

Run as `python -m tests.loading.killed_saving FOLDER HOW`; HOW is `replace`, the way that the documentation
shows, or `in_place`. It prints as JSON how often the checkpoint was the one before, the one being saved, or
broken. The processes are forked, so that torch is imported once.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import torch

import samplerkit as sk


def loader() -> sk.Loader:
    return sk.Loader(range(10**9), sk.RandomSampler(seed=3), batch_size=4)


def replace(step: int, path: Path) -> None:
    temporary = path.with_suffix(".new")
    in_place(step, temporary)
    temporary.replace(path)


def in_place(step: int, path: Path) -> None:
    path.write_text(json.dumps(loader().state_dict(step=step)))


def forked(work: Callable[[], None]) -> int:
    """Starts a process that does the work and ends; gives its id."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
        finally:
            os._exit(0)
    return pid


def killed_at_each_byte(folder: Path, save: Callable[[int, Path], None], stride: int = 1) -> Counter[str]:
    """Lets the system kill a process (SIGXFSZ) when it writes a byte beyond a limit, for each limit.

    The last limit is none: there the process saves and ends.
    """
    outcomes, path = Counter[str](), folder / "state.json"
    in_place(1, path)
    old = path.read_bytes()
    in_place(2, path)
    new = path.read_bytes()
    for limit in range(len(new), -1, -stride):
        path.write_bytes(old)

        def work(limit: int = limit) -> None:
            signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
            save(2, path)

        _, status = os.waitpid(forked(work), 0)
        assert os.waitstatus_to_exitcode(status) == (-signal.SIGXFSZ if limit < len(new) else 0)
        outcomes[{old: "old", new: "new"}.get(path.read_bytes(), "broken")] += 1
    return outcomes


def main() -> None:
    """Kills in one of the ways and prints what was found."""
    torch.set_num_threads(1)
    save, stride = {"replace": (replace, 4), "in_place": (in_place, 20)}[sys.argv[2]]
    print(json.dumps(killed_at_each_byte(Path(sys.argv[1]), save, stride)))


if __name__ == "__main__":
    main()
