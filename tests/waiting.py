"""Waiting for what other threads and processes bring about, and looking which of them are there."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path


def wait_until(condition: Callable[[], object], seconds: float = 60.0) -> None:
    """Waits until something holds, and fails if it does not within what a busy machine may take."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it never came to pass"
        time.sleep(0.002)


def new_threads(before: set[threading.Thread]) -> list[threading.Thread]:
    """Gives the threads of the package that were not there before."""
    now = set(threading.enumerate()) - before
    return [thread for thread in now if thread.name.startswith("samplerkit")]


def threads_of_loaders() -> list[threading.Thread]:
    """Those that are alive: one whose start an interrupt has cut off is listed for ever, and never runs."""
    mine = [thread for thread in threading.enumerate() if thread.name.startswith("samplerkit-worker")]
    return [thread for thread in mine if thread.is_alive()]


def alive(pids: Iterable[int]) -> list[int]:
    """Gives those that still run; one that has ended may wait long for somebody to ask for its exit code."""
    return [pid for pid in pids if _state_of(pid) not in "ZX"]


def _state_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "X"
