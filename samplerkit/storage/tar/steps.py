"""What is done to each sample of a tar shard: its fields are renamed, mapped, or made a tuple."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from samplerkit.errors import ArgumentTypeError, ArgumentValueError, DatasetError

Step = Callable[[Any], Any]
"""One step: takes a sample, gives another one, and changes none."""


@dataclass(frozen=True)
class Rename:
    """Gives fields other names; the other fields stay.

    Args:
        fields: for each new name the old ones, of which the first that is there is taken.
    """

    fields: tuple[tuple[str, tuple[str, ...]], ...]

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> Rename:
        """Takes the old names by new name: one, several as `"jpg;png"`, or a list."""
        _require("rename", fields)
        return cls(tuple((new, alternatives(new, old)) for new, old in fields.items()))

    def __call__(self, sample: Any, /) -> Any:
        """Applies the step."""
        renamed = {old for _, olds in self.fields for old in olds}
        result = {name: value for name, value in sample.items() if name not in renamed}
        for new, olds in self.fields:
            result[new] = first_of(sample, olds)
        return result


@dataclass(frozen=True)
class MapDict:
    """Applies a function to each of some fields."""

    functions: tuple[tuple[str, Callable[[Any], Any]], ...]

    @classmethod
    def of(cls, functions: Mapping[str, Any]) -> MapDict:
        """Takes functions by field."""
        _require("map_dict", functions)
        return cls(tuple((name, checked_function(name, each)) for name, each in functions.items()))

    def __call__(self, sample: Any, /) -> Any:
        """Applies the step."""
        result = dict(sample)
        for name, function in self.functions:
            result[name] = function(first_of(sample, (name,)))
        return result


@dataclass(frozen=True)
class Map:
    """Applies a function to the sample."""

    function: Callable[[Any], Any]

    def __call__(self, sample: Any, /) -> Any:
        """Applies the step."""
        return self.function(sample)


@dataclass(frozen=True)
class ToTuple:
    """Makes a tuple of some fields."""

    fields: tuple[tuple[str, ...], ...]

    @classmethod
    def of(cls, fields: tuple[Any, ...]) -> ToTuple:
        """Takes names of fields, or one text of several names with spaces between them."""
        names = fields[0].split() if len(fields) == 1 and isinstance(fields[0], str) else fields
        _require("to_tuple", names)
        return cls(tuple(alternatives("to_tuple", name) for name in names))

    def __call__(self, sample: Any, /) -> Any:
        """Applies the step."""
        return tuple(first_of(sample, names) for names in self.fields)


def first_of(sample: Mapping[str, Any], names: tuple[str, ...]) -> Any:
    """Returns the first of some fields that a sample has.

    Raises:
        DatasetError: it has none of them.
    """
    for name in names:
        if name in sample:
            return sample[name]
    has = ", ".join(name for name in sample if not name.startswith("__")) or "none"
    raise DatasetError("sample", f"has no field {' or '.join(names)}", hint=f"its fields are: {has}")


def alternatives(place: str, names: Any) -> tuple[str, ...]:
    """Takes names of fields of which one is meant: `"jpg;png"`, or a list.

    Raises:
        ArgumentTypeError: neither a string nor a list of strings.
        ArgumentValueError: a name is empty.

    Example:
        >>> alternatives("image", "jpg;png")
        ('jpg', 'png')
    """
    listed = names.split(";") if isinstance(names, str) else names
    if not isinstance(listed, list | tuple) or not all(isinstance(name, str) for name in listed):
        raise ArgumentTypeError(place, "must be names of fields, as in 'jpg;png'", names)
    if not listed or not all(listed):
        raise ArgumentValueError(place, "must not be empty", names)
    return tuple(listed)


def checked_function(place: str, function: Any) -> Callable[..., Any]:
    """Takes a function.

    Raises:
        ArgumentTypeError: it cannot be called.
    """
    if not callable(function):
        raise ArgumentTypeError(place, "must be a function", function)
    called: Callable[..., Any] = function
    return called


def _require(method: str, given: Any) -> None:
    if not given:
        raise ArgumentValueError(method, "needs at least one field")
