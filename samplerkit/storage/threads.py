"""Threads that never keep the interpreter from its end, progress of their work, and which worker this is."""

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
from typing import Any, Generic, ParamSpec, TypeVar, final
from weakref import WeakMethod

from samplerkit.errors import ArgumentTypeError
from samplerkit.order import arguments

TICK = 0.1
"""Seconds after which all that waits looks whether it is still wanted."""

END_SECONDS = 1.0
"""How long is waited for threads that are in the middle of something when they are ended."""

importing = threading.RLock()
"""Is held while a package is imported: a child forked meanwhile would wait for that import without end."""

os.register_at_fork(
    before=importing.acquire, after_in_parent=importing.release, after_in_child=importing.release
)

Given = ParamSpec("Given")
Item = TypeVar("Item")
Result = TypeVar("Result")


@final
class Stopped(Exception):  # noqa: N818  # what was begun is not wanted any more
    """What is waited for was ended meanwhile, or another part of what was asked for has failed."""


@final
class Stop:
    """Is set once, and then ends what looks at it.

    Args:
        outer: one that ends this too.
    """

    def __init__(self, outer: Stop | None = None) -> None:
        self._event = threading.Event()
        self._outer = outer

    def set(self) -> None:
        """Ends what looks at it."""
        self._event.set()

    @property
    def is_set(self) -> bool:
        """Whether it was set, or the outer one was."""
        return self._event.is_set() or (self._outer is not None and self._outer.is_set)

    def check(self) -> None:
        """Ends the caller if it was set.

        Raises:
            Stopped: it was.
        """
        if self.is_set:
            raise Stopped

    def sleep(self, seconds: float) -> None:
        """Waits, but not beyond the moment at which it is set.

        Raises:
            Stopped: it was set.
        """
        end = time.monotonic() + seconds
        self.check()
        while (left := end - time.monotonic()) > 0:
            self._event.wait(min(left, TICK))
            self.check()


@final
class Pool:
    """Threads that are begun when they are needed, and wait for more to do until they are ended.

    Args:
        most: how many of them.
        name: of the threads, without the number of each.
        stop: ends them all.

    Attributes:
        most: how many of them.
    """

    def __init__(self, most: int, name: str, stop: Stop) -> None:
        self.most = most
        self._name = name
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
        if not items:
            return []
        found: list[Any] = [None] * len(items)
        rest = iter(range(len(items)))

        # Each thread takes one item after another, so that it is woken once and not for each of them.
        def take(_: int, stop: Stop) -> None:
            for number in rest:
                stop.check()
                found[number] = call(items[number], stop)

        deque(self.each(take, range(min(len(items), self.most))), maxlen=0)
        return found

    def each(
        self, call: Callable[[Item, Stop], Result], items: Sequence[Item]
    ) -> Iterator[tuple[int, Result]]:
        """Does the same, and yields the number of each item with its result, as that becomes known."""
        group: _Group[Result] = _Group(Stop(self._stop))
        with self._changed:
            self._stop.check()  # when it is set, there may be no thread left to end what is begun
            for number, item in enumerate(items):
                self._queue.append((group.stop, partial(group.run, number, partial(call, item, group.stop))))
            wanted = len(self._queue) + len(self._threads) - self._idle
            for _ in range(min(wanted, self.most) - len(self._threads)):
                name = f"{self._name}-{len(self._threads)}"
                self._threads.append(threading.Thread(target=self._work, name=name, daemon=True))
                self._threads[-1].start()
            self._changed.notify(len(items))
        try:
            for _ in range(len(items)):
                yield group.next()
        finally:
            group.end()
            with self._changed:
                self._queue = deque(each for each in self._queue if each[0] is not group.stop)

    def end(self) -> None:
        """Waits for the threads, for a second at most, once `stop` is set."""
        self.wake()
        join(self._threads)

    def wake(self) -> None:
        """Lets the threads see that `stop` is set."""
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
            # A thread that waits for the next one holds nothing of this one.
            del run


@final
class _Group(Generic[Result]):
    """What one call of `each` waits for."""

    def __init__(self, stop: Stop) -> None:
        self.stop = stop
        self._done: SimpleQueue[tuple[int, Any, BaseException | None]] = SimpleQueue()

    def run(self, number: int, call: Callable[[], Result]) -> None:
        """Makes one of the calls."""
        try:
            self.stop.check()
            self._done.put((number, call(), None))
        except BaseException as error:  # raised where it is waited for
            if not self.stop.is_set:
                self._done.put((number, None, error))

    def next(self, seconds: float | None = None) -> tuple[int, Result]:
        """Waits for the next result or failure; with `seconds`, it looks at the clock meanwhile."""
        end = math.inf if seconds is None else time.monotonic() + seconds
        while True:
            # What runs in a thread may not look at `stop`, such as a library's own request.
            self.stop.check()
            left = end - time.monotonic()
            if left <= 0:
                raise TimeoutError
            with suppress(Empty):
                number, result, error = self._done.get(timeout=min(TICK, left))
                break
        try:
            if error is not None:
                raise error
        finally:
            del error  # it holds this frame
        return number, result

    def end(self) -> None:
        """Gives up what is not done. A failure holds the frames that it went through, and these hold this."""
        self.stop.set()
        self._done = SimpleQueue()


