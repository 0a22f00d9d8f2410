"""Processes that are killed while they save a checkpoint, and what is found afterwards.

Run as `python -m tests.loading.killed_saving FOLDER HOW KILLS`; HOW is `replace`, the way that the
documentation shows, or `in_place`. It prints as JSON how often the checkpoint was the one before, the one
being saved, broken, or of two moments. The processes are forked, so that torch is imported once.
"""

from __future__ import annotations

import json
import os
import random
import resource
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import samplerkit as sk

BATCH_SIZE, LONGEST_SECONDS = 4, 0.02


def loader() -> sk.Loader:
    return sk.Loader(range(10**9), sk.RandomSampler(seed=3), batch_size=BATCH_SIZE)


def checkpoint(step: int) -> dict[str, Any]:
    """The model after some steps, each number of which is the step, and the loader's state."""
    return {"model": torch.full((1 << 14,), step), "loader": loader().state_dict(step=step)}


def replace(step: int, path: Path) -> None:
    temporary = path.with_suffix(".new")
    torch.save(checkpoint(step), temporary)
    temporary.replace(path)


def in_place(step: int, path: Path) -> None:
    torch.save(checkpoint(step), path)


def replace_text(step: int, path: Path) -> None:
    temporary = path.with_suffix(".new")
    temporary.write_text(json.dumps(loader().state_dict(step=step)))
    temporary.replace(path)


def in_place_text(step: int, path: Path) -> None:
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


def found(path: Path, finished: int) -> str:
    """What the checkpoint is, `finished` being the last step whose saving is known to have ended."""
    try:
        saved = torch.load(path, weights_only=True)
        again = loader()
        again.load_state_dict(saved["loader"])
    except Exception:  # whatever a broken file is answered with
        return "broken"
    step = again.state_dict()["position"] // BATCH_SIZE
    if set(saved["model"].tolist()) != {step}:
        return "mixed"
    return {finished: "old", finished + 1: "new"}.get(step, "mixed")


def killed_at_random(folder: Path, save: Callable[[int, Path], None], kills: int) -> Counter[str]:
    """Kills processes that save one step after another, by SIGKILL after a drawn time."""
    drawn, outcomes, path = random.Random(2026), Counter[str](), folder / "checkpoint.pt"
    for _ in range(kills):
        replace(0, path)
        reader, writer = os.pipe()

        def work(writer: int = writer) -> None:
            for step in range(1, 256):
                save(step, path)
                os.write(writer, bytes([step]))

        pid = forked(work)
        os.close(writer)
        first = os.read(reader, 1)  # it is warm, and saves the second step by now
        time.sleep(drawn.uniform(0, LONGEST_SECONDS))
        os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL
        outcomes[found(path, (first + os.read(reader, 256))[-1])] += 1
        os.close(reader)
    return outcomes


def killed_at_each_byte(folder: Path, save: Callable[[int, Path], None], stride: int = 1) -> Counter[str]:
    """Lets the system kill a process (SIGXFSZ) when it writes a byte beyond a limit, for each limit.

    The last limit is none: there the process saves and ends.
    """
    outcomes, path = Counter[str](), folder / "state.json"
    replace_text(1, path)
    old = path.read_bytes()
    replace_text(2, path)
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
    """Kills in both ways and prints what was found."""
    folder, how, kills = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    torch.set_num_threads(1)
    ways = {"replace": (replace, replace_text, 1), "in_place": (in_place, in_place_text, 20)}
    binary, text, stride = ways[how]
    outcomes = {
        "at_random": killed_at_random(folder, binary, kills),
        "at_each_byte": killed_at_each_byte(folder, text, stride),
    }
    print(json.dumps(outcomes))


if __name__ == "__main__":
    main()
