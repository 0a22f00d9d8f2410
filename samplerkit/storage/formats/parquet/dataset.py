"""Samples in Parquet files, by row group."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from threading import Lock
from typing import Any, Final, Literal, final

import numpy as np

from samplerkit.errors import ArgumentValueError, DatasetError
from samplerkit.order import arguments
from samplerkit.order.caching import Latest, cached_property
from samplerkit.order.typing import Ids
from samplerkit.storage.catalogue.file_catalogue import DIGEST_BYTES, FileCatalogue
from samplerkit.storage.files.chunked import ChunkLimits, Chunks
from samplerkit.storage.files.content import Content, require_columns
from samplerkit.storage.files.stored import Stored
from samplerkit.storage.formats.arrow.rows import ArrowBatches, ArrowContent, gather_of, in_one_piece
from samplerkit.storage.formats.base import ChunkFile, FilesOfChunks, FormatOfFiles, digest_of, names_of
from samplerkit.storage.formats.parquet.file import Metadata, ParquetFile
from samplerkit.storage.formats.parquet.filter import Keys, RowFilter, folder_keys
from samplerkit.storage.progress import Progress, all_in_threads
from samplerkit.storage.remote.options import RemoteOptions
from samplerkit.storage.remote.storage import RemoteStorage
from samplerkit.storage.urls import is_remote, shown

_FOOTERS: Final = 64
"""Footers that a process keeps: of files with many columns they are large."""


@final
class ParquetDataset(FormatOfFiles):
    """Samples in Parquet files, each a row: row groups are the files of the layout, and are read as they are.

    With a `Loader`, which reports what comes next, each row group is read once an epoch and rank, in one go
    from its first to its last column, before it is needed. Of remote files, footers and row groups alone are
    read, by ranges, and compared with the version of the file.

    Args:
        files: a path, a URL or a glob pattern, whose matches are sorted by bytes; or a list of these, in
            the order given. Or the catalogue of all files, `train.skcat`.
        columns: the columns to read; None for all.
        filters: conditions on rows, as `[("year", ">=", 2020)]`; of a list of such lists one must be met.
            Row groups go by their statistics, rows by their values; the rest is the dataset.
        partitioning: `hive` reads the keys that folders have in their names, `year=2024/0.parquet`, as
            columns; None leaves them out.
        batches: what a batch is: `samples`, a list of dicts; `columns`, a dict of arrays; `tensors`, a dict
            of tensors; `arrow`, a record batch. With a `Loader` give all but samples a `collate_fn`, such as
            `torch.utils.data.default_convert`.
        lengths: the column of the lengths of samples, for batches by length: numbers, or lists or texts,
            whose lengths are taken. None for a column `lengths` or `length`, if there is one.
        max_chunks: row groups in memory at most, those that are read ahead included.
        max_bytes: bytes in memory at most; None for no limit.
        read_ahead: how many row groups are read before they are needed; 0 for none. None for 1, and
            of remote ones for 4 a rank, as far as there is room.
        threads: how many of them at a time; None as for `read_ahead`.
        progress: is called while footers are read; None for a line on the terminal, False for nothing.
        remote: how URLs are read: `RemoteOptions`, or a mapping of these.

    Attributes:
        files: the paths and URLs.
        is_remote: whether some of them are remote.

    Raises:
        ArgumentTypeError: an argument has the wrong type.
        ArgumentValueError: no file, one that is named twice, or a word that is not known.
        ArgumentRangeError: a number is too small.
        DatasetError: pyarrow is not installed, or nothing matches the pattern; later, a file cannot be read,
            is not the one that it was, or has other columns.

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
    _looking = "footers read:"

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
        self._columns: Final = names_of(columns)
        self._filter: Final = None if filters is None else RowFilter.of(filters)
        self._length_column: Final = None if lengths is None else arguments.word("lengths", lengths)
        limits = ChunkLimits(max_chunks, max_bytes, read_ahead, threads)
        gather = gather_of(batches, has_arrow=True)
        super().__init__(files, limits, gather, progress, RemoteOptions.of(remote))
        if partitioning is not None:
            arguments.choice("partitioning", partitioning, ["hive"])
            if self._catalogue is not None:
                problem = "is not kept in a catalogue"
                raise ArgumentValueError("partitioning", problem, partitioning, hint="name the files")
        self._has_keys: Final = partitioning is not None
        self._files: FilesOfChunks | None = None
        self._chosen: tuple[str, ...] = ()
        self._columns_read: dict[str, Any] = {}
        self._footers: Final = Footers()

    @property
    def is_layout_known(self) -> bool:
        """Whether the layout is known without reading the footers of remote files."""
        return super().is_layout_known or (self._catalogue is not None and self._filter is None)

    @property
    def fingerprint(self) -> str:
        """What changes with the content: a digest of the footers of all files, and of the filters."""
        return digest_of(f"{self._found.digest} {self._filter!r}".encode())

    @property
    def column_names(self) -> tuple[str, ...]:
        """The columns that are read."""
        _ = self.layout
        return self._chosen

    @property
    def lengths(self) -> Ids | None:
        """The length of each sample, from the column that was named; None where none was."""
        return None if self._length_column is None else self.column(self._length_column)

    def column(self, name: str) -> Any:
        """Reads a column of all samples, and nothing else; it is kept.

        Returns:
            An array of numbers; of texts and lists their lengths, where it is the column of lengths, and
            else a list.

        Raises:
            DatasetError: there is no such column, or it cannot be read.
        """
        if name not in self._columns_read:
            num_groups, files = self.layout.num_files, self._files
            assert files is not None  # noqa: S101  # for mypy: the layout was made of them
            read = partial(_read_group, (name,), self._footers)

            def values(number: int) -> Any:
                return _values_of(files.read(read, number), name, is_length=name == self._length_column)

            parts = all_in_threads(values, num_groups, self._limits.threads, "samplerkit-column")
            found = np.concatenate(parts or [np.zeros(0, dtype=np.int64)])
            self._columns_read[name] = found if found.dtype.kind != "O" else found.tolist()
        return self._columns_read[name]

    def __getitem__(self, index: int | str) -> Any:
        """Gives a sample; or, by its name, a column of all samples."""
        return self.column(index) if isinstance(index, str) else super().__getitem__(index)

    def __getstate__(self) -> dict[str, Any]:
        # Columns that were read stay here.
        return {**super().__getstate__(), "_columns_read": {}}

    def close(self) -> None:
        """Ends the threads and lets go of what is in memory. The dataset can be used again."""
        super().close()
        self._footers.clear()

    def _look(self, number: int) -> ChunkFile:
        if self._catalogue is None:
            file, footer = ParquetFile.of(self.files[number], self._storage)
        else:
            file = KnownFiles(self._catalogue, self._storage)[number]
            footer = file.read_footer()
        self._footers.add(file, footer)
        if self._has_keys:
            file = replace(file, keys=self._keys[number])
        chosen = file.chosen(footer, self._columns, self._filter)
        keys = "".join(f"{name}={value.as_py()!r}/" for name, value in chosen.keys)
        return ChunkFile(chosen, chosen.sizes, chosen.columns, chosen.digest + keys.encode())

    @cached_property
    def _keys(self) -> list[Keys]:
        """Of the folders of each file."""
        return folder_keys(self.files)

    def _find(self) -> Chunks:
        known = self._catalogue
        if known is None or self._filter is not None:
            return super()._find()
        names = tuple(name for name, _ in known.columns)
        require_columns(shown(known.path(0)), names, self._columns or ())
        numbers = np.flatnonzero(known.samples)
        found = FilesOfChunks.of(KnownFiles(known, self._storage), known.starts, numbers)
        columns = tuple(column for column in known.columns if column[0] in (self._columns or names))
        return self._chunks_of(found, known.samples[numbers], columns, known.digests)

    def _chunks_of(self, found: FilesOfChunks, sizes: Ids, columns: Any, digests: bytes) -> Chunks:
        self._files, self._chosen = found, self._columns or tuple(name for name, _ in columns)
        return super()._chunks_of(found, sizes, columns, digests)

    def _reader(self, columns: tuple[Any, ...]) -> Callable[[ParquetFile, int], Content]:
        return partial(_read_group, self._chosen, self._footers)


