"""Samples in a record batch of Arrow's: numpy's where a type has no nulls, else as pyarrow gives them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final, Literal, final, get_args

import numpy as np

from samplerkit.errors import DatasetError
from samplerkit.order import arguments
from samplerkit.order.typing import Ids
from samplerkit.storage.files.content import ContentPart, gathered_columns, gathered_samples
from samplerkit.storage.files.packages import extra, guarded

Array = np.ndarray[Any, Any]

Batches = Literal["samples", "columns", "tensors"]
"""What a batch is: a list of samples, or a dict with an array or a tensor a column."""

ArrowBatches = Literal["samples", "columns", "tensors", "arrow"]
"""The same, or an Arrow record batch."""


@final
@dataclass(frozen=True, eq=False)
class ArrowContent:
    """The samples of a chunk in a record batch of Arrow's.

    Args:
        path: the name in error messages.
        whole: its rows.
        kept: the rows that are samples; None for all.
    """

    path: str
    whole: Any
    kept: Ids | None = None
    _arrays: dict[str, Any] = field(default_factory=dict, repr=False)

    @property
    def length(self) -> int:
        """The number of samples."""
        return int(self.whole.num_rows) if self.kept is None else self.kept.size

    @property
    def num_bytes(self) -> int:
        """The memory that it takes."""
        return int(self.whole.nbytes)

    def samples(self, rows: Ids, places: Ids, size: int) -> list[Any]:
        """Returns some samples, a dict each: numbers and lists of them are numpy's, all else plain Python."""
        rows = self._of_whole(rows)
        names = self.whole.schema.names
        columns = [self._values(name, rows) for name in names]
        return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]

    def columns(self, rows: Ids) -> dict[Any, Array]:
        """Returns some rows of each column; what is no number is an array of objects.

        Raises:
            DatasetError: a number is null: the type of a column is not to change from batch to batch.
        """
        rows = self._of_whole(rows)
        return {name: self._array(name, rows) for name in self.whole.schema.names}

    def batch(self, rows: Ids) -> Any:
        """Returns some rows as a record batch: without a copy where they follow one another."""
        rows = self._of_whole(rows)
        if rows.size and (np.diff(rows) == 1).all():
            return self.whole.slice(int(rows[0]), rows.size)
        return _taken_apart(self.path, self.whole, rows)

    def _array(self, name: str, rows: Ids) -> Array:
        values = self._values(name, rows)
        if not isinstance(values, np.ndarray) and _is_of_numbers(self.whole.schema.field(name).type):
            hint = "read it as samples or arrow, filter the nulls out, or leave the column out"
            raise DatasetError(
                self.path, f"column {name!r} holds a null, which no array of numbers can", hint=hint
            )
        return _as_array(values)

    def _of_whole(self, rows: Ids) -> Ids:
        return rows if self.kept is None else self.kept[rows]

    def _values(self, name: str, rows: Ids) -> Any:
        """Returns some rows of a column: an array, or a list."""
        known = self._arrays.get(name)
        if known is None:
            column = self.whole.column(name)
            if name not in self._arrays:
                # Of numbers a view, so that this costs nothing; it is kept for what must be converted.
                known = self._arrays[name] = as_numbers(column) if len(column) else None
        if known is not None:
            return known[rows]
        # Arrow has times after Python's last year, texts that were not checked, and types without a `take`.
        what = f"converted to Python values, column {name!r}"
        hint = "read it as arrow, or leave the column out"
        return guarded(self.path, what, lambda: _values_of(self.whole.select([name]), rows), hint)


def _values_of(batch: Any, rows: Ids) -> Any:
    """Returns some rows of the only column of a batch, which is not all numbers: an array, or a list."""
    types, column = _arrow().types, batch.column(0)
    if types.is_list(column.type) or types.is_large_list(column.type):
        values = as_numbers(column.values)
        if values is not None:
            starts, there = column.offsets.to_numpy(), column.is_valid().to_numpy(zero_copy_only=False)
            return [values[starts[r] : starts[r + 1]].copy() if there[r] else None for r in rows.tolist()]
    taken = _taken(batch, rows).column(0)
    if not _is_of_numbers(taken.type):
        return taken.to_pylist()
    numbers = as_numbers(taken.drop_null())
    if numbers is None:  # of lists with nulls in them: what another becomes does not depend on these
        inner = (getattr(one, "values", None) for one in taken)  # a tensor has none
        arrays = [None if each is None else as_numbers(each) for each in inner]
        return [
            one.as_py() if array is None else array.copy() for one, array in zip(taken, arrays, strict=True)
        ]
    there, rest = taken.is_valid().to_numpy(zero_copy_only=False), iter(numbers.copy())
    return [next(rest) if is_there else None for is_there in there] if taken.null_count else numbers.copy()


