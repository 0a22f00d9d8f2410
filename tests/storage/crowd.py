"""Threads that work at the same time, and none of which may wait for ever."""

from __future__ import annotations

import threading
from collections.abc import Callable

PATIENCE_SECONDS = 60
"""Who is not done by then, waits for ever: what these tests do is over in a moment."""


def all_done(*works: Callable[[], object]) -> None:
    """Runs each work in a thread of its own; what one raises is raised."""
    failed: list[BaseException] = []

    def run(work: Callable[[], object]) -> None:
        try:
            work()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=run, args=(work,), daemon=True) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_SECONDS)
    assert not any(thread.is_alive() for thread in threads), "a thread waits for ever"
    if failed:
        raise failed[0]
