"""Daemon threads that never delay interpreter exit, progress reports, and the number of this worker."""

from __future__ import annotations

import math
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, Generic, ParamSpec, TypeVar
from weakref import WeakMethod

from samplerkit.errors import ArgumentTypeError, DatasetError
from samplerkit.order import arguments

TICK = 0.1
"""Seconds after which waiting calls check whether they were stopped."""

END_SECONDS = 1.0
"""Seconds to wait for threads that are busy when they are stopped."""

importing = threading.RLock()
"""Held while a package is imported, and at a fork: a child forked during an import would hang in it."""

os.register_at_fork(
    before=importing.acquire, after_in_parent=importing.release, after_in_child=importing.release
)

Given = ParamSpec("Given")
Item = TypeVar("Item")
Result = TypeVar("Result")


class Stopped(DatasetError):  # noqa: N818  # a signal to stop, and no fault
    """The work was stopped meanwhile; users see it if another thread closes a storage of remote files."""


class Stop:
    """A flag that is set once to stop all work that checks it.

    Args:
        outer: another flag that also sets this one.
    """

    def __init__(self, outer: Stop | None = None) -> None:
        self._event = threading.Event()
        self._outer = outer

    def set(self) -> None:
        """Stops the work that checks this flag."""
        self._event.set()

    @property
    def is_set(self) -> bool:
        """Whether this flag or the outer one was set."""
        return self._event.is_set() or (self._outer is not None and self._outer.is_set)

    def check(self) -> None:
        """Raises an exception if the flag was set.

        Raises:
            Stopped: the flag was set.
        """
        if self.is_set:
            raise Stopped("remote storage", "was closed while it was read")

    def sleep(self, seconds: float) -> None:
        """Waits, at most until the flag is set.

        Raises:
            Stopped: the flag was set.
        """
        end = time.monotonic() + seconds
        self.check()
        while (remaining := end - time.monotonic()) > 0:
            self._event.wait(min(remaining, TICK))
            self.check()


class Pool:
    """A pool of threads that are started when needed, and wait for work until they are stopped.

    Args:
        max_threads: the most threads; also an attribute.
        name: the prefix of the threads' names.
        stop: stops all threads.
    """

    def __init__(self, max_threads: int, name: str, stop: Stop) -> None:
        self.max_threads = max_threads
        self._name = name
        self._stop = stop
        self._changed = threading.Condition()
        self._queue: deque[tuple[Stop, Callable[[], None]]] = deque()
        self._threads: list[threading.Thread] = []
        self._idle = 0

    def map(self, call: Callable[[Item, Stop], Result], items: Sequence[Item]) -> list[Result]:
        """Calls a function with each item, in parallel; if a call fails, the others are stopped.

        Raises:
            Exception: the first exception of a call.
            Stopped: the threads were stopped.
        """
        results = dict(self.each(call, items))
        return [results[number] for number in range(len(items))]

    def each(
        self, call: Callable[[Item, Stop], Result], items: Sequence[Item]
    ) -> Iterator[tuple[int, Result]]:
        """Like `map`, but yields the number and the result of each item as soon as it is done."""
        calls: Calls[Result] = Calls(Stop(self._stop))
        with self._changed:
            self._stop.check()  # once it is set, no thread may be left to do the work
            for number, item in enumerate(items):
                self._queue.append((calls.stop, partial(calls.run, number, partial(call, item, calls.stop))))
            needed = len(self._queue) + len(self._threads) - self._idle
            for _ in range(min(needed, self.max_threads) - len(self._threads)):
                name = f"{self._name}-{len(self._threads)}"
                self._threads.append(threading.Thread(target=self._work, name=name, daemon=True))
                self._threads[-1].start()
            self._changed.notify(len(items))
        try:
            for _ in range(len(items)):
                yield calls.next()
        finally:
            calls.end()
            with self._changed:
                self._queue = deque(each for each in self._queue if each[0] is not calls.stop)

    def end(self) -> None:
        """Waits for the threads, at most a second; `stop` must be set before."""
        self.wake()
        join(self._threads)

    def wake(self) -> None:
        """Wakes the threads, so that they check `stop`."""
        with self._changed:
            self._changed.notify_all()

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
            # A waiting thread must not keep objects of its last call alive.
            del run


class Calls(Generic[Result]):
    """Calls in threads, whose results are received as they are done.

    Args:
        stop: stops the calls, and the waiting for them.

    Attributes:
        threads: the threads of calls that were started here.
    """

    def __init__(self, stop: Stop) -> None:
        self.stop = stop
        self.threads: list[threading.Thread] = []
        self._done: SimpleQueue[tuple[int, Any, BaseException | None]] = SimpleQueue()

    def start(self, call: Callable[[], Result], name: str) -> None:
        """Runs a call in a new daemon thread."""
        self.threads.append(threading.Thread(target=self.run, args=(0, call), name=name, daemon=True))
        self.threads[-1].start()

    def run(self, number: int, call: Callable[[], Result]) -> None:
        """Runs a call in this thread."""
        try:
            self.stop.check()
            self._done.put((number, call(), None))
        except BaseException as error:  # raised again by `next`
            if not self.stop.is_set:
                self._done.put((number, None, error))

    def next(self, seconds: float | None = None) -> tuple[int, Result]:
        """Waits for the next result or failure, at most for `seconds`."""
        end = math.inf if seconds is None else time.monotonic() + seconds
        while True:
            # The call in the thread may not check `stop`, such as a request by a library.
            self.stop.check()
            remaining = end - time.monotonic()
            if remaining <= 0:
                raise TimeoutError
            with suppress(Empty):
                number, result, error = self._done.get(timeout=min(TICK, remaining))
                break
        try:
            if error is not None:
                raise error
        finally:
            del error  # it refers to this frame
        return number, result

    def end(self) -> None:
        """Stops pending calls, and drops results: an exception refers to frames, and these refer to this."""
        self.stop.set()
        self._done = SimpleQueue()