@final
class Footers:
    """The footers of the files that were read last, for all threads of a process; none travels to another."""

    def __init__(self) -> None:
        self._known: Latest[Metadata] = Latest(_FOOTERS)
        self._reading: dict[tuple[int, str], Lock] = {}

    def __reduce__(self) -> Any:
        return Footers, ()

    def clear(self) -> None:
        """Forgets all."""
        self._known = Latest(_FOOTERS)

    def add(self, file: ParquetFile, footer: Metadata) -> None:
        """Keeps a footer that was read."""
        self._known.get(file.stored.path, lambda: footer)

    def of(self, file: ParquetFile) -> Metadata:
        """Gives the footer of a file, read now if it is not known."""
        # Threads that read row groups of a new file ahead all want its footer: one of them reads it. A lock
        # that another thread held at a fork is for ever locked in the child.
        place = (os.getpid(), file.stored.path)
        with self._reading.setdefault(place, Lock()):
            footer = self._known.get(file.stored.path, file.read_footer)
            self._reading.pop(place, None)
            return footer


def _read_group(columns: tuple[str, ...], footers: Footers, file: ParquetFile, group: int) -> ArrowContent:
    """Reads a row group."""
    table = file.read(group, columns, footers.of(file)).combine_chunks()
    return ArrowContent(file.place(group), table, file.kept[group] if file.kept else None)


@final
class KnownFiles:
    """The files of a catalogue; what is known of one is put together when it is needed.

    Args:
        known: the catalogue.
        storage: knows from then on which version each remote file must have.
    """

    def __init__(self, known: FileCatalogue, storage: RemoteStorage | None) -> None:
        self._known = known
        self._starts = known.starts
        self._storage = storage

    def __getitem__(self, number: int) -> ParquetFile:
        known, path = self._known, self._known.path(number)
        size, length = int(known.sizes[number]), int(known.footers[number])
        if is_remote(path):
            known.require(number, self._storage)
            stored = Stored(path, size, 0, self._storage)
        else:
            stored = Stored(path, size, int(known.versions[number]))
        rows = known.samples[self._starts[number] : self._starts[number + 1]].tolist()
        digest = known.digests[number * DIGEST_BYTES : (number + 1) * DIGEST_BYTES]
        return ParquetFile(stored, (size - 8 - length, length), digest, tuple(rows))


def _values_of(content: Any, name: str, *, is_length: bool) -> Any:
    column = in_one_piece(content.table.column(name))
    values = content.columns(np.arange(content.length))[name]
    if is_length and values.dtype.kind not in "iu":
        try:
            return np.array([len(value) for value in values], dtype=np.int64)
        except TypeError as error:
            raise DatasetError(content.path, f"column {name!r} has no lengths", str(column.type)) from error
    return values
