"""Runs functions in threads at the same time, and in forked processes, none of which may hang."""

import multiprocessing
import threading
import warnings
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

PATIENCE_SECONDS = 60
"""A thread or a process that still runs after this time hangs: these tests take a moment."""


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


class Child:
    """A forked process that calls a function and sends back its result, or the text of its error."""

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        context = multiprocessing.get_context("fork")
        self._receiver, sender = context.Pipe(duplex=False)
        self.process = context.Process(target=_run, args=(sender, function, arguments), daemon=True)
        with warnings.catch_warnings():
            # Python 3.12 and later warn of forking with threads: that is what is tested here.
            warnings.simplefilter("ignore", DeprecationWarning)
            self.process.start()
        sender.close()

    def result(self) -> Any:
        """Waits for the result."""
        assert self._receiver.poll(PATIENCE_SECONDS), "the child hangs"
        kind, value = self._receiver.recv()
        self.process.join(PATIENCE_SECONDS)
        assert self.process.exitcode == 0
        assert kind == "result", value
        return value

    def kill(self) -> None:
        """Kills it, as the system does when memory runs out."""
        self.process.kill()
        self.process.join(PATIENCE_SECONDS)


def _run(sender: Connection, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    try:
        sender.send(("result", function(*arguments)))
    except BaseException as error:
        sender.send(("error", repr(error)))
        raise
