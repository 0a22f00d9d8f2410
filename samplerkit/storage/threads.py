"""Work for many items in a few threads, which never keep the interpreter from its end."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

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

    for worker in range(min(threads, number)):
        threading.Thread(target=loop, name=f"{name}-{worker}", daemon=True).start()
    try:
        for _ in range(number):
            item, result, error = done.get()
            if error is not None:
                raise error
            yield item, result  # type: ignore[misc]  # without an error there is a result
    finally:
        is_over.set()
