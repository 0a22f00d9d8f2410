"""Waits for other threads and processes, and measures time without what a busy machine adds."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
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


_PAUSE = 0.02


class LoadFreeTimer:
    """Measures seconds in which this process and its descendants ran or slept, but waited for no processor.

    Linux counts for each thread how long it was ready to run while another one had the processor. Of each
    interval the longest wait of a thread is subtracted, so that nothing is subtracted twice. On an idle
    machine, and where Linux does not count, these are the seconds of a clock.

    Args:
        pids: processes that are no descendants, or that may lose their parent.
    """

    def __init__(self, pids: Iterable[int] = ()) -> None:
        self._pids = {os.getpid(), *pids}
        self._is_over = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.restart()

    def restart(self) -> None:
        """Starts again at 0."""
        with self._lock:
            self.seconds = 0.0
            self._waits, self._last = self._waits_by_thread(), time.monotonic()

    def __enter__(self) -> LoadFreeTimer:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._is_over.set()
        self._thread.join()
        self._update()

    def _run(self) -> None:
        while not self._is_over.wait(_PAUSE):
            self._update()

    def _update(self) -> None:
        with self._lock:
            waits, now = self._waits_by_thread(), time.monotonic()
            waited = [wait - self._waits.get(thread, 0) for thread, wait in waits.items()]
            self.seconds += max(0.0, now - self._last - max(waited, default=0) / 1e9)
            self._waits, self._last = waits, now

    def _waits_by_thread(self) -> dict[str, int]:
        """Nanoseconds in which each thread was ready and did not run."""
        waits = {}
        for pid in self._pids.union(*map(_started_by, self._pids)):
            for thread, counts in _read_of_threads(pid, "schedstat"):
                if thread != self._thread.native_id:  # this thread delays nothing
                    waits[f"{pid}/{thread}"] = int(counts[1])
        return waits


def _started_by(pid: int) -> set[int]:
    """The descendants of a process."""
    children = {int(child) for _, children in _read_of_threads(pid, "children") for child in children}
    return children.union(*map(_started_by, children))


def _read_of_threads(pid: int, name: str) -> Iterator[tuple[int, list[str]]]:
    """Yields the words of a file in `/proc` for each thread of a process; either may end meanwhile."""
    try:
        threads = list(Path(f"/proc/{pid}/task").iterdir())
    except OSError:
        return
    for thread in threads:
        with contextlib.suppress(OSError):
            if words := (thread / name).read_text().split():
                yield int(thread.name), words


@contextlib.contextmanager
def within(seconds: float) -> Iterator[None]:
    """Fails if a block takes as many seconds, without those for which a busy machine lets it wait."""
    with LoadFreeTimer() as timer:
        yield
    assert timer.seconds < seconds
