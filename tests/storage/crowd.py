"""Runs functions in threads at the same time, none of which may hang."""

import threading
from collections.abc import Callable

PATIENCE_SECONDS = 60
"""A thread that still runs after this time hangs: these tests take a moment."""


def run_in_threads(*functions: Callable[[], object]) -> None:
    """Runs each function in its own thread; raises the first error of one."""
    failed: list[BaseException] = []

    def run(function: Callable[[], object]) -> None:
        try:
            function()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=run, args=(function,), daemon=True) for function in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_SECONDS)
    assert not any(thread.is_alive() for thread in threads), "a thread waits for ever"
    if failed:
        raise failed[0]
