"""Processes that are forked from the one of the test, as a DataLoader's workers are."""

from __future__ import annotations

import multiprocessing
import warnings
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

SECONDS = 60


class Child:
    """A forked process that calls a function and sends back what it gives, or the text of its error."""

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        context = multiprocessing.get_context("fork")
        self._here, there = context.Pipe(duplex=False)
        self.process = context.Process(target=_run, args=(there, function, arguments), daemon=True)
        with warnings.catch_warnings():
            # Python 3.12 and later warn of forking beside threads: that is what is tested here.
            warnings.simplefilter("ignore", DeprecationWarning)
            self.process.start()
        there.close()

    def result(self) -> Any:
        """Waits for what it gives."""
        assert self._here.poll(SECONDS), "the child hangs"
        kind, value = self._here.recv()
        self.process.join(SECONDS)
        assert self.process.exitcode == 0
        assert kind == "result", value
        return value

    def kill(self) -> None:
        """Kills it, as the system does that is out of memory."""
        self.process.kill()
        self.process.join(SECONDS)


def _run(there: Connection, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    try:
        there.send(("result", function(*arguments)))
    except BaseException as error:
        there.send(("error", repr(error)))
        raise
