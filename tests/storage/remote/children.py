"""Processes that are forked from the process of the test, like the workers of a DataLoader."""

import multiprocessing
import warnings
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

SECONDS = 60


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
        assert self._receiver.poll(SECONDS), "the child hangs"
        kind, value = self._receiver.recv()
        self.process.join(SECONDS)
        assert self.process.exitcode == 0
        assert kind == "result", value
        return value

    def kill(self) -> None:
        """Kills it, as the system does when memory runs out."""
        self.process.kill()
        self.process.join(SECONDS)


def _run(sender: Connection, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    try:
        sender.send(("result", function(*arguments)))
    except BaseException as error:
        sender.send(("error", repr(error)))
        raise
