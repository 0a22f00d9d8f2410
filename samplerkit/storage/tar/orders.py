"""The place for the function that orders a shuffled dataset which is iterated over without a loader."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from samplerkit.errors import ArgumentRangeError
from samplerkit.order.integers import integer
from samplerkit.order.layout import Layout
from samplerkit.order.typing import Ids

DefaultOrder = Callable[[Layout, int, int], Iterator[Ids]]
"""Takes the layout, the window and how often the dataset was iterated over; gives all ids, in pieces."""

_place: list[DefaultOrder] = []


def checked_window(size: Any) -> int | None:
    """Takes the size of a window; 0 is none.

    Raises:
        ArgumentTypeError: no integer.
        ArgumentRangeError: negative.
    """
    number = integer("shuffle", size)
    if number < 0:
        raise ArgumentRangeError("shuffle", "must not be negative", size)
    return number or None


def set_default_order(order: DefaultOrder) -> None:
    """Puts the function into its place: this room may not know how orders are made."""
    _place[:] = [order]


def default_order() -> DefaultOrder | None:
    """Gives the function, or None while there is none."""
    return _place[0] if _place else None
