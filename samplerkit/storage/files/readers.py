"""The built-in readers and their names: npz and npy, parquet, csv and tsv, jsonl and text."""

import io
import math
import os
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, BinaryIO, Final

import numpy as np

from samplerkit.errors import ArgumentTypeError, ArgumentValueError, DatasetError
from samplerkit.order import arguments
from samplerkit.storage.arrays import npy_header
from samplerkit.storage.files.content import LazySamples, require_columns
from samplerkit.storage.files.file_reader import FileReader, has_get_data
from samplerkit.storage.files.json_lines import LineDecoder, LineKind, Lines, line_ends, lines_of
from samplerkit.storage.files.packages import extra
from samplerkit.storage.inflate import max_unpacked, unpacked
from samplerkit.storage.open_files import open_regular


def file_reader(reader: Any, *, or_any: bool = False) -> FileReader:
    """Makes a `FileReader` from any form of a reader.

    Args:
        reader: the name of a built-in reader (`npz`, `npy`, `parquet`, `csv`, `tsv`, `jsonl`, `text`) or of
            a registered one; or a callable from a path to a mapping of arrays or a sequence, which may have
            a method `count(path)`; or a callable with an argument `get_data` that returns `(data, length)`
            if it is True, and the length alone otherwise.
        or_any: whether a callable with `**kwargs` has the argument `get_data`.

    Raises:
        ArgumentTypeError: `reader` is none of these.
        ArgumentValueError: the name is unknown.
    """
    if isinstance(reader, str):
        if reader not in READERS:
            hint = f"known: {', '.join(READERS)}; register_reader adds one of yours"
            raise ArgumentValueError("reader", "is not known", reader, hint=hint)
        reader = READERS[reader]
    if isinstance(reader, type) or not callable(reader):
        hint = "give an instance of the class" if isinstance(reader, type) else ""
        problem = "must be a function of a path or a reader's name"
        raise ArgumentTypeError("reader", problem, reader, hint=hint)
    return FileReader(reader, gives_length=has_get_data(reader, or_any=or_any))


def register_reader(name: str, reader: Callable[..., Any]) -> None:
    r"""Registers your own reader under a name, for `FileDataset` and for configs of this process.

    A dataset holds the reader itself, so its workers need no registration. Registering the same reader again
    does nothing.

    Args:
        name: the name, a word.
        reader: a function of a path, in any form that `FileDataset` accepts.

    Raises:
        ArgumentTypeError: the name is not a string, or the reader is not a function.
        ArgumentValueError: the name is empty, or another reader has it.

    Example:
        >>> import os, tempfile
        >>> import samplerkit as sk
        >>> def read_numbers(path):
        ...     with open(path) as file:
        ...         return [int(line) for line in file]
        >>> sk.register_reader("numbers", read_numbers)
        >>> path = os.path.join(tempfile.mkdtemp(), "a.txt")
        >>> with open(path, "w") as file:
        ...     _ = file.write("7\n8\n9\n")
        >>> sk.FileDataset([path], "numbers")[1]
        8
    """
    arguments.word("name", name)
    if isinstance(reader, str):
        raise ArgumentTypeError("reader", "must be a function of a path", reader)
    file_reader(reader)
    if READERS.setdefault(name, reader) != reader:
        raise ArgumentValueError("name", f"is taken by {READERS[name]!r}", name, hint="use another name")


Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class NpzReader:
    """Reads `.npz` files, one column per array, never with pickle.

    Args:
        keys: the arrays to read; None for all.
        max_unpacked_bytes: the largest uncompressed size of all arrays of a file together. None for 200
            times the size of the file, or 1 GiB if that is more.

    Example:
        >>> import os, tempfile
        >>> path = os.path.join(tempfile.mkdtemp(), "a.npz")
        >>> np.savez(path, x=np.zeros((3, 2)), y=np.arange(3))
        >>> NpzReader(keys=("y",))(path), NpzReader().count(path)
        ({'y': array([0, 1, 2])}, 3)
    """

    keys: tuple[str, ...] | None = None
    max_unpacked_bytes: int | None = None

    def __call__(self, path: str) -> dict[str, Array]:
        """Reads the arrays of a file."""
        try:
            with open_regular(path) as file:
                arrays = np.load(file, allow_pickle=False)
                if not isinstance(arrays, np.lib.npyio.NpzFile):
                    raise DatasetError(path, "is not an npz file", hint="read it with 'npy'")
                chosen = self._select(arrays.files, path)
                entries = [] if arrays.zip is None else arrays.zip.infolist()
                members = {entry.filename.removesuffix(".npy"): entry for entry in entries}
                self._check_size([members[key] for key in chosen], os.fstat(file.fileno()).st_size, path)
                return {key: arrays[key] for key in chosen}
        except MemoryError:
            self.count(path)  # says so if the file claims more than it holds
            raise

    def count(self, path: str) -> int:
        """Returns the number of rows, read from the headers of the arrays."""
        with open_regular(path) as file, zipfile.ZipFile(file) as archive:
            members = {name.removesuffix(".npy"): name for name in archive.namelist()}
            lengths = {}
            for key in self._select(list(members), path):
                with archive.open(members[key]) as member:
                    size = archive.getinfo(members[key]).file_size
                    lengths[key] = _rows_in_header(member, f"{path}: array {key!r}", size)
        if len(set(lengths.values())) != 1:
            raise DatasetError(path, "must hold arrays of one length", lengths)
        return next(iter(lengths.values()))

    def _check_size(self, members: list[zipfile.ZipInfo], packed: int, path: str) -> None:
        """Checks the sizes before decompressing: zipfile reads no more of a member than it claims."""
        limit = max_unpacked(packed, self.max_unpacked_bytes)
        if sum(member.file_size for member in members) > limit:
            problem = f"unpacks to more than {limit} bytes (max_unpacked_bytes), as a decompression bomb does"
            hint = "if you trust it, use NpzReader(max_unpacked_bytes=...), or store it uncompressed"
            raise DatasetError(path, problem, hint=hint)

    def _select(self, available: list[str], path: str) -> list[str]:
        require_columns(path, available, self.keys or ())
        return available if self.keys is None else list(self.keys)


