"""Waits for other threads and processes, and lists those that are alive."""

import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path


def wait_until(condition: Callable[[], object], seconds: float = 60.0) -> None:
    """Waits until a condition holds, and fails after more seconds than a busy machine takes."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "the condition never held"
        time.sleep(0.002)


def new_threads(before: set[threading.Thread]) -> list[threading.Thread]:
    """Returns the threads of the package that did not exist before."""
    now = set(threading.enumerate()) - before
    return [thread for thread in now if thread.name.startswith("samplerkit")]


def threads_of_loaders() -> list[threading.Thread]:
    """Those that are alive: a thread whose start was interrupted is listed for ever, and never runs."""
    workers = [thread for thread in threading.enumerate() if thread.name.startswith("samplerkit-worker")]
    return [thread for thread in workers if thread.is_alive()]


def alive(pids: Iterable[int]) -> list[int]:
    """Returns those that still run; one that has ended may wait long until its exit code is read."""
    return [pid for pid in pids if _state_of(pid) not in "ZX"]


def _state_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "X"
