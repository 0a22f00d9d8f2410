"""Filters rows of Parquet files: by statistics of row groups, by values, or by keys in folder names."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np

from samplerkit.errors import ArgumentTypeError, ArgumentValueError, DatasetError
from samplerkit.order import arguments
from samplerkit.order.typing import Ids
from samplerkit.storage.files.packages import extra, guarded
from samplerkit.storage.urls import shown

Condition = tuple[str, str, Any]
Bounds = tuple[Any, Any]
_COMPARISONS: Final = ("==", "=", "!=", "<", "<=", ">", ">=", "in", "not in")

_NUMBER: Final = "\0number of the row"
"""The name of a column of row numbers that is added to a table while it is filtered."""

_MAY: dict[str, Callable[[Any, Any, Any], bool]] = {
    "==": lambda low, high, value: low <= value <= high,
    "=": lambda low, high, value: low <= value <= high,
    "<": lambda low, _, value: low < value,
    "<=": lambda low, _, value: low <= value,
    ">": lambda _, high, value: high > value,
    ">=": lambda _, high, value: high >= value,
    "in": lambda low, high, values: any(low <= value <= high for value in values),
}
"""For each comparison, whether a value between a minimum and a maximum can meet it; others are not pruned.

pyarrow.dataset can do this as well, but damaged statistics end the process there.
"""


@dataclass(frozen=True)
class RowFilter:
    """Conditions on the values of a row, as in pyarrow: a null meets `not in` and no other comparison.

    Args:
        ways: lists of conditions; a row is kept if it meets all conditions of one list.

    Example:
        >>> RowFilter.of([("year", ">=", 2020), ("lang", "in", ["en", "de"])]).names
        ('year', 'lang')
    """

    ways: tuple[tuple[Condition, ...], ...]

    @classmethod
    def of(cls, filters: Any) -> RowFilter:
        """Makes a filter from the user's list of conditions, or list of such lists.

        Raises:
            ArgumentTypeError: `filters` is neither.
            ArgumentValueError: a comparison is not known.
        """
        ways = [filters] if _holds_conditions(filters) else filters
        if not isinstance(ways, list | tuple) or not ways or not all(map(_holds_conditions, ways)):
            hint = "as in [('year', '>=', 2020), ('lang', 'in', ['en', 'de'])]"
            problem = "must be a list of conditions, or a list of such lists"
            raise ArgumentTypeError("filters", problem, filters, hint=hint)
        return cls(tuple(tuple(map(_checked, terms)) for terms in ways))

    @property
    def names(self) -> tuple[str, ...]:
        """The columns in the conditions."""
        return tuple(dict.fromkeys(name for terms in self.ways for name, _, _ in terms))

    def may_hold(self, ranges: Mapping[str, Bounds]) -> bool:
        """Returns whether a row group can hold a row that meets the conditions.

        Args:
            ranges: the minimum and maximum of each column whose statistics have them.
        """
        return any(all(_may(condition, ranges) for condition in terms) for terms in self.ways)

    def rows(self, table: Any) -> Ids:
        """Returns the rows of a table that meet the conditions.

        Raises:
            Exception: any error that pyarrow raises if a value cannot be compared.
        """
        numbers = extra("pyarrow", "parquet").array(np.arange(table.num_rows))
        ways = [list(terms) for terms in self.ways]
        expression = extra("pyarrow.parquet", "parquet").filters_to_expression(ways)
        matching = table.append_column(_NUMBER, numbers).filter(expression)
        matches: Ids = matching.column(_NUMBER).to_numpy()
        return matches


def ranges_of(metadata: Any, group: int, names: Sequence[str]) -> dict[str, Bounds]:
    """Returns the minimum and maximum of columns of a row group, as far as its statistics have them.

    Args:
        metadata: the footer as parsed by pyarrow.
        group: the number of the row group.
        names: the names of the columns; their metadata was checked.
    """
    ranges = {}
    for number in range(metadata.num_columns):
        field = metadata.schema.column(number)
        if field.path not in names or field.name != field.path:  # a field of another column
            continue
        column = metadata.row_group(group).column(number)
        # Statistics of another type than that of the column would end the process. Those of floats exclude
        # nothing: some writers write NaN, and pyarrow rounds some values to float32 before it compares them.
        if column.physical_type == field.physical_type and column.physical_type not in {"FLOAT", "DOUBLE"}:
            # There may be none, or values that Python cannot represent, such as a date after year 9999.
            with suppress(Exception):
                if column.statistics.has_min_max:
                    ranges[field.path] = column.statistics.min, column.statistics.max
    return ranges


def _holds_conditions(entries: Any) -> bool:
    return isinstance(entries, list | tuple) and bool(entries) and all(map(_is_condition, entries))


def _is_condition(entry: Any) -> bool:
    is_triple = isinstance(entry, list | tuple) and len(entry) == 3
    return is_triple and isinstance(entry[0], str) and isinstance(entry[1], str)


def _checked(entry: Any) -> Condition:
    name, comparison, value = entry
    if comparison not in _COMPARISONS:
        hint = f"known: {', '.join(_COMPARISONS)}"
        raise ArgumentValueError("filters", "has an unknown comparison", comparison, hint=hint)
    if comparison in {"in", "not in"}:
        if isinstance(value, str | bytes) or not arguments.is_iterable(value):
            raise ArgumentTypeError("filters", f"must have a list of values after {comparison!r}", value)
        value = tuple(value)
    return name, comparison, value


def _may(condition: Condition, ranges: Mapping[str, Bounds]) -> bool:
    name, comparison, value = condition
    values = value if isinstance(value, tuple) else (value,)
    # Decimals and large integers are cast before they are compared with a float.
    if name in ranges and comparison in _MAY and not any(isinstance(each, float) for each in values):
        with suppress(TypeError):  # comparing the values themselves raises a better error
            return _MAY[comparison](*ranges[name], value)
    return True


Keys = tuple[tuple[str, Any], ...]
"""Names and values, the values as Arrow scalars."""


def folder_keys(paths: Sequence[str]) -> list[Keys]:
    """Reads the keys in the folder names of each file with pyarrow; the type of a key is int32 or string.

    Args:
        paths: the paths or URLs of the files.

    Raises:
        DatasetError: pyarrow is not installed, a file has no keys, or other keys than the first file.

    Example:
        >>> keys = folder_keys(["/data/year=2024/lang=en/0.parquet", "/data/year=7/lang=a%20b/0.parquet"])
        >>> [[(name, value.as_py()) for name, value in each] for each in keys]
        [[('year', 2024), ('lang', 'en')], [('year', 7), ('lang', 'a b')]]
    """
    arrow, dataset = extra("pyarrow", "parquet"), extra("pyarrow.dataset", "parquet")
    places = [shown(path) for path in paths]
    folders = places[0].split("/")[:-1]
    names = list(dict.fromkeys(folder.partition("=")[0] for folder in folders if "=" in folder))
    schema = arrow.schema([(name, arrow.string()) for name in names])
    partitioning = dataset.HivePartitioning(schema)
    keys_by_file = []
    for place in places:
        keys = dataset.get_partition_keys(guarded(place, "read", partial(partitioning.parse, place)))
        if not names or keys.keys() != set(names) or place.count("=") != places[0].count("="):
            others = "has other keys in the names of its folders than the first file"
            problem = others if names else "has no keys in the names of its folders"
            hint = "name files whose folders have the same keys, as in key=value, or leave partitioning out"
            raise DatasetError(place, problem, names, hint=hint)
        keys_by_file.append(keys)
    columns = {name: _typed(arrow, [keys[name] for keys in keys_by_file]) for name in names}
    return [tuple((name, columns[name][at]) for name in names) for at in range(len(keys_by_file))]


def _typed(arrow: Any, texts: list[str | None]) -> Any:
    column = arrow.array(texts, arrow.string())
    try:
        return column.cast(arrow.int32())
    except arrow.ArrowInvalid:
        return column
