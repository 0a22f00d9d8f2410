"""Samples in Parquet files, by row group."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, final

import numpy as np

from samplerkit.errors import DatasetError
from samplerkit.order import arguments
from samplerkit.order.layout import Layout
from samplerkit.order.typing import Ids
from samplerkit.storage.files.chunked import ChunkCache, limits_of
from samplerkit.storage.files.content import Content
from samplerkit.storage.files.several import DatasetOfFiles
from samplerkit.storage.formats.arrow_rows import (
    ArrowBatches,
    ArrowContent,
    gather_of,
    in_one_piece,
    names_of,
)
from samplerkit.storage.formats.parquet_file import Footer
from samplerkit.storage.formats.parquet_filter import RowFilter
from samplerkit.storage.formats.parquet_groups import (
    Footers,
    RowGroups,
    known_groups,
    looked_at,
    read_group,
)
from samplerkit.storage.lengths import COUNTING_THREADS
from samplerkit.storage.per_process import Process
from samplerkit.storage.progress import Progress, all_in_threads
from samplerkit.storage.remote.options import RemoteOptions


@final
class ParquetDataset(DatasetOfFiles):
    """Samples in Parquet files, each a row: row groups are the files of the layout, and are read as they are.

    A `Loader` tells the dataset what comes next: then each row group is read once an epoch and rank, in one
    go from its first to its last column, before it is needed. Files may lie elsewhere: then their footers and
    row groups are read by ranges, held against the version of the file, and nothing else of them.

    Args:
        files: a path, a URL or a glob pattern, whose matches are sorted by bytes; or a list of these, in
            the order given. Or the catalogue of all files, `train.skcat`.
        columns: the columns to read; None for all.
        filters: conditions on rows, as `[("year", ">=", 2020)]`; of a list of such lists one must be met.
            Row groups go by their statistics, rows by their values; what is left is the dataset.
        batches: what a batch is: `samples`, a list of dicts; `columns`, a dict of arrays; `tensors`, a dict
            of tensors; `arrow`, a record batch. With a `Loader` give all but samples a `collate_fn`, such as
            `torch.utils.data.default_convert`.
        lengths: the column of the lengths of samples, for batches by length: numbers, or lists or texts,
            whose lengths are taken. None for a column `lengths` or `length`, if there is one.
        max_chunks: row groups in memory at most, those that are read ahead included.
        max_bytes: bytes in memory at most; None for no limit.
        read_ahead: how many row groups are read before they are needed; 0 for none. None for 1, and
            where they lie elsewhere for 4 a rank, as far as there is room.
        threads: how many of them at a time; None as for `read_ahead`.
        progress: is called while footers are read; None for a line on the terminal, False for nothing.
        remote: how URLs are read: `RemoteOptions`, or a mapping of these.

    Attributes:
        files: the paths and URLs.
        is_remote: whether some of them lie elsewhere.

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

    def __init__(
        self,
        files: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
        columns: Sequence[str] | None = None,
        *,
        filters: Sequence[Any] | None = None,
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
        limits = limits_of(max_chunks, max_bytes, read_ahead, threads)
        gather = gather_of(batches, has_arrow=True)
        super().__init__(files, limits, gather, progress, RemoteOptions.of(remote))
        self._looked: RowGroups | None = None
        self._told: dict[str, Any] = {}
        self._seen: tuple[int, dict[int, Footer]] = (0, {})

    @property
    def is_layout_known(self) -> bool:
        """Whether the layout can be told without reading the footers of files that lie elsewhere."""
        is_told = self._catalogue is not None and self._filter is None
        return self._layout is not None or is_told or not self.is_remote

    @property
    def fingerprint(self) -> str:
        """What changes with the content: a digest of the footers of all files, and of the filters."""
        state = hashlib.blake2b(self._groups.digests, digest_size=16)
        state.update(repr(self._filter).encode())
        return state.hexdigest()

    @property
    def column_names(self) -> tuple[str, ...]:
        """The columns that are read."""
        return self._groups.columns

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
        if name not in self._told:
            groups = self._groups.only(name)
            read = partial(read_group, groups, self._storage, Footers())

            def values(number: int) -> Any:
                return _values_of(read(number), name, is_length=name == self._length_column)

            threads = self._limits.threads
            found = all_in_threads(values, self.layout.num_files, threads, "samplerkit-column")
            self._told[name] = _joined(found)
        return self._told[name]

    def __getitem__(self, index: int | str) -> Any:
        """Gives a sample; or, by its name, a column of all samples."""
        return self.column(index) if isinstance(index, str) else super().__getitem__(index)

    def __getstate__(self) -> dict[str, Any]:
        # Columns and footers that were read stay here.
        return {**super().__getstate__(), "_told": {}, "_seen": (0, {})}

    @property
    def _groups(self) -> RowGroups:
        _ = self.layout
        assert self._looked is not None  # noqa: S101  # for mypy: the layout was made of it
        return self._looked

    def _looked_up(self, process: Process[ChunkCache]) -> Layout:
        known = self._catalogue
        if known is not None and self._filter is None:
            self._looked, rows = known_groups(known, self._columns, self._storage)
            file = np.repeat(np.arange(known.num_files), known.chunks)
            group = np.arange(file.size) - known.starts[file]
            there = (known.samples > 0).nonzero()[0]
            pairs = zip(file[there].tolist(), group[there].tolist(), strict=True)
            return Layout(rows, [f"{self._names[at]}:{number}" for at, number in pairs])
        look = partial(looked_at, self.files, self._columns, self._filter, self._storage, known=known)
        told = partial(self._progress, "footers read:")
        looked = all_in_threads(look, len(self.files), COUNTING_THREADS, "samplerkit-footers", told)
        schema = looked[0].schema
        for found in looked:
            if found.schema != schema:
                place, problem = (
                    found.file.stored.name,
                    f"has other columns than {self._names[0]}, {list(schema)}",
                )
                raise DatasetError(place, problem, list(found.schema), mend="name those that all files have")
        places = [
            (number, group, kept)
            for number, found in enumerate(looked)
            for group, kept in enumerate(found.kept)
            if kept is None or kept.size
        ]
        files = tuple(found.file for found in looked)
        sizes = [files[f].rows[g] if kept is None else kept.size for f, g, kept in places]
        self._seen = os.getpid(), {n: found.footer for n, found in enumerate(looked) if found.footer}
        digests = b"".join(file.digest for file in files)
        self._looked = RowGroups(files, tuple(name for name, _ in schema), tuple(places), digests)
        return Layout(sizes, [f"{self._names[file]}:{group}" for file, group, _ in places])

    def _reading(self, layout: Layout) -> Callable[[int], Content]:
        # The footers of the first look are not read again but by other processes, and after `close`.
        (process, seen), self._seen = self._seen, (0, {})
        known = seen if process == os.getpid() else {}
        return partial(read_group, self._groups, self._storage, Footers(known))


def _values_of(content: ArrowContent, name: str, *, is_length: bool) -> Any:
    column = in_one_piece(content.table.column(name))
    values = content.columns(np.arange(content.length))[name]
    if is_length and values.dtype.kind not in "iu":
        try:
            return np.array([len(value) for value in values], dtype=np.int64)
        except TypeError as error:
            raise DatasetError(content.path, f"column {name!r} has no lengths", str(column.type)) from error
    return values if values.dtype.kind != "O" else values.tolist()


def _joined(found: list[Any]) -> Any:
    if all(isinstance(values, np.ndarray) for values in found):
        return np.concatenate(found) if found else np.zeros(0, dtype=np.int64)
    return [value for values in found for value in values]