def in_threads(
    work: Callable[[int], Result], items: Iterable[int], threads: int, name: str
) -> Iterator[tuple[int, Result]]:
    """Calls a function with each item in threads, and yields each item with its result when it is done.

    Args:
        work: called with each item, from several threads.
        items: numbers.
        threads: the most threads; at the end, threads that hang are not waited for.
        name: the prefix of the threads' names.

    Raises:
        ArgumentRangeError: `threads` is not positive.
        Exception: the first exception of `work`; items that were not started yet are skipped.

    Example:
        >>> dict(in_threads(lambda number: number * number, range(4), 2, "square"))[3]
        9
    """
    all_items, stop = list(items), Stop()
    pool = Pool(arguments.positive("threads", threads), name, stop)
    try:
        for number, result in pool.each(lambda item, _: work(item), all_items):
            yield all_items[number], result
    finally:
        stop.set()
        pool.wake()
    pool.end()  # all threads are idle, so none is left afterwards


def all_in_threads(
    work: Callable[[Item], Result],
    items: Sequence[Item],
    threads: int,
    name: str,
    progress: Callable[[int, int], object] | None = None,
) -> list[Result]:
    """Returns the results of a function for some items, in their order.

    Args:
        work: called with each item, from several threads.
        items: the items.
        threads: the most threads.
        name: the prefix of the threads' names.
        progress: called with the number of finished items and the total; None for no progress.

    Raises:
        Exception: the first exception of `work`; items that were not started yet are skipped.
    """
    results: dict[int, Result] = {}
    report = progress or (lambda *_: None)
    report(0, len(items))
    for at, result in in_threads(lambda at: work(items[at]), range(len(items)), threads, name):
        results[at] = result
        report(len(results), len(items))
    return [results[at] for at in range(len(items))]


def with_timeout(call: Callable[[], Result], seconds: float, stop: Stop) -> Result:
    """Calls a function in a new thread, with a timeout.

    After the timeout the thread keeps running, since it cannot be stopped from outside; the interpreter does
    not wait for it at exit.

    Args:
        call: a function without a timeout of its own.
        seconds: the timeout.
        stop: also ends the waiting.

    Raises:
        TimeoutError: the timeout is over.
        Stopped: `stop` was set.

    Example:
        >>> with_timeout(lambda: 6 * 7, 10.0, Stop())
        42
    """
    calls: Calls[Result] = Calls(Stop(stop))
    calls.start(call, "samplerkit-remote-call")
    try:
        return calls.next(seconds)[1]
    finally:
        calls.end()


def join(threads: Iterable[threading.Thread]) -> None:
    """Waits for threads that were stopped, at most a second in total."""
    end = time.monotonic() + END_SECONDS
    for thread in threads:
        if thread is not threading.current_thread():
            thread.join(end - time.monotonic())


def weak_method(method: Callable[Given, Result]) -> Callable[Given, Result]:
    """Returns a function that calls a method by a weak reference, which avoids reference cycles.

    Args:
        method: a bound method. After its object is deleted, a call raises a ReferenceError.

    Example:
        >>> class Shelf:
        ...     def __init__(self):
        ...         self.count = weak_method(self._count)
        ...     def _count(self):
        ...         return 7
        >>> shelf = Shelf()
        >>> shelf.count()
        7
    """
    reference = WeakMethod(method)

    def call(*arguments: Given.args, **named: Given.kwargs) -> Result:
        bound = reference()
        if bound is None:
            raise ReferenceError("the object of this method was deleted")
        return bound(*arguments, **named)

    return call


def this_worker() -> tuple[int, int]:
    """Returns the number of this worker, and how many there are; (0, 1) outside of a worker.

    Example:
        >>> this_worker()
        (0, 1)
    """
    # A process that has not imported torch is not a worker of its loader, so torch is not imported here.
    data: Any = sys.modules.get("torch.utils.data")
    info = None if data is None else data.get_worker_info()
    return (0, 1) if info is None else (info.id, info.num_workers)


Progress = Callable[[str, int, int], None]
"""A function that is called with a description, the number done and the total."""

PATIENCE_SECONDS = 1.0
"""Shorter passes show no progress."""


def progress_of(progress: Any) -> Progress:
    """Checks the argument `progress`: None for a line on the terminal, False for nothing, or a function.

    Raises:
        ArgumentTypeError: it is none of these.
    """
    if progress is None:
        return TerminalLine()
    if progress is False:
        return silence
    if not callable(progress):
        raise ArgumentTypeError("progress", "must be a function, None or False", progress)
    report: Progress = progress
    return report


def silence(description: str, done: int, total: int) -> None:
    """Shows no progress."""


class TerminalLine:
    """One line on the terminal, updated a few times a second; nothing if stderr is not a terminal."""

    def __init__(self) -> None:
        self._next: float | None = None  # when the line is written next; None before the first call of a pass
        self._is_shown = False

    def __call__(self, description: str, done: int, total: int) -> None:
        now = time.monotonic()
        self._next = now + PATIENCE_SECONDS if self._next is None else self._next
        is_over = done >= total
        is_terminal = sys.stderr is not None and sys.stderr.isatty()  # None if it was closed at the start
        if is_terminal and (self._is_shown if is_over else now >= self._next):
            sys.stderr.write(f"\r{description} {done:,} of {total:,}" + ("\n" if is_over else ""))
            sys.stderr.flush()
            self._next, self._is_shown = now + PATIENCE_SECONDS / 4, True
        if is_over:
            self._next, self._is_shown = None, False
