"""Samples in an Arrow record batch, converted to numpy if there are no nulls, else to Python values."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final, Literal, get_args

import numpy as np

from samplerkit.errors import DatasetError
from samplerkit.order import arguments
from samplerkit.order.typing import Ids
from samplerkit.storage.files.content import ContentPart, gathered_columns, gathered_samples
from samplerkit.storage.files.packages import extra, guarded

Array = np.ndarray[Any, Any]

Batches = Literal["samples", "columns", "tensors"]
"""The form of a batch: a list of samples, or a dict with an array or a tensor per column."""

ArrowBatches = Literal["samples", "columns", "tensors", "arrow"]
"""The form of a batch: as `Batches`, or an Arrow record batch."""


@dataclass(frozen=True, eq=False)
class ArrowContent:
    """The samples of a chunk, held in an Arrow record batch.

    Args:
        path: the name in error messages.
        records: the record batch, a row per sample.
    """

    path: str
    records: Any
    _arrays: dict[str, Any] = field(default_factory=dict, repr=False)

    @property
    def length(self) -> int:
        """The number of samples."""
        return int(self.records.num_rows)

    @property
    def num_bytes(self) -> int:
        """The size in memory, in bytes."""
        return int(self.records.nbytes)

    def samples(self, rows: Ids, places: Ids, size: int) -> list[Any]:
        """Returns samples as dicts: numbers and lists of numbers as numpy values, others as Python values."""
        names = self.records.schema.names
        columns = [self._values(name, rows) for name in names]
        return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]

    def columns(self, rows: Ids) -> dict[Any, Array]:
        """Returns some rows of each column as arrays; columns of other types than numbers have dtype object.

        Raises:
            DatasetError: a number is null: the type of a column must not differ between batches.
        """
        return {name: self._array(name, rows) for name in self.records.schema.names}

    def batch(self, rows: Ids) -> Any:
        """Returns some rows as a record batch, without a copy if they are consecutive."""
        if rows.size and (np.diff(rows) == 1).all():
            return self.records.slice(int(rows[0]), rows.size)
        return _guarded_take(self.path, self.records, rows)

    def _array(self, name: str, rows: Ids) -> Array:
        values = self._values(name, rows)
        if isinstance(values, np.ndarray):
            return values
        if _is_of_numbers(self.records.schema.field(name).type):
            hint = "read it as samples or arrow, filter the nulls out, or leave the column out"
            problem = f"column {name!r} holds a null, which an array of numbers cannot"
            raise DatasetError(self.path, problem, hint=hint)
        # Not np.array: lists of one length would become one array.
        return np.fromiter(values, object, len(values))

    def _values(self, name: str, rows: Ids) -> Any:
        """Returns some rows of a column: an array, or a list."""
        if name not in self._arrays:
            column = self.records.column(name)
            # A view if the column holds numbers, which costs nothing; kept for columns to be converted.
            self._arrays[name] = as_numbers(column) if len(column) else None
        cached = self._arrays[name]
        if cached is not None:
            return cached[rows]
        # Arrow has times after Python's last year, strings that were not validated, and types without `take`.
        action = f"converted to Python values, column {name!r}"
        hint = "read it as arrow, or leave the column out"
        return guarded(self.path, action, lambda: _values_of(self.records.select([name]), rows), hint)


def _values_of(batch: Any, rows: Ids) -> Any:
    """Returns some rows of the only column of a batch, if it does not hold only numbers, as array or list."""
    types, column = _arrow().types, batch.column(0)
    is_list = types.is_list(column.type) or types.is_large_list(column.type)
    if is_list:
        values = as_numbers(column.values)
        if values is not None:
            starts, is_valid = column.offsets.to_numpy(), column.is_valid().to_numpy(zero_copy_only=False)
            return [values[starts[r] : starts[r + 1]].copy() if is_valid[r] else None for r in rows.tolist()]
    taken = take(batch, rows).column(0)
    if not _is_of_numbers(taken.type.value_type if is_list else taken.type):
        return taken.to_pylist()
    numbers = None if is_list else as_numbers(taken.drop_null())
    if numbers is None:  # some lists hold nulls: how a list is converted must not depend on the others
        inner = (getattr(item, "values", None) for item in taken)  # a tensor has none
        arrays = [None if part is None else as_numbers(part) for part in inner]
        return [
            item.as_py() if array is None else array.copy() for item, array in zip(taken, arrays, strict=True)
        ]
    is_valid, rest = taken.is_valid().to_numpy(zero_copy_only=False), iter(numbers.copy())
    return [next(rest) if valid else None for valid in is_valid] if taken.null_count else numbers.copy()


def gather_of(batches: Any, *, has_arrow: bool = False) -> Any:
    """Returns the function that makes a batch from the parts of several chunks.

    Raises:
        ArgumentValueError: `batches` is not a known form.
    """
    arguments.choice("batches", batches, get_args(ArrowBatches if has_arrow else Batches))
    return _GATHERS[batches]


def gathered_tensors(parts: Iterable[ContentPart], size: int) -> dict[Any, Any]:
    """Returns one tensor per column, sharing memory with the array; columns of other types stay arrays."""
    torch = extra("torch", "torch")
    columns = gathered_columns(parts, size)
    return {name: torch.from_numpy(a) if a.dtype.kind in "biufc" else a for name, a in columns.items()}


def gathered_arrow(parts: Iterable[Any], _size: int) -> Any:
    """Returns a record batch: a slice without a copy if the batch is a slice of one chunk."""
    batches: list[Any] = []
    places: list[Ids] = []
    for content, rows, positions in parts:
        batches.append(content.batch(rows))
        places.append(positions)
        del content  # frees it before the next one is read
    if not batches:
        return _arrow().record_batch({})
    order = np.concatenate(places)
    batch = batches[0] if len(batches) == 1 else as_record_batch(_arrow().Table.from_batches(batches))
    return batch if (np.diff(order) > 0).all() else _guarded_take("batch", batch, np.argsort(order))


def _guarded_take(place: str, batch: Any, rows: Ids) -> Any:
    hint = "leave out columns of such types"
    return guarded(place, "indexed by rows", lambda: take(batch, rows), hint)


def take(batch: Any, rows: Ids) -> Any:
    """Returns some rows of a record batch, as a copy."""
    pa = _arrow()
    try:
        return batch.take(pa.array(rows))
    except pa.ArrowNotImplementedError:  # for example for views and run-end encoded columns
        return pa.concat_batches([batch.slice(row, 1) for row in rows.tolist()])


def as_record_batch(table: Any) -> Any:
    """Returns a table as one record batch; the chunks of columns are joined.

    Raises:
        pyarrow.ArrowInvalid: a column is too large for one array.
    """
    pa = _arrow()
    columns = [c.chunk(0) if c.num_chunks == 1 else c.combine_chunks() for c in table.columns]
    return pa.RecordBatch.from_arrays(columns, schema=table.schema)


def _is_of_numbers(kind: Any) -> bool:
    """Whether a type holds numbers, or lists or tensors of numbers of one shape."""
    while _arrow().types.is_fixed_size_list(kind) or isinstance(kind, _arrow().FixedShapeTensorType):
        kind = kind.value_type
    return is_number(kind)


def is_number(kind: Any) -> bool:
    """Whether numpy has this Arrow type: numbers, booleans, dates and times without a time zone."""
    types = _arrow().types
    is_time = types.is_date(kind) or types.is_duration(kind) or (types.is_timestamp(kind) and kind.tz is None)
    return bool(is_time or types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind))


def as_numbers(array: Any) -> Array | None:
    """Returns numbers, or fixed-size lists of numbers, as a numpy array; None if there are nulls."""
    if array.null_count:
        return None
    if isinstance(array, _arrow().FixedShapeTensorArray):
        # `to_numpy_ndarray` would turn nulls into zeros.
        return None if as_numbers(array.storage) is None else array.to_numpy_ndarray()
    if _arrow().types.is_fixed_size_list(array.type):
        # `flatten` respects slices of the array, `values` does not.
        inner = as_numbers(array.flatten())
        return None if inner is None else inner.reshape(len(array), array.type.list_size, *inner.shape[1:])
    return array.to_numpy(zero_copy_only=False) if is_number(array.type) else None


def _arrow() -> Any:
    return extra("pyarrow", "parquet")


_GATHERS: Final[dict[str, Any]] = {
    "samples": gathered_samples,
    "columns": gathered_columns,
    "tensors": gathered_tensors,
    "arrow": gathered_arrow,
}