@dataclass(frozen=True)
class NpyReader:
    """Reads `.npy` files, one sample per row of the array, never with pickle."""

    def __call__(self, path: str) -> Array:
        """Reads the array of a file."""
        try:
            with open_regular(path) as file:
                array = np.load(file, allow_pickle=False)
        except MemoryError:
            self.count(path)  # says so if the file claims more than it holds
            raise
        if not isinstance(array, np.ndarray):
            raise DatasetError(path, "is not an npy file", hint="read it with 'npz'")
        return array

    def count(self, path: str) -> int:
        """Returns the number of rows, read from the header."""
        with open_regular(path) as file:
            return _rows_in_header(file, path, os.fstat(file.fileno()).st_size)


@dataclass(frozen=True)
class ParquetReader:
    """Reads `.parquet` files with pyarrow (extra `parquet`), one array per column.

    Args:
        columns: the columns to read; None for all.
    """

    columns: tuple[str, ...] | None = None

    def __call__(self, path: str) -> dict[str, Array]:
        """Reads the columns of a file."""
        with open_regular(path) as file:
            parquet = extra("pyarrow.parquet", "parquet").ParquetFile(file, page_checksum_verification=True)
            names = parquet.schema_arrow.names
            require_columns(path, names, self.columns or ())
            chosen = names if self.columns is None else list(self.columns)
            table = parquet.read(columns=chosen)
        return _columns_of(table.select(chosen))

    def count(self, path: str) -> int:
        """Returns the number of rows, read from the metadata."""
        with open_regular(path) as file:
            metadata = extra("pyarrow.parquet", "parquet").ParquetFile(file).metadata
        # The total `num_rows` is wrong in files of some writers; pyarrow reads all row groups.
        return sum(metadata.row_group(number).num_rows for number in range(metadata.num_row_groups))


@dataclass(frozen=True)
class TextReader:
    r"""Reads text files, one sample per line, without the line end (`\n` or `\r\n`).

    Files compressed by gzip or zstd are decompressed; they are recognized by their first bytes, not by name.

    Args:
        encoding: the encoding of the files, in which the newline byte has no other meaning, as in UTF-8.
        max_unpacked_bytes: the largest uncompressed size of a compressed file. None for 200 times its size,
            or 1 GiB if that is more.

    Example:
        >>> import gzip, os, tempfile
        >>> path = os.path.join(tempfile.mkdtemp(), "a.txt.gz")
        >>> with gzip.open(path, "wt") as file:
        ...     _ = file.write("one\ntwo\n")
        >>> TextReader()(path), TextReader().count(path)
        (['one', 'two'], 2)
    """

    encoding: str = "utf-8"
    max_unpacked_bytes: int | None = None

    def __call__(self, path: str) -> list[str]:
        """Reads all lines of a file."""
        data = b"".join(unpacked(path, self.max_unpacked_bytes))
        try:
            text = data.decode(self.encoding)
        except UnicodeDecodeError as error:
            row = data.count(b"\n", 0, error.start)
            raise DatasetError(f"{path}, row {row}", f"is not text in {self.encoding} ({error})") from error
        lines = text.split("\n")
        if not lines[-1]:
            lines.pop()
        return [line.removesuffix("\r") for line in lines]

    def count(self, path: str) -> int:
        """Reports the number of lines, reading the file in pieces."""
        lines, last = 0, b"\n"
        for piece in unpacked(path, self.max_unpacked_bytes):
            lines += piece.count(b"\n")
            last = piece[-1:]
        return lines + (last != b"\n")


