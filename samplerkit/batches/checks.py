"""Checks of the arguments of recipes: what was understood takes the place of what was given."""

from __future__ import annotations

from typing import Any

from samplerkit.errors import ArgumentRangeError
from samplerkit.order import arguments
from samplerkit.order.arguments import LARGEST


def fill_in(recipe: Any, name: str, largest: int = LARGEST, *, is_optional: bool = False) -> None:
    """Takes a positive integer for an argument of a frozen recipe, or None where that is allowed."""
    value = getattr(recipe, name)
    if value is not None or not is_optional:
        object.__setattr__(recipe, name, arguments.positive(name, value, largest))


def fraction(place: str, value: Any) -> float:
    """Takes a number in [0, 1)."""
    number = arguments.number(place, value)
    if not 0 <= number < 1:
        raise ArgumentRangeError(place, "must be in [0, 1)", number)
    return number
