"""How long something takes, without what a busy machine adds to it."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable
from pathlib import Path

_PAUSE = 0.02


class OwnSeconds:
    """Measures seconds in which this process, and those that it started, ran or slept of their own will.

    Linux counts for each thread how long it was ready to run and did not: another one had the processor. In
    each pause the thread that waited longest is taken, so that nothing is left out twice. On an idle machine,
    and where Linux does not count, these are the seconds of a clock.

    Args:
        pids: other processes, such as some that may lose the one that started them.
    """

    def __init__(self, pids: Iterable[int] = ()) -> None:
        self._pids = {os.getpid(), *pids}
        self._is_over = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._look_again_and_again, daemon=True)
        self.begin()

    def begin(self) -> None:
        """Begins anew at 0."""
        with self._lock:
            self.seconds = 0.0
            self._waits, self._last = self._waits_by_thread(), time.monotonic()

    def __enter__(self) -> OwnSeconds:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._is_over.set()
        self._thread.join()
        self._look()

    def _look_again_and_again(self) -> None:
        while not self._is_over.wait(_PAUSE):
            self._look()

    def _look(self) -> None:
        with self._lock:
            waits, now = self._waits_by_thread(), time.monotonic()
            waited = [wait - self._waits.get(thread, 0) for thread, wait in waits.items()]
            self.seconds += max(0.0, now - self._last - max(waited, default=0) / 1e9)
            self._waits, self._last = waits, now

    def _waits_by_thread(self) -> dict[str, int]:
        """Nanoseconds in which each thread was ready and did not run."""
        waits = {}
        for pid in self._pids | _started_by(os.getpid()):
            for counts in Path(f"/proc/{pid}/task").glob("*/schedstat"):
                if counts.parent.name == str(self._thread.native_id):
                    continue  # nothing waits for the one that looks
                try:
                    waits[str(counts)] = int(counts.read_text().split()[1])
                except (OSError, IndexError):  # the thread has ended
                    continue
        return waits


def _started_by(pid: int) -> set[int]:
    """Gives the processes that one has started, and those that these have."""
    found: set[int] = set()
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            found |= {int(child) for child in children.read_text().split()}
        except OSError:  # the thread has ended
            continue
    return found.union(*map(_started_by, found))