@dataclass(frozen=True)
class JsonlReader:
    """Reads files of JSON lines, plain or compressed by gzip or zstd, one sample per non-empty line.

    A line is parsed when its sample is read, so that a broken line affects no other sample.

    Args:
        columns: the fields to select from each JSON object, which it must have; None for all.
        decode: what a sample is: `json`, the value; `text`, the line; `bytes`, its bytes; or a function of
            the value.
        max_unpacked_bytes: the largest uncompressed size of a compressed file. None for 200 times its size,
            or 1 GiB if that is more.
    """

    columns: tuple[str, ...] | None = None
    decode: LineKind | Callable[[Any], Any] = "json"
    max_unpacked_bytes: int | None = None

    def __call__(self, path: str) -> LazySamples:
        """Reads a file."""
        data = b"".join(unpacked(path, self.max_unpacked_bytes))
        lines = Lines.of(line_ends([data] if data else []))
        parts = [data[start:end] for start, end in pairwise(lines.starts.tolist())]
        decoder = LineDecoder(self.decode, self.columns)
        decode = partial(decoder.at, parts, lambda row: f"line {lines.number(row)}")
        return LazySamples(range(len(lines)), decode, len(data))

    def count(self, path: str) -> int:
        """Reports the number of lines, reading the file in pieces."""
        return len(lines_of(path, self.max_unpacked_bytes))


@dataclass(frozen=True)
class CsvReader:
    r"""Reads files of comma-separated values with pyarrow (extra `parquet`), one array per column.

    The first row names the columns. The type of a column is inferred from all its values in a file: numbers,
    times or strings. The file may be compressed by gzip or zstd.

    Args:
        delimiter: the character between values; a tab in the reader `tsv`.
        columns: the columns to read; None for all.
        types: the types of columns by name, as pyarrow calls them, such as `float32`, so that they are the
            same in all files.
        max_unpacked_bytes: the largest uncompressed size of a compressed file. None for 200 times its size,
            or 1 GiB if that is more.

    Example:
        >>> import os, tempfile
        >>> path = os.path.join(tempfile.mkdtemp(), "a.csv")
        >>> with open(path, "w") as file:
        ...     _ = file.write('id,text\n1,one\n2,"two, too"\n')
        >>> CsvReader(types={"id": "int32"})(path)
        {'id': array([1, 2], dtype=int32), 'text': array(['one', 'two, too'], dtype=object)}
    """

    delimiter: str = ","
    columns: tuple[str, ...] | None = None
    types: Mapping[str, str] | None = None
    max_unpacked_bytes: int | None = None

    def __call__(self, path: str) -> dict[str, Array]:
        """Reads the columns of a file."""
        arrow, csv = extra("pyarrow", "parquet"), extra("pyarrow.csv", "parquet")
        data = b"".join(unpacked(path, self.max_unpacked_bytes))
        types = {name: arrow.type_for_alias(kind) for name, kind in (self.types or {}).items()}
        table = csv.read_csv(
            io.BytesIO(data),
            # One block, so that types are inferred from all rows; one thread, so that errors name the row.
            csv.ReadOptions(block_size=min(len(data) + 1, (1 << 31) - 1), use_threads=False),
            csv.ParseOptions(delimiter=self.delimiter, newlines_in_values=True),
            csv.ConvertOptions(column_types=types, include_columns=self.columns),
        )
        no_text = next((column.name for column in table.schema if arrow.types.is_binary(column.type)), None)
        if no_text is not None:
            raise DatasetError(path, f"column {no_text!r} is not text in UTF-8")
        return _columns_of(table)


READERS: Final[dict[str, Callable[..., Any]]] = {
    "npz": NpzReader(),
    "npy": NpyReader(),
    "parquet": ParquetReader(),
    "csv": CsvReader(),
    "tsv": CsvReader("\t"),
    "jsonl": JsonlReader(),
    "text": TextReader(),
}
"""The readers by name: the built-in ones, and those added by `register_reader`."""


def _columns_of(table: Any) -> dict[str, Array]:
    """Returns the columns of a table as arrays; integer columns with nulls become floats.

    Raises:
        pyarrow.ArrowInvalid: an integer cannot be represented as a float.
    """
    arrow, columns = extra("pyarrow", "parquet"), {}
    for name in table.column_names:
        column = table.column(name)
        has_nulls = column.null_count and arrow.types.is_integer(column.type)
        columns[name] = (column.cast(arrow.float64()) if has_nulls else column).to_numpy()
    return columns


def _rows_in_header(file: BinaryIO | Any, place: str, num_bytes: int) -> int:
    """Returns the number of rows of an array, after checking that the file is large enough for them."""
    shape, dtype = npy_header(file)
    if dtype.hasobject:
        raise DatasetError(place, "holds Python objects, which are pickles: they are never loaded")
    if not shape:
        raise DatasetError(place, "has no rows: it is a single value")
    claimed, available = math.prod(shape) * dtype.itemsize, num_bytes - file.tell()
    if claimed > available:
        problem = f"claims {claimed} bytes of data, but has {max(0, available)}"
        raise DatasetError(place, problem, hint="fetch or make the file again")
    return int(shape[0])