def in_threads(
    work: Callable[[int], Result], items: Iterable[int], threads: int, name: str
) -> Iterator[tuple[int, Result]]:
    """Yields each item with what became of it, as that becomes known.

    Args:
        work: is called with each item, from several threads.
        items: numbers.
        threads: how many at a time; one that hangs is not waited for.
        name: of the threads, without the number of each.

    Raises:
        ArgumentRangeError: there is none, who would be waited for without end.
        Exception: the first that `work` raises; what is not begun then is left.

    Example:
        >>> dict(in_threads(lambda number: number * number, range(4), 2, "square"))[3]
        9
    """
    wanted, stop = list(items), Stop()
    pool = Pool(arguments.positive("threads", threads), name, stop)
    try:
        for number, result in pool.each(lambda item, _: work(item), wanted):
            yield wanted[number], result
    finally:
        stop.set()
        pool.wake()
    pool.end()  # all are idle: a count of threads afterwards finds none


def all_in_threads(
    work: Callable[[int], Result],
    number: int,
    threads: int,
    name: str,
    progress: Callable[[int, int], object] | None = None,
) -> list[Result]:
    """Returns what becomes of each of the items 0 to `number` - 1, in their order.

    Args:
        work: is called with each item, from several threads.
        number: of items.
        threads: how many at a time.
        name: of the threads, without the number of each.
        progress: receives how many are done, and of how many; None reports nothing.

    Raises:
        Exception: the first that `work` raises; what is not begun then is left.
    """
    found: dict[int, Result] = {}
    if progress is not None:
        progress(0, number)
    for item, result in in_threads(work, range(number), threads, name):
        found[item] = result
        if progress is not None:
            progress(len(found), number)
    return [found[item] for item in range(number)]


def bounded(call: Callable[[], Result], seconds: float, stop: Stop) -> Result:
    """Calls in a thread of its own, and gives up waiting when time is over.

    What then still runs in that thread cannot be ended from outside; the interpreter does not wait for it.

    Args:
        call: to what has no time limit of its own.
        seconds: the longest that it may take.
        stop: ends the waiting too.

    Raises:
        TimeoutError: time is over.
        Stopped: it is not wanted any more.

    Example:
        >>> bounded(lambda: 6 * 7, 10.0, Stop())
        42
    """
    group: _Group[Result] = _Group(Stop(stop))
    threading.Thread(target=group.run, args=(0, call), name="samplerkit-remote-call", daemon=True).start()
    try:
        return group.next(seconds)[1]
    finally:
        group.end()


def join(threads: Iterable[threading.Thread]) -> None:
    """Waits for threads that were asked to end, for a second at most in all."""
    end = time.monotonic() + END_SECONDS
    for thread in threads:
        if thread is not threading.current_thread():
            thread.join(end - time.monotonic())


def weakly(method: Callable[Given, Result]) -> Callable[Given, Result]:
    """Makes a method callable for something that its object holds: so neither waits for the collector.

    Args:
        method: of an object. When that is gone, calling raises a ReferenceError.

    Example:
        >>> class Shelf:
        ...     def __init__(self):
        ...         self.count = weakly(self._count)
        ...     def _count(self):
        ...         return 7
        >>> shelf = Shelf()
        >>> shelf.count()
        7
    """
    found = WeakMethod(method)

    def call(*arguments: Given.args, **named: Given.kwargs) -> Result:
        bound = found()
        if bound is None:
            raise ReferenceError("what this belonged to is gone")
        return bound(*arguments, **named)

    return call


def this_worker() -> tuple[int, int]:
    """Returns the number of this worker, and how many there are; (0, 1) outside of a worker.

    Example:
        >>> this_worker()
        (0, 1)
    """
    # Who has not imported torch is no worker of its loader: files are read without waiting for it.
    data: Any = sys.modules.get("torch.utils.data")
    info = None if data is None else data.get_worker_info()
    return (0, 1) if info is None else (info.id, info.num_workers)


Progress = Callable[[str, int, int], None]
"""Is called with what is done, how many are done, and how many there are."""

PATIENCE_SECONDS = 1.0
"""A pass that is over sooner shows nothing."""


def progress_of(wanted: Any) -> Progress:
    """Checks what a user says of progress: None for a line on a terminal, False for nothing, or a function.

    Raises:
        ArgumentTypeError: something else.
    """
    if wanted is None:
        return TerminalLine()
    if wanted is False:
        return silence
    if not callable(wanted):
        raise ArgumentTypeError("progress", "must be a function, None or False", wanted)
    told: Progress = wanted
    return told


def silence(what: str, done: int, total: int) -> None:
    """Says nothing."""


class TerminalLine:
    """One line on the terminal, rewritten a few times a second; nothing where there is no terminal."""

    def __init__(self) -> None:
        self._last: float | None = None
        self._is_shown = False

    def __call__(self, what: str, done: int, total: int) -> None:
        now = time.monotonic()
        if self._last is None:
            self._last = now
        if not sys.stderr.isatty():
            return
        is_over = done >= total
        if (is_over and self._is_shown) or (not is_over and now - self._last > PATIENCE_SECONDS / 4):
            self._is_shown = self._is_shown or now - self._last > PATIENCE_SECONDS
            self._last = now
            sys.stderr.write(f"\r{what} {done:,} of {total:,}" + ("\n" if is_over else ""))
            sys.stderr.flush()
        if is_over:
            self._last, self._is_shown = None, False
