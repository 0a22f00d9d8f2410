"""A dataset over Parquet files, read by row group."""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, Literal, final

import numpy as np

from samplerkit.errors import ArgumentValueError, DatasetError
from samplerkit.order import arguments
from samplerkit.order.caching import Latest
from samplerkit.order.typing import Ids
from samplerkit.storage.catalogue.file_catalogue import DIGEST_BYTES, FileCatalogue
from samplerkit.storage.files.chunked import ChunkLimits, Chunks
from samplerkit.storage.files.content import ChunkFile, digest_of, require_columns
from samplerkit.storage.files.packages import guarded
from samplerkit.storage.formats.arrow_rows import ArrowBatches, gather_of
from samplerkit.storage.formats.base import FormatOfFiles
from samplerkit.storage.formats.parquet.file import Footers, ParquetFile
from samplerkit.storage.formats.parquet.filter import RowFilter, folder_keys
from samplerkit.storage.remote.options import RemoteOptions
from samplerkit.storage.remote.storage import RemoteStorage
from samplerkit.storage.threads import Progress, all_in_threads
from samplerkit.storage.urls import shown

_COLUMNS: Final = 64
"""The number of whole columns that are kept in memory; they are not sent to other processes."""


@final
class ParquetDataset(FormatOfFiles):
    """Samples in Parquet files, one per row: row groups are the files of the layout.

    With a `Loader`, which announces the next ids, each row group is prefetched, and read once per epoch and
    rank, in one read of all its columns. Of remote files only footers and row groups are read, by range
    requests that check the version of the file.

    Args:
        files: a path, a URL or a glob pattern, whose matches are sorted by bytes; or a list of these, in
            the order given. Or the catalogue of all files, `train.skcat`.
        columns: the columns to read; None for all.
        filters: conditions that rows must meet, as `[("year", ">=", 2020)]`; or a list of such lists, one of
            which must be met. Row groups are filtered by their statistics, then rows by their values.
        partitioning: `hive` reads the keys in the names of folders, as in `year=2024/0.parquet`, as columns;
            None leaves them out.
        batches: the form of a batch: `samples`, a list of dicts; `columns`, a dict of arrays; `tensors`, a
            dict of tensors; `arrow`, a record batch. With a `Loader`, all but `samples` need a `collate_fn`,
            such as `torch.utils.data.default_convert`.
        lengths: the column with the lengths of samples, for batches by length: numbers, or lists or strings,
            whose lengths are used. None for a column `lengths` or `length`, if there is one.
        max_chunks: row groups in memory at most, including prefetched ones.
        max_bytes: bytes in memory at most; None for no limit.
        read_ahead: how many row groups are prefetched; 0 for none. None for 1, and
            for remote files for 4 per rank, as far as memory allows.
        threads: how many of them are read in parallel; None as for `read_ahead`.
        progress: called while footers are read; None for a line on the terminal, False for nothing.
        remote: how URLs are read: `RemoteOptions`, or a mapping of their fields.

    Attributes:
        files: the paths and URLs.
        is_remote: whether some of them are remote.

    Raises:
        ArgumentTypeError: an argument has the wrong type.
        ArgumentValueError: no file, a file given twice, or an unknown option.
        ArgumentRangeError: a number is too small.
        DatasetError: pyarrow is not installed, no file matches the pattern, or files have different keys of
            `partitioning`; later, a file cannot be read, has changed, or has other columns.

    Example:
        >>> import tempfile
        >>> import pyarrow as pa
        >>> import pyarrow.parquet as pq
        >>> path = os.path.join(tempfile.mkdtemp(), "a.parquet")
        >>> table = pa.table({"id": range(7), "tokens": [[n, n] for n in range(7)]})
        >>> pq.write_table(table, path, row_group_size=3)
        >>> dataset = ParquetDataset(path)
        >>> len(dataset), dataset.layout.sizes, dataset[5]
        (7, array([3, 3, 1]), {'id': np.int64(5), 'tokens': array([5, 5])})
        >>> len(ParquetDataset(path, filters=[("id", ">", 4)]))
        2
    """

    _kind = "parquet"

    def __init__(
        self,
        files: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
        columns: Sequence[str] | None = None,
        *,
        filters: Sequence[Any] | None = None,
        partitioning: Literal["hive"] | None = None,
        batches: ArrowBatches = "samples",
        lengths: str | None = None,
        max_chunks: int = 4,
        max_bytes: int | None = None,
        read_ahead: int | None = None,
        threads: int | None = None,
        progress: Progress | bool | None = None,
        remote: RemoteOptions | Mapping[str, Any] | None = None,
    ) -> None:
        self._filter: Final = None if filters is None else RowFilter.of(filters)
        self._length_column: Final = None if lengths is None else arguments.word("lengths", lengths)
        limits = ChunkLimits(max_chunks, max_bytes, read_ahead, threads)
        gather = gather_of(batches, has_arrow=True)
        super().__init__(files, limits, gather, progress, remote, columns=columns)
        if partitioning is not None:
            arguments.choice("partitioning", partitioning, ["hive"])
            if self._catalogue is not None:
                problem = "is not supported with a catalogue"
                raise ArgumentValueError("partitioning", problem, partitioning, hint="name the files")
        self._keys: Final = None if partitioning is None else folder_keys(self.files)
        self._columns_read: Final = Latest[Any](_COLUMNS)
        self._footers: Final = Footers()

    @property
    def is_layout_known(self) -> bool:
        """Whether the layout is known without reading the footers of remote files."""
        return super().is_layout_known or (self._catalogue is not None and self._filter is None)

    @property
    def fingerprint(self) -> str:
        """A string that changes with the content: a digest of the footers of all files and of the filters."""
        return digest_of(f"{self._index.digest} {self._filter!r}".encode()).hex()

    @property
    def column_names(self) -> tuple[str, ...]:
        """The columns that are read."""
        return tuple(name for name, _ in self._index.files.file_at(0).columns)

    @property
    def lengths(self) -> Ids | None:
        """The length of each sample, from the column given as `lengths`; None if none was given."""
        return None if self._length_column is None else self.column(self._length_column)

    def column(self, name: str) -> Any:
        """Reads one column of all samples, without the others, and keeps it in memory.

        Returns:
            An array if the column holds numbers. For strings and lists: an array of their lengths if the
            column is the one given as `lengths`, otherwise a list.

        Raises:
            DatasetError: the column does not exist or cannot be read.
        """
        return self._columns_read.get(name, partial(self._read_column, name))

    def _read_column(self, name: str) -> Any:
        files, is_length = self._index.files, name == self._length_column

        def read(number: int) -> Any:
            file, chunk = files.at(number)
            single = replace(file, columns=((name, ""),))
            action = f"read, column {name!r}"
            return guarded(file.place(chunk), action, lambda: _values_of(single.read(chunk), name, is_length))

        parts = all_in_threads(read, range(self.layout.num_files), self._limits.threads, "samplerkit-column")
        column = np.concatenate(parts or [np.zeros(0, dtype=np.int64)])
        return column if column.dtype.kind != "O" else column.tolist()

    def __getitem__(self, index: int | str) -> Any:
        """Returns a sample; or a column of all samples, if its name is given."""
        return self.column(index) if isinstance(index, str) else super().__getitem__(index)

    def close(self) -> None:
        """Ends the threads and frees the memory. The dataset can be used again."""
        super().close()
        self._footers.clear()

    def _inspect(self, number: int) -> ChunkFile:
        if self._catalogue is None:
            file = ParquetFile.of(self.files[number], self._storage, self._footers)
        else:
            catalogue = self._catalogue
            file = _catalogued_file(catalogue, self._storage, catalogue.columns, self._footers, number)
        if self._keys is not None:
            file = replace(file, keys=self._keys[number])
        return file.select(self._columns, self._filter)

    def _find(self) -> Chunks:
        catalogue = self._catalogue
        if catalogue is None or self._filter is not None:
            return super()._find()
        types = dict(catalogue.columns)
        require_columns(shown(catalogue.files[0]), [*types], self._columns or ())
        columns = tuple((name, types[name]) for name in self._columns or types)
        file_at = partial(_catalogued_file, catalogue, self._storage, columns, self._footers)
        return self._chunks_of(file_at, catalogue.starts, catalogue.samples, catalogue.digests)


def _catalogued_file(
    catalogue: FileCatalogue, storage: RemoteStorage | None, columns: Any, footers: Footers, number: int
) -> ParquetFile:
    """Makes a file from its catalogue entry, and registers the expected version with the storage."""
    stored, length = catalogue.stored(number, storage), int(catalogue.footers[number])
    rows = catalogue.samples[catalogue.starts[number] : catalogue.starts[number + 1]].tolist()
    digest = catalogue.digests[number * DIGEST_BYTES : (number + 1) * DIGEST_BYTES]
    footer = stored.size - 8 - length, length
    return ParquetFile(stored, footer, digest, tuple(rows), footers, columns=columns)


def _values_of(content: Any, name: str, is_length: bool) -> Any:
    values = content.columns(np.arange(content.length))[name]
    if is_length and values.ndim == 1 and values.dtype.kind in "bcfmM":
        problem = f"must be a column of integers, lists or strings, but {name!r} is of type"
        raise DatasetError("lengths", problem, str(values.dtype), hint="name another column")
    if is_length and (values.dtype.kind not in "iu" or values.ndim > 1):
        return np.array([len(value) for value in values], dtype=np.int64)
    return values
