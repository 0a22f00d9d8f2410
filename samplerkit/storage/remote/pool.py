"""Requests on their way at the same time, in a few threads."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar, final

from samplerkit.storage.remote.stopping import Stop

STOP_SECONDS = 1.0
"""How long `end` waits for threads: they look every tenth of a second whether they are still wanted."""

Item = TypeVar("Item")
Result = TypeVar("Result")


@final
class Pool:
    """Threads that make requests: begun when they are needed, they never keep the interpreter from its end.

    Args:
        most: how many of them.
        stop: ends them all.
    """

    def __init__(self, most: int, stop: Stop) -> None:
        self._most = most
        self._stop = stop
        self._changed = threading.Condition()
        self._queue: deque[tuple[Stop, Callable[[], None]]] = deque()
        self._threads: list[threading.Thread] = []
        self._idle = 0

    def map(self, call: Callable[[Item, Stop], Result], items: Sequence[Item]) -> list[Result]:
        """Calls with each item, several at a time; if one fails, the others are given up.

        Raises:
            Exception: the first that a call raised.
            Stopped: the threads were ended.
        """
        group = _Group(len(items), Stop(self._stop), self._changed)
        with self._changed:
            self._stop.check()  # when it is set, there may be no thread left to end what is begun
            for number, item in enumerate(items):
                self._queue.append((group.stop, partial(group.run, number, partial(call, item, group.stop))))
            wanted = len(self._queue) + len(self._threads) - self._idle
            for _ in range(min(wanted, self._most) - len(self._threads)):
                name = f"samplerkit-remote-{len(self._threads)}"
                self._threads.append(threading.Thread(target=self._work, name=name, daemon=True))
                self._threads[-1].start()
            self._changed.notify_all()
        try:
            return group.results()
        finally:
            group.stop.set()
            with self._changed:
                self._queue = deque(each for each in self._queue if each[0] is not group.stop)

    def end(self) -> None:
        """Waits for the threads, for a second at most, once `stop` is set."""
        with self._changed:
            self._changed.notify_all()
        end = time.monotonic() + STOP_SECONDS
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(max(0.0, end - time.monotonic()))

    def _work(self) -> None:
        while True:
            with self._changed:
                self._idle += 1
                while not self._queue and not self._stop.is_set:
                    self._changed.wait()
                self._idle -= 1
                if not self._queue:
                    return
                run = self._queue.popleft()[1]
            run()
            # A thread that waits for the next one holds nothing of this one.
            del run


@final
class _Group:
    """What one call of `map` waits for.

    Args:
        number: of results.
        stop: gives up what is not done.
        changed: of the pool.
    """

    def __init__(self, number: int, stop: Stop, changed: threading.Condition) -> None:
        self.stop = stop
        self._changed = changed
        self._left = number
        self._results: list[Any] = [None] * number
        self._failure: BaseException | None = None
        self._is_over = False

    def run(self, number: int, call: Callable[[], Any]) -> None:
        """Makes one of the calls."""
        try:
            self.stop.check()
            self._results[number] = call()
        except BaseException as error:  # raised where it is waited for
            self._fail(error)
        with self._changed:
            self._left -= 1
            self._changed.notify_all()

    def results(self) -> list[Any]:
        """Waits for all results, or the first failure."""
        try:
            with self._changed:
                while self._left and self._failure is None:
                    self._changed.wait()
            if self._failure is not None:
                raise self._failure
            return self._results
        finally:
            # A failure holds the frames that it went through, and these hold this.
            with self._changed:
                self._is_over, self._failure = True, None

    def _fail(self, error: BaseException) -> None:
        with self._changed:
            if self._failure is None and not self._is_over:
                self._failure = error