def gather_of(batches: Any, *, has_arrow: bool = False) -> Any:
    """Returns what makes a batch of the parts of chunks.

    Raises:
        ArgumentValueError: it is none of the words.
    """
    arguments.choice("batches", batches, get_args(ArrowBatches if has_arrow else Batches))
    return _GATHERS[batches]


def gathered_tensors(parts: Iterable[ContentPart], size: int) -> dict[Any, Any]:
    """Returns a tensor a column, over the memory of its array; what torch has no type for stays an array."""
    torch = extra("torch", "torch")
    columns = gathered_columns(parts, size)
    return {name: torch.from_numpy(a) if a.dtype.kind in "biufc" else a for name, a in columns.items()}


def gathered_arrow(parts: Iterable[ContentPart], _size: int) -> Any:
    """Returns a record batch; a slice of a chunk, without a copy, where the batch is one."""
    found: list[Any] = []
    places: list[Ids] = []
    for content, rows, mine in parts:
        if isinstance(content, ArrowContent):
            found.append(content.batch(rows))
            places.append(mine)
        del content  # frees it before the next one is read
    if not found:
        return _arrow().record_batch({})
    order = np.concatenate(places)
    is_in_order = bool((np.diff(order) > 0).all())
    if len(found) == 1 and is_in_order:
        return found[0]
    batch = as_record_batch(_arrow().Table.from_batches(found))
    return batch if is_in_order else _taken_apart("batch", batch, np.argsort(order))


def _taken_apart(place: str, batch: Any, rows: Ids) -> Any:
    hint = "leave out columns of such types"
    return guarded(place, "taken apart", lambda: _taken(batch, rows), hint)


def _taken(batch: Any, rows: Ids) -> Any:
    pa = _arrow()
    try:
        return batch.take(pa.array(rows))
    except pa.ArrowNotImplementedError:  # of views and of runs, for example
        return pa.concat_batches([batch.slice(row, 1) for row in rows.tolist()])


def as_record_batch(table: Any) -> Any:
    """Returns a table as one record batch; columns in pieces are joined.

    Raises:
        pyarrow.ArrowInvalid: a column is too large for one array.
    """
    pa = _arrow()
    columns = [one.chunk(0) if one.num_chunks == 1 else one.combine_chunks() for one in table.columns]
    return pa.RecordBatch.from_arrays(columns, schema=table.schema)


def _is_of_numbers(kind: Any) -> bool:
    """Whether a type is one of numbers, or of lists or tensors of these that have one shape."""
    while _arrow().types.is_fixed_size_list(kind) or isinstance(kind, _arrow().FixedShapeTensorType):
        kind = kind.value_type
    return is_number(kind)


def is_number(kind: Any) -> bool:
    """Whether numpy has a type for a type of Arrow: numbers, truths, dates and times without a zone."""
    types = _arrow().types
    is_time = types.is_date(kind) or types.is_duration(kind) or (types.is_timestamp(kind) and kind.tz is None)
    return bool(is_time or types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind))


def as_numbers(array: Any) -> Array | None:
    """Returns an array of numbers, or of fixed lists of these, as numpy does; None where it has nulls."""
    if array.null_count:
        return None
    if isinstance(array, _arrow().FixedShapeTensorArray):
        # It would make zeros of nulls within.
        return None if as_numbers(array.storage) is None else array.to_numpy_ndarray()
    if _arrow().types.is_fixed_size_list(array.type):
        # `flatten` leaves out what `slice` left out, and `values` would not.
        inner = as_numbers(array.flatten())
        return None if inner is None else inner.reshape(len(array), array.type.list_size, *inner.shape[1:])
    return array.to_numpy(zero_copy_only=False) if is_number(array.type) else None


def _as_array(values: Any) -> Array:
    if isinstance(values, np.ndarray):
        return values
    # Not np.array: lists of one length would become one array.
    array = np.empty(len(values), dtype=object)
    for row, value in enumerate(values):
        array[row] = value
    return array


def _arrow() -> Any:
    return extra("pyarrow", "parquet")


_GATHERS: Final[dict[str, Any]] = {
    "samples": gathered_samples,
    "columns": gathered_columns,
    "tensors": gathered_tensors,
    "arrow": gathered_arrow,
}
