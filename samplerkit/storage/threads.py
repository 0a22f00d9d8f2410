"""Work for many items in a few threads, which never keep the interpreter from its end."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any, ParamSpec, TypeVar
from weakref import WeakMethod

Given = ParamSpec("Given")
Result = TypeVar("Result")


def in_threads(
    work: Callable[[int], Result], items: Iterable[int], threads: int, name: str
) -> Iterator[tuple[int, Result]]:
    """Yields each item with what became of it, as that becomes known.

    Args:
        work: is called with each item, from several threads.
        items: numbers.
        threads: how many at a time.
        name: of the threads, without the number of each.

    Raises:
        Exception: the first that `work` raises; what is not begun then is left.

    Example:
        >>> dict(in_threads(lambda number: number * number, range(4), 2, "square"))[3]
        9
    """
    # Daemon threads: one that hangs in a read must not keep the interpreter from its end.
    waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
    done: queue.SimpleQueue[tuple[int, Result | None, BaseException | None]] = queue.SimpleQueue()
    is_over = threading.Event()
    number = 0
    for item in items:
        waiting.put(item)
        number += 1

    def loop() -> None:
        while not is_over.is_set():
            try:
                item = waiting.get_nowait()
            except queue.Empty:
                return
            try:
                done.put((item, work(item), None))
            except BaseException as error:  # raised again by the one who waits
                done.put((item, None, error))
            if is_over.is_set():
                _forget(done)

    for worker in range(min(threads, number)):
        threading.Thread(target=loop, name=f"{name}-{worker}", daemon=True).start()
    try:
        for _ in range(number):
            yield _taken(*done.get())
    finally:
        is_over.set()
        _forget(done)


def _taken(item: int, result: Result | None, error: BaseException | None) -> tuple[int, Result]:
    if error is None:
        return item, result  # type: ignore[return-value]  # without an error there is a result
    try:
        raise error
    finally:
        del error  # it holds this frame


def _forget(done: queue.SimpleQueue[Any]) -> None:
    """Drops errors that nobody takes: each holds the frames that it went through, and these hold it."""
    with suppress(queue.Empty):
        while True:
            done.get_nowait()


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
