"""Pipeline steps for samples of tar shards: renaming fields, mapping, and making tuples."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from samplerkit.errors import ArgumentTypeError, ArgumentValueError, DatasetError

Step = Callable[[Any], Any]
"""One step: takes a sample and returns a new one; it must not change its input."""


@dataclass(frozen=True)
class Rename:
    """Renames fields; other fields are kept.

    Args:
        fields: for each new name the old ones, of which the first that a sample has is used.
    """

    fields: tuple[tuple[str, tuple[str, ...]], ...]

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> Rename:
        """Makes the step from a dict of new to old names: one name, several as `"jpg;png"`, or a list."""
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
    """Applies a function to each of the given fields."""

    functions: tuple[tuple[str, Callable[[Any], Any]], ...]

    @classmethod
    def of(cls, functions: Mapping[str, Any]) -> MapDict:
        """Makes the step from a dict of functions by field."""
        _require("map_dict", functions)
        return cls(tuple((name, checked_function(name, function)) for name, function in functions.items()))

    def __call__(self, sample: Any, /) -> Any:
        """Applies the step."""
        result = dict(sample)
        for name, function in self.functions:
            result[name] = function(first_of(sample, (name,)))
        return result


@dataclass(frozen=True)
class ToTuple:
    """Makes a tuple of the given fields."""

    fields: tuple[tuple[str, ...], ...]

    @classmethod
    def of(cls, fields: tuple[Any, ...]) -> ToTuple:
        """Makes the step from names of fields, or from one string of names separated by spaces."""
        names = fields[0].split() if len(fields) == 1 and isinstance(fields[0], str) else fields
        _require("to_tuple", names)
        return cls(tuple(alternatives("to_tuple", name) for name in names))

    def __call__(self, sample: Any, /) -> Any:
        """Applies the step."""
        return tuple(first_of(sample, names) for names in self.fields)


def first_of(sample: Mapping[str, Any], names: tuple[str, ...]) -> Any:
    """Returns the value of the first of the given fields that a sample has.

    Raises:
        DatasetError: the sample has none of them.
    """
    for name in names:
        if name in sample:
            return sample[name]
    has = ", ".join(name for name in sample if not name.startswith("__")) or "none"
    raise DatasetError("sample", f"has no field {' or '.join(names)}", hint=f"its fields are: {has}")


def alternatives(place: str, names: Any) -> tuple[str, ...]:
    """Parses alternative names of a field: `"jpg;png"`, or a list.

    Raises:
        ArgumentTypeError: `names` is neither a string nor a list of strings.
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
    """Returns a function after checking that it is callable.

    Raises:
        ArgumentTypeError: it is not callable.
    """
    if not callable(function):
        raise ArgumentTypeError(place, "must be a function", function)
    called: Callable[..., Any] = function
    return called


def _require(method: str, names: Any) -> None:
    if not names:
        raise ArgumentValueError(method, "needs at least one field")
