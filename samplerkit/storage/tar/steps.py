"""Pipeline steps for samples of tar shards: renaming fields, mapping, and making tuples."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from samplerkit.errors import ArgumentTypeError, ArgumentValueError, DatasetError
from samplerkit.order import arguments

Step = Callable[[Any], Any]
"""One step: takes a sample and returns a new one; it must not change its input."""


Renames = tuple[tuple[str, tuple[str, ...]], ...]
"""For each new name of a field the old ones, of which the first that a sample has is used."""


def renames_of(fields: Mapping[str, Any]) -> Renames:
    """Parses a dict of new to old names: one name, several as `"jpg;png"`, or a list."""
    _require("rename", fields)
    return tuple((new, alternatives(new, old)) for new, old in fields.items())


def rename(renames: Renames, sample: Any, /) -> Any:
    """Renames fields; other fields are kept."""
    renamed = {old for _, olds in renames for old in olds}
    result = {name: value for name, value in sample.items() if name not in renamed}
    return result | {new: first_of(sample, olds) for new, olds in renames}


def mapping(functions: Mapping[str, Any]) -> Step:
    """Returns the step that applies a function to each of some fields."""
    _require("map_dict", functions)
    return partial(_map_dict, {name: arguments.function(name, call) for name, call in functions.items()})


def _map_dict(functions: Mapping[str, Callable[[Any], Any]], sample: Any, /) -> Any:
    return {**sample, **{name: call(first_of(sample, (name,))) for name, call in functions.items()}}


def fields_of(fields: tuple[Any, ...]) -> tuple[tuple[str, ...], ...]:
    """Parses names of fields, or one string of names separated by spaces."""
    names = fields[0].split() if len(fields) == 1 and isinstance(fields[0], str) else fields
    _require("to_tuple", names)
    return tuple(alternatives("to_tuple", name) for name in names)


def to_tuple(fields: tuple[tuple[str, ...], ...], sample: Any, /) -> Any:
    """Makes a tuple of the given fields."""
    return tuple(first_of(sample, names) for names in fields)


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


def _require(method: str, names: Any) -> None:
    if not names:
        raise ArgumentValueError(method, "needs at least one field")
