"""What a reader gave for one file, and batches made of what lies in several."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import getitem
from typing import Any, Protocol, final

import numpy as np

from samplerkit.errors import ArgumentTypeError, ArgumentValueError, DatasetError
from samplerkit.order import arguments
from samplerkit.order.draws import in_draws
from samplerkit.order.typing import Ids
from samplerkit.storage.files.packages import guarded

DecodeSample = Callable[[Any], Any]


class Content(Protocol):
    """The samples of one file or chunk, in memory."""

    @property
    def path(self) -> str:
        """What errors call it."""

    @property
    def length(self) -> int:
        """The number of samples."""

    @property
    def num_bytes(self) -> int:
        """The memory that it takes."""

    def samples(self, rows: Ids, places: Ids, size: int) -> list[Any]:
        """Gives some samples: `rows` of it, which have these places in a batch of so many."""

    def columns(self, rows: Ids) -> dict[Any, np.ndarray[Any, Any]]:
        """Gives some rows of each column, as arrays."""


@final
@dataclass(frozen=True, eq=False)
class FileContent:
    """The samples of one file, in memory.

    Args:
        path: the file, for errors.
        data: a mapping of columns, each with a row a sample, or a sequence of samples.
        length: the number of samples.
        num_bytes: the memory that it takes.
    """

    path: str
    data: Any
    length: int
    num_bytes: int

    @classmethod
    def of(cls, data: Any, path: str) -> FileContent:
        """Takes what a reader gave.

        Args:
            data: a mapping of columns or a sequence. A column is an array, a list, or anything with a `shape`
                that is indexed by an array of rows, as tensors are. An open `.npz` is read and closed.
            path: the file, for errors.

        Raises:
            DatasetError: neither, or columns of different lengths.
        """
        if isinstance(data, np.lib.npyio.NpzFile):
            with data:
                data = dict(data.items())
        if not isinstance(data, Mapping):
            return cls(path, data, _rows(data, path, "what the reader gives"), _num_bytes(data))
        # A copy, so that lazy mappings are read once, and nobody else changes it.
        columns = dict(data.items())
        if not columns:
            raise DatasetError(path, "holds no array")
        lengths = {key: _rows(column, path, f"array {key!r}") for key, column in columns.items()}
        if len(set(lengths.values())) > 1:
            raise DatasetError(path, "holds arrays of different lengths", lengths)
        return cls(path, columns, next(iter(lengths.values())), sum(map(_num_bytes, columns.values())))

    def samples(self, rows: Ids, places: Ids, size: int) -> list[Any]:
        """Gives some samples: of columns, a dict of rows each; of a sequence, its items, each in its draw.

        Values from arrays are copies, so that a change of a sample does not change the file.

        Args:
            rows: of the samples in this file.
            places: of the samples in their batch.
            size: the samples of the whole batch.
        """
        if not isinstance(self.data, dict):
            if hasattr(self.data, "shape"):
                return list(self.taken(self.data, rows))
            return in_draws(partial(self._item, self.data), rows.tolist(), places.tolist(), size)
        columns = [self.taken(column, rows) for column in self.data.values()]
        keys = tuple(self.data)
        return [dict(zip(keys, row, strict=True)) for row in zip(*columns, strict=True)]

    def columns(self, rows: Ids) -> dict[Any, np.ndarray[Any, Any]]:
        """Gives some rows of each column, as arrays.

        Raises:
            DatasetError: the file is a sequence of samples, or a column is no array.
        """
        if not isinstance(self.data, dict):
            raise DatasetError(self.path, "has no columns: its reader gives a sequence of samples")
        found = {key: self.taken(column, rows) for key, column in self.data.items()}
        hint = "read it as samples, where values may be of any kind"
        return {
            key: guarded(f"{self.path}: column {key!r}", "made an array", partial(np.asarray, values), hint)
            for key, values in found.items()
        }

    def taken(self, column: Any, rows: Ids) -> Any:
        """Gives some rows of a column: of an array a copy, of anything else a list.

        Raises:
            DatasetError: it refuses.
        """
        if hasattr(column, "shape"):
            hint = "let the reader give arrays that an array of rows selects from, as numpy's do"
            return guarded(self.path, "taken apart by rows", partial(getitem, column, rows), hint)
        return [self._item(column, row) for row in rows.tolist()]

    def _item(self, column: Any, row: int) -> Any:
        try:  # not `guarded`, which takes longer than many items
            return column[row]
        except Exception as error:
            what = f"{type(error).__name__}: {error}"
            raise DatasetError(f"{self.path}, row {row}", f"cannot be read ({what})") from error


def _rows(data: Any, path: str, what: str) -> int:
    """Gives the number of rows of an array, a tensor or a sequence."""
    shape = getattr(data, "shape", None)
    if shape is not None:
        if len(shape) == 0:
            raise DatasetError(path, f"{what} has no rows: it is a single value")
        return int(shape[0])
    if isinstance(data, str | bytes) or not hasattr(data, "__getitem__") or not hasattr(data, "__len__"):
        raise DatasetError(path, f"{what} is neither an array nor a sequence, but {type(data).__name__}")
    return len(data)


def _num_bytes(data: Any) -> int:
    """Gives the memory that an array, or a list and what is in it, takes."""
    if isinstance(data, np.ndarray):
        return int(data.nbytes) + (_of_all(data.flat) if data.dtype == object else 0)
    size = getattr(data, "nbytes", None)
    if isinstance(size, int):
        return size
    return sys.getsizeof(data) + (_of_all(data) if isinstance(data, list | tuple) else 0)


def _of_all(items: Iterable[Any]) -> int:
    total = 0
    for item in items:
        size = getattr(item, "nbytes", None)
        total += size if isinstance(size, int) else sys.getsizeof(item)
    return total


@final
@dataclass(frozen=True, eq=False)
class MadeSamples:
    """A sequence of samples, each made when it is asked for.

    Args:
        raw: what they are made of.
        make: makes one.
        nbytes: the memory that `raw` takes.
    """

    raw: Sequence[Any]
    make: Callable[[Any], Any]
    nbytes: int

    def __len__(self) -> int:
        return len(self.raw)

    def __getitem__(self, number: int) -> Any:
        return self.make(self.raw[number])


@dataclass(frozen=True, eq=False, kw_only=True)
class ChunkFile(ABC):
    """A file of chunks, as it was when it was looked at: it travels to workers, and reads chunks there.

    Args:
        sizes: how many samples each chunk has.
        columns: names and types of those that are read, which all files of a dataset have alike; empty where
            files have no columns.
        digest: changes with what was looked at; empty where nothing says so.
    """

    sizes: Sequence[int] = ()
    columns: tuple[Any, ...] = ()
    digest: bytes = b""

    @abstractmethod
    def place(self, chunk: int) -> str:
        """What errors call a chunk."""

    @abstractmethod
    def read(self, chunk: int) -> Content:
        """Reads a chunk; any exception becomes an error that names its place."""


def names_of(columns: Any, called: str = "columns") -> tuple[str, ...] | None:
    """Takes the columns that a user names; None for all.

    Args:
        columns: what was given.
        called: the name of the argument.

    Raises:
        ArgumentTypeError: no list of names.
        ArgumentValueError: there is none, one is empty, or one is named twice.
    """
    if columns is None:
        return None
    if isinstance(columns, str) or not isinstance(columns, Sequence):
        raise ArgumentTypeError(called, "must be a list of names", columns)
    if not columns:
        raise ArgumentValueError(called, "must not be empty", columns, hint="leave it out for all there are")
    names = tuple(arguments.word(f"{called}[{number}]", name) for number, name in enumerate(columns))
    if len(set(names)) < len(names):
        raise ArgumentValueError(called, "must name each once", columns)
    return names


def require_columns(place: str, columns: Sequence[str], wanted: Sequence[str]) -> None:
    """Requires columns that a file holds, each once.

    Raises:
        DatasetError: one is missing, or there are several of its name.
    """
    for name in wanted:
        if columns.count(name) != 1:
            found = f"{columns.count(name)} columns" if name in columns else "no column"
            raise DatasetError(place, f"holds {found} {name!r}, but only", list(columns))


ContentPart = tuple[Content, Ids, Ids]
"""A file or chunk, rows of it, and the places in the batch to which they belong."""

Array = np.ndarray[Any, Any]


def gathered_samples(parts: Iterable[ContentPart], size: int) -> list[Any]:
    """Gives the samples of a batch."""
    samples: list[Any] = [None] * size
    for content, rows, places in parts:
        for place, sample in zip(places.tolist(), content.samples(rows, places, size), strict=True):
            samples[place] = sample
        del content  # it is let go now
    return samples


def gathered_columns(parts: Iterable[ContentPart], size: int) -> dict[Any, Array]:
    """Gives an array a column, of shape (size, ...).

    Raises:
        DatasetError: a file is no mapping of columns, or its columns or their shapes or types are not those
            of the file before.
    """
    columns: dict[Any, Array] = {}
    for content, rows, places in parts:
        found = content.columns(rows)
        if not columns:
            columns = {key: np.empty((size, *part.shape[1:]), part.dtype) for key, part in found.items()}
        if found.keys() != columns.keys():
            raise DatasetError(content.path, f"holds other columns than {list(columns)}", list(found))
        for key, part in found.items():
            column = columns[key] = _as_wide(columns[key], part, f"{content.path}: column {key!r}")
            column[places] = part
        del content  # it is let go now
    return columns


def _as_wide(column: Array, part: Array, place: str) -> Array:
    """Gives a column that can hold a part: texts may be longer than those before."""
    if part.shape[1:] != column.shape[1:] or part.dtype.kind != column.dtype.kind:
        before = f"{column.dtype} of shape {column.shape[1:]}"
        raise DatasetError(place, f"differs from the file before, {before}", f"{part.dtype} {part.shape[1:]}")
    return column.astype(np.result_type(column, part), copy=False)


def checked_decode(decode: Any, of: str = "a sample") -> DecodeSample | None:
    """Takes the function by which a user decodes samples; None for none.

    Raises:
        ArgumentTypeError: it cannot be called.
    """
    if decode is not None and not callable(decode):
        raise ArgumentTypeError("decode", f"must be a function of {of}", decode)
    checked: DecodeSample | None = decode
    return checked
