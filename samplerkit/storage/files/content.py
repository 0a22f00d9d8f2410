"""The samples that a reader returned for one file, and batches made from several files."""

from __future__ import annotations

import hashlib
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import getitem
from typing import Any, Protocol

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
        """The name in error messages."""

    @property
    def num_bytes(self) -> int:
        """The size in memory, in bytes."""

    def samples(self, rows: Ids, places: Ids, size: int) -> list[Any]:
        """Returns the samples in `rows`, which go to these places in a batch of `size` samples."""

    def columns(self, rows: Ids) -> dict[Any, np.ndarray[Any, Any]]:
        """Returns some rows of each column, as arrays."""


@dataclass(frozen=True, eq=False)
class FileContent:
    """The samples of one file, in memory.

    Args:
        path: the file, for errors.
        data: a mapping of columns, each with one row per sample, or a sequence of samples.
        length: the number of samples.
        num_bytes: the size in memory, in bytes.
    """

    path: str
    data: Any
    length: int
    num_bytes: int

    @classmethod
    def of(cls, data: Any, path: str) -> FileContent:
        """Makes the content from the value that a reader returned.

        Args:
            data: a mapping of columns or a sequence. A column is an array, a list, or anything with a `shape`
                that can be indexed by an array of rows, as tensors can. An open `.npz` is read and closed.
            path: the file, for errors.

        Raises:
            DatasetError: `data` is neither of these, or its columns have different lengths.
        """
        if isinstance(data, np.lib.npyio.NpzFile):
            with data:
                data = dict(data.items())
        if not isinstance(data, Mapping):
            return cls(path, data, _rows(data, path, "the value from the reader"), _num_bytes(data))
        # A copy: lazy mappings are read once, and no other code changes it.
        columns = dict(data.items())
        if not columns:
            raise DatasetError(path, "holds no array")
        lengths = {key: _rows(column, path, f"array {key!r}") for key, column in columns.items()}
        if len(set(lengths.values())) > 1:
            hint = "choose arrays of one length"
            raise DatasetError(path, "holds arrays of different lengths", lengths, hint=hint)
        return cls(path, columns, next(iter(lengths.values())), sum(map(_num_bytes, columns.values())))

    def samples(self, rows: Ids, places: Ids, size: int) -> list[Any]:
        """Returns some samples: dicts of rows if there are columns, or items, each read in its own draw.

        Rows of arrays are copied, so that changing a sample does not change the file in memory.

        Args:
            rows: the rows of the samples in this file.
            places: the places of the samples in their batch.
            size: the number of samples in the whole batch.
        """
        if not isinstance(self.data, dict):
            if hasattr(self.data, "shape"):
                return list(self.select(self.data, rows))
            return in_draws(partial(self._item, self.data), rows.tolist(), places.tolist(), size)
        columns = [self.select(column, rows) for column in self.data.values()]
        keys = tuple(self.data)
        return [dict(zip(keys, row, strict=True)) for row in zip(*columns, strict=True)]

    def columns(self, rows: Ids) -> dict[Any, np.ndarray[Any, Any]]:
        """Returns some rows of each column, as arrays.

        Raises:
            DatasetError: the file is a sequence of samples, or a column cannot be made an array.
        """
        if not isinstance(self.data, dict):
            raise DatasetError(self.path, "has no columns: its reader returns a sequence of samples")
        columns, hint = {}, "read it as samples, where values may be of any kind"
        for key, column in self.data.items():
            convert = partial(np.asarray, self.select(column, rows))
            columns[key] = guarded(f"{self.path}: column {key!r}", "converted to an array", convert, hint)
        return columns

    def select(self, column: Any, rows: Ids) -> Any:
        """Returns some rows of a column: a copy if it is an array, else a list.

        Raises:
            DatasetError: the column raises an error.
        """
        if hasattr(column, "shape"):
            hint = "let the reader return arrays that can be indexed by an array of rows, as in numpy"
            return guarded(self.path, "indexed by rows", partial(getitem, column, rows), hint)
        return [self._item(column, row) for row in rows.tolist()]

    def _item(self, column: Any, row: int) -> Any:
        try:  # not `guarded`, which takes longer than many items
            return column[row]
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            raise DatasetError(f"{self.path}, row {row}", f"cannot be read ({reason})") from error


def _rows(data: Any, path: str, name: str) -> int:
    """Returns the number of rows of an array, a tensor or a sequence."""
    shape = getattr(data, "shape", None)
    if shape is not None:
        if len(shape) == 0:
            raise DatasetError(path, f"{name} has no rows: it is a single value")
        return int(shape[0])
    if isinstance(data, str | bytes) or not hasattr(data, "__getitem__") or not hasattr(data, "__len__"):
        raise DatasetError(path, f"{name} is neither an array nor a sequence, but {type(data).__name__}")
    return len(data)


def _num_bytes(data: Any) -> int:
    """Returns the size in memory of an array or a list, with the objects in it."""
    items: Iterable[Any] = data if isinstance(data, list | tuple) else ()
    if isinstance(data, np.ndarray) and data.dtype == object:
        items = data.flat
    return _own_bytes(data) + sum(map(_own_bytes, items))


def _own_bytes(data: Any) -> int:
    size = getattr(data, "nbytes", None)
    return size if isinstance(size, int) else sys.getsizeof(data)


