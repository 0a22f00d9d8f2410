"""Threads beside the training loop: how one is started, and what one must not raise in the loop."""

from __future__ import annotations

import sys
import threading


def start_thread(thread: threading.Thread) -> None:
    """Starts a thread; what a signal handler raises meanwhile is raised as it is."""
    before = sys.exception()
    try:
        thread.start()
    except (KeyError, RuntimeError) as error:
        # A handler that raises within `start` comes as an error of Python's own bookkeeping, or of its lock.
        if error.__context__ is None or error.__context__ is before:
            raise
        raise error.__context__ from None


def not_an_end(error: BaseException, where: str) -> BaseException:
    """Gives what to raise in the loop: a StopIteration from elsewhere would end it without a word."""
    if not isinstance(error, StopIteration):
        return error
    raised = RuntimeError(f"{where} raised StopIteration")
    raised.__cause__ = error
    return raised
