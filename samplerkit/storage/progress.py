"""A first pass over all files of a dataset, in threads, and how it reports how far it is."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any, TypeVar

from samplerkit.errors import ArgumentTypeError
from samplerkit.storage.threads import in_threads

Result = TypeVar("Result")

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