@dataclass(frozen=True, eq=False)
class LazySamples:
    """A sequence of samples, each made when it is indexed.

    Args:
        raw: the items that samples are made from.
        make: makes a sample from an item.
        nbytes: the size of `raw` in memory.
    """

    raw: Sequence[Any]
    make: Callable[[Any], Any]
    nbytes: int

    def __len__(self) -> int:
        return len(self.raw)

    def __getitem__(self, number: int) -> Any:
        return self.make(self.raw[number])


def read_decoded(read: Callable[[int], Any], decode: DecodeSample | None, number: int) -> Any:
    """Reads a chunk, whose samples are decoded, if at all, when they are read."""
    content = read(number)
    if decode is None:
        return content
    return replace(content, data=LazySamples(content.data, decode, content.num_bytes))


@dataclass(frozen=True, eq=False, kw_only=True)
class ChunkFile(ABC):
    """A file of chunks, as it was when it was first opened: it is sent to workers and reads chunks there.

    Args:
        sizes: the number of samples in each chunk.
        columns: names and types of the columns to read, the same in all files of a dataset; empty if files
            have no columns.
        digest: changes with the content; empty if there is no such digest.
    """

    sizes: Sequence[int] = ()
    columns: tuple[Any, ...] = ()
    digest: bytes = b""

    @abstractmethod
    def place(self, chunk: int) -> str:
        """Returns the name of a chunk in error messages."""

    @abstractmethod
    def read(self, chunk: int) -> Content:
        """Reads a chunk; any exception is turned into an error that names the chunk."""


def names_of(columns: Any, place: str = "columns") -> tuple[str, ...] | None:
    """Checks the column names that a user gave; None for all columns.

    Args:
        columns: the value that was given.
        place: the name of the argument in errors.

    Raises:
        ArgumentTypeError: `columns` is not a list of names.
        ArgumentValueError: the list or a name is empty, or a name is given twice.
    """
    if columns is None:
        return None
    if isinstance(columns, str) or not isinstance(columns, Sequence):
        raise ArgumentTypeError(place, "must be a list of names", columns)
    if not columns:
        raise ArgumentValueError(place, "must not be empty", columns, hint="leave it out for the default")
    names = tuple(arguments.word(f"{place}[{number}]", name) for number, name in enumerate(columns))
    if len(set(names)) < len(names):
        raise ArgumentValueError(place, "must name each once", columns)
    return names


def require_columns(place: str, columns: Sequence[str], required: Sequence[str]) -> None:
    """Checks that a file holds each required column once.

    Raises:
        DatasetError: a column is missing, or several have its name.
    """
    for name in required:
        if columns.count(name) != 1:
            raise DatasetError(place, f"must have one column {name!r}", list(columns))


def entries_of(sample: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """Selects entries of a sample.

    Raises:
        ValueError: an entry is missing.
    """
    missing = next((name for name in names if name not in sample), None)
    if missing is not None:
        raise ValueError(f"no entry {missing!r} among {sorted(sample)}")
    return {name: sample[name] for name in names}


ContentPart = tuple[Content, Ids, Ids]
"""A file or chunk, some of its rows, and their places in the batch."""

Array = np.ndarray[Any, Any]


def gathered_samples(parts: Iterable[ContentPart], size: int) -> list[Any]:
    """Returns the samples of a batch."""
    samples: list[Any] = [None] * size
    for content, rows, places in parts:
        for place, sample in zip(places.tolist(), content.samples(rows, places, size), strict=True):
            samples[place] = sample
        del content  # frees it before the next one is read
    return samples


def gathered_columns(parts: Iterable[ContentPart], size: int) -> dict[Any, Array]:
    """Returns a batch as one array per column, of shape (size, ...).

    Raises:
        DatasetError: a file is not a mapping of columns, or the names, shapes or types of its columns differ
            from the file before.
    """
    columns: dict[Any, Array] = {}
    for content, rows, places in parts:
        arrays = content.columns(rows)
        if not columns:
            columns = {key: np.empty((size, *part.shape[1:]), part.dtype) for key, part in arrays.items()}
        if arrays.keys() != columns.keys():
            raise DatasetError(content.path, f"holds other columns than {list(columns)}", list(arrays))
        for key, part in arrays.items():
            column = columns[key] = _as_wide(columns[key], part, f"{content.path}: column {key!r}")
            column[places] = part
        del content  # frees it before the next one is read
    return columns


def _as_wide(column: Array, part: Array, place: str) -> Array:
    """Returns the column in a type that can hold a part: its strings may be longer than those before."""
    # Times in finer units might not hold those of coarser ones; records may have other fields.
    is_same = part.dtype == column.dtype if part.dtype.kind in "mMV" else part.dtype.kind == column.dtype.kind
    if not is_same or part.shape[1:] != column.shape[1:]:
        before = f"{column.dtype} of shape {column.shape[1:]}"
        raise DatasetError(place, f"differs from the one before, {before}", f"{part.dtype} {part.shape[1:]}")
    return column.astype(np.result_type(column, part), copy=False)


def checked_decode(decode: Any, of: str = "a sample") -> DecodeSample | None:
    """Checks the user's function that decodes samples; None for none.

    Raises:
        ArgumentTypeError: it is not callable.
    """
    checked: DecodeSample | None = None if decode is None else arguments.function("decode", decode, of)
    return checked


def digest_of(data: bytes) -> bytes:
    """Returns a digest of data, for a fingerprint."""
    return hashlib.blake2b(data, digest_size=16).digest()
