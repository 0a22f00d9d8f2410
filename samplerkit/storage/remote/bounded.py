"""Calling what has no time limit of its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from samplerkit.storage.remote.stopping import TICK, Stop

Result = TypeVar("Result")


def bounded(call: Callable[[], Result], seconds: float, stop: Stop) -> Result:
    """Calls in a thread of its own, and gives up waiting when time is over.

    What then still runs in that thread cannot be ended from outside; the interpreter does not wait for it.

    Args:
        call: to a filesystem of any kind.
        seconds: the longest that it may take.
        stop: ends the waiting too.

    Raises:
        TimeoutError: time is over.
        Stopped: it is not wanted any more.

    Example:
        >>> bounded(lambda: 6 * 7, 10.0, Stop())
        42
    """
    done = threading.Event()
    results: list[Any] = []
    failures: list[BaseException] = []

    def run() -> None:
        try:
            results.append(call())
        except BaseException as error:  # raised where it is waited for
            failures.append(error)
        finally:
            done.set()

    threading.Thread(target=run, name="samplerkit-remote-call", daemon=True).start()
    end = time.monotonic() + seconds
    while not done.wait(min(TICK, max(0.0, end - time.monotonic()))):
        stop.check()
        if time.monotonic() >= end:
            raise TimeoutError
    if failures:
        raise failures.pop()
    result: Result = results.pop()
    return result
