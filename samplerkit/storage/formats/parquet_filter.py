"""Which rows of a row group are wanted: by its statistics none of them perhaps, and else by their values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from samplerkit.errors import ArgumentTypeError, ArgumentValueError
from samplerkit.order.typing import Ids
from samplerkit.storage.formats.extras import extra

Condition = tuple[str, str, Any]
Bounds = tuple[Any, Any]

_WORDS = {
    "==": "equal",
    "=": "equal",
    "!=": "not_equal",
    "<": "less",
    "<=": "less_equal",
    ">": "greater",
    ">=": "greater_equal",
}
_MAY: dict[str, Callable[[Bounds, Any], bool]] = {
    "==": lambda there, value: there[0] <= value <= there[1],
    "=": lambda there, value: there[0] <= value <= there[1],
    "<": lambda there, value: there[0] < value,
    "<=": lambda there, value: there[0] <= value,
    ">": lambda there, value: there[1] > value,
    ">=": lambda there, value: there[1] >= value,
    "in": lambda there, values: any(there[0] <= value <= there[1] for value in values),
}
"""Whether a value between the least and the most can meet a condition; of others nobody knows."""


@final
@dataclass(frozen=True)
class RowFilter:
    """Conditions on the values of a row, as in pyarrow: a null meets `not in`, and no other.

    Args:
        ways: lists of conditions; a row is wanted that meets all of one list.

    Example:
        >>> RowFilter.of([("year", ">=", 2020), ("lang", "in", ["en", "de"])]).names
        ('year', 'lang')
    """

    ways: tuple[tuple[Condition, ...], ...]

    @classmethod
    def of(cls, filters: Any) -> RowFilter:
        """Takes what a user says: a list of conditions, or a list of such lists.

        Raises:
            ArgumentTypeError: it is something else.
            ArgumentValueError: a comparison is not known.
        """
        if not isinstance(filters, list | tuple) or not filters:
            mend = "as in [('year', '>=', 2020), ('lang', 'in', ['en', 'de'])]"
            raise ArgumentTypeError("filters", "must be a list of conditions", filters, mend=mend)
        is_one = all(_is_condition(entry) for entry in filters)
        return cls(tuple(tuple(map(_checked, way)) for way in ([filters] if is_one else filters)))

    @property
    def names(self) -> tuple[str, ...]:
        """The columns that are looked at."""
        return tuple(dict.fromkeys(name for way in self.ways for name, _, _ in way))

    def may_hold(self, ranges: Mapping[str, Bounds]) -> bool:
        """Tells whether a row group can hold a wanted row.

        Args:
            ranges: the least and the most of the columns whose statistics say so.
        """
        return any(all(_may(condition, ranges) for condition in way) for way in self.ways)

    def rows(self, table: Any) -> Ids:
        """Gives the wanted rows of a table, by its values.

        Raises:
            Exception: as pyarrow raises where a value cannot be compared.
        """
        compute = extra("pyarrow.compute", "parquet")
        wanted = np.zeros(table.num_rows, dtype=bool)
        for way in self.ways:
            met = np.ones(table.num_rows, dtype=bool)
            for condition in way:
                met &= _met(compute, table, condition)
            wanted |= met
        return np.flatnonzero(wanted)


def ranges_of(group: Any, names: Sequence[str]) -> dict[str, Bounds]:
    """Gives the least and the most of columns of a row group, where its statistics know."""
    found = {}
    for number in range(group.num_columns):
        column = group.column(number)
        if column.path_in_schema in names and column.is_stats_set and column.statistics.has_min_max:
            found[column.path_in_schema] = (column.statistics.min, column.statistics.max)
    return found


def _is_condition(entry: Any) -> bool:
    return isinstance(entry, list | tuple) and len(entry) == 3 and isinstance(entry[1], str)


def _checked(entry: Any) -> Condition:
    if not _is_condition(entry) or not isinstance(entry[0], str):
        raise ArgumentTypeError("filters", "holds what is no condition (column, comparison, value)", entry)
    name, word, value = entry
    if word not in {*_WORDS, "in", "not in"}:
        mend = f"known: {', '.join([*_WORDS, 'in', 'not in'])}"
        raise ArgumentValueError("filters", "holds a comparison that is not known", word, mend=mend)
    if word in {"in", "not in"}:
        if isinstance(value, str | bytes) or not hasattr(value, "__iter__"):
            raise ArgumentTypeError("filters", f"must have a list of values after {word!r}", value)
        value = tuple(value)
    return name, word, value


def _may(condition: Condition, ranges: Mapping[str, Bounds]) -> bool:
    name, word, value = condition
    if name not in ranges or word not in _MAY:
        return True
    try:
        return _MAY[word](ranges[name], value)
    except TypeError:  # values say what is wrong with it
        return True


def _met(compute: Any, table: Any, condition: Condition) -> Any:
    name, word, value = condition
    column = table.column(name)
    if word in {"in", "not in"}:
        pa = extra("pyarrow", "parquet")
        found = compute.is_in(column, value_set=pa.array(value, type=column.type))
        met = found if word == "in" else compute.invert(found)
    else:
        met = getattr(compute, _WORDS[word])(column, value)
    return compute.fill_null(met, fill_value=False).to_numpy()
