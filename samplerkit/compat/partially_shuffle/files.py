"""The files of the user's dataset, their lengths, and batches of their rows as the original makes them."""

from __future__ import annotations

import inspect
import logging
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import Any, Final, final

from samplerkit.errors import ArgumentTypeError, DatasetError
from samplerkit.loading.state.identity import describe_dataset
from samplerkit.order import arguments
from samplerkit.order.caching import cached_property
from samplerkit.order.layout import Layout
from samplerkit.order.order import Order
from samplerkit.order.permutation import CHUNK
from samplerkit.order.typing import Ids
from samplerkit.storage.ahead.cache_entries import FileStats
from samplerkit.storage.files.chunked import ChunkedDataset, ChunkLimits, Chunks
from samplerkit.storage.files.content import FileContent, gathered_samples
from samplerkit.storage.files.paths import distinct_names
from samplerkit.storage.files.reader import FileReader, read_file
from samplerkit.storage.files.readers import file_reader
from samplerkit.storage.lengths import COUNTING_THREADS
from samplerkit.storage.per_process import with_requests
from samplerkit.storage.progress import TerminalLine, all_in_threads
from samplerkit.storage.remote.options import RemoteOptions
from samplerkit.storage.remote.storage import RemoteStorage
from samplerkit.storage.urls import is_remote, shown

_log = logging.getLogger("samplerkit")


@final
class FileTable:
    """Files with their lengths, in the order of the dataset.

    Args:
        given: the files as the dataset has them: paths, or whatever text the reader understands.
        lengths: samples in each, by path.
    """

    def __init__(self, given: tuple[Any, ...], lengths: Mapping[str, int]) -> None:
        self.given: Final = given
        self.paths: Final = paths_of(given)
        # A file that is listed twice is read twice as often: that is how some weigh their files.
        distinct = tuple(dict.fromkeys(self.paths))
        names = dict(zip(distinct, distinct_names(distinct), strict=True))
        sizes = [lengths[path] for path in self.paths]
        self.layout: Final = Layout(sizes, [names[path] for path in self.paths])

    @cached_property
    def description(self) -> str:
        """The files in words, with a digest of names and lengths, for the state."""
        return describe_dataset(self.layout)


@final
class DatasetFiles:
    """What a dataset lists in `files`, counted when it is first asked for, and again where the list changes.

    Args:
        dataset: has `files`, and perhaps `reset()`.
        reader: the user's.
        told: lengths by file; a file that is not in it is counted.
        total: the number of samples that the user says; None for none.
        most: files that are counted at a time, if the reader must read a file to count.
        remote: how URLs are fetched; None to give them to the reader.

    Attributes:
        reader: reads the files.

    Raises:
        ArgumentTypeError: the dataset has no `files`, `told` is no dict from files to integers, or another
            argument has the wrong type.
    """

    def __init__(
        self, dataset: Any, reader: Any, told: Any, total: int | None, most: int, remote: RemoteOptions | None
    ) -> None:
        if not hasattr(dataset, "files"):
            raise ArgumentTypeError("dataset", "must have a list of paths called files", dataset)
        self._dataset = dataset
        self._storage = None if remote is None else RemoteStorage(remote)
        # Also where nothing is fetched: errors name a URL without what is private in it.
        self.reader: Final = replace(_reader_of(reader), storage=self._storage)
        self._lengths = _told_lengths(told)
        self._total = total
        self._threads = COUNTING_THREADS if self.reader.counts_cheaply else min(most, COUNTING_THREADS)
        self._table: FileTable | None = None
        self._files_counted = 0

    @property
    def stats(self) -> FileStats:
        """What was counted and fetched."""
        return with_requests(FileStats(files_counted=self._files_counted), self._storage)

    def close(self) -> None:
        """Ends the connections."""
        if self._storage is not None:
            self._storage.close()

    def reset(self) -> None:
        """Calls the dataset's `reset`, if it has one."""
        reset = getattr(self._dataset, "reset", None)
        if callable(reset):
            reset()

    def table(self) -> FileTable:
        """Returns the files as the dataset lists them now."""
        given = tuple(self._dataset.files)
        if self._table is None or self._table.given != given:
            self._count(paths_of(given))
            self._table = FileTable(given, self._lengths)
            self._tell_of_a_wrong_total(len(self._table.layout))
        return self._table

    def _count(self, paths: tuple[str, ...]) -> None:
        missing = [path for path in dict.fromkeys(paths) if path not in self._lengths]
        if not missing:
            return

        def count(number: int) -> int:
            return self.reader.count(missing[number])

        progress = partial(TerminalLine(), "files counted:")
        lengths = all_in_threads(count, len(missing), self._threads, "samplerkit-count", progress)
        self._lengths.update(zip(missing, lengths, strict=True))
        self._files_counted += len(missing)

    def _tell_of_a_wrong_total(self, counted: int) -> None:
        if self._total not in {None, counted}:
            _log.warning("total_size is %s, but the files hold %d samples", self._total, counted)
            self._total = None


def paths_of(files: Any) -> tuple[str, ...]:
    """Takes the `files` of a dataset.

    Raises:
        ArgumentTypeError: an entry is no path.
        DatasetError: there is none.
    """
    paths = []
    for number, file in enumerate(files):
        if not isinstance(file, str | os.PathLike) or not isinstance(os.fspath(file), str):
            raise ArgumentTypeError(f"dataset.files[{number}]", "must be a path", file)
        paths.append(os.fspath(file))
    if not paths:
        raise DatasetError("dataset.files", "must not be empty")
    return tuple(paths)


def _reader_of(reader: Callable[..., Any] | str) -> FileReader:
    """Takes the user's reader: `reader(path, get_data=False)`, or anything that `FileDataset` takes.

    Raises:
        ArgumentTypeError: no function.
    """
    # A wrapper with **kwargs hands get_data on: the original always gives it.
    if callable(reader) and not isinstance(reader, type) and _takes_anything(reader):
        return FileReader(reader, gives_length=True)
    return file_reader(reader)


def _told_lengths(files_len: Any) -> dict[str, int]:
    if files_len is None:
        return {}
    if not isinstance(files_len, Mapping):
        raise ArgumentTypeError("files_len", "must be a dict from a file to its number of samples", files_len)
    return {
        os.fspath(file): arguments.integer(f"files_len[{file!r}]", length)
        for file, length in files_len.items()
    }


def _takes_anything(reader: Callable[..., Any]) -> bool:
    try:
        parameters = inspect.signature(reader).parameters.values()
    except (TypeError, ValueError):  # builtins may have no signature
        return False
    return any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)


Item = list[Any]
"""A batch: a list with a dict of arrays for each file in it, None, and the list of these files."""


@final
class BatchReader(ChunkedDataset):
    """Reads the batches of one iteration; the files that come next are read meanwhile.

    Args:
        files: the files.
        reader: reads one of them.
        file_buffer: files in memory, besides the one that is read ahead.
        is_logged: whether each file that is read is written to the log.
    """

    def __init__(self, files: FileTable, reader: FileReader, file_buffer: int, *, is_logged: bool) -> None:
        limits = ChunkLimits(file_buffer + 1, None, read_ahead=1, threads=1, called="file_buffer")
        super().__init__(limits, gathered_samples, None)
        self._files = files
        self._read = partial(_read, reader, files, is_logged)
        self._is_closed = False

    def _find(self) -> Chunks:
        return Chunks(self._files.layout, self._read)

    def read(self, ids: Ids) -> Item:
        """Reads a batch.

        Args:
            ids: int64 array, not empty.

        Returns:
            The files in the order in which they first come up in the batch, and of each the rows in theirs.

        Raises:
            DatasetError: a file cannot be read or has another length than was said, or the reader was closed.
        """
        if self._is_closed:
            raise DatasetError("sampler", "was closed while it was read", hint="iterate over it again")
        arrays: dict[int, dict[Any, Any]] = {}
        self._cache().begin(ids)
        with closing(self._parts(ids)) as parts:
            for content, rows, places in parts:
                arrays[int(places[0])] = _rows(content, rows)
                del content  # it is let go now
        in_turn = sorted(arrays)
        files = [self._files.given[number] for number in self.layout.file_of(ids[in_turn]).tolist()]
        return [[arrays[place] for place in in_turn], None, files]

    @property
    def times_reread(self) -> int:
        """How often files were read again, once it is certain that too few are in memory; else 0."""
        cache = self._cache()
        return cache.read_again if cache.is_too_small else 0

    def close(self) -> None:
        """Ends the thread and lets the files go."""
        self._is_closed = True
        super().close()


def batches(order: Order, size: int) -> Iterator[Ids]:
    """Cuts an order into arrays of `size` ids; the last one may be shorter, but not empty."""
    for chunk in order.chunks(size * max(1, CHUNK // size)):
        for start in range(0, chunk.size, size):
            yield chunk[start : start + size]


def _read(reader: FileReader, files: FileTable, is_logged: bool, number: int) -> FileContent:
    if is_logged:
        path = files.paths[number]
        _log.info("reading %s", shown(path) if is_remote(path) else path)
    hint = "correct files_len, or leave it out to have them counted"
    content = read_file(reader, files.paths, files.layout.sizes, number, hint)
    if not isinstance(content.data, dict):
        raise DatasetError(content.path, "must be read as a dict of arrays", hint="let the reader give one")
    return content


def _rows(content: Any, rows: Ids) -> dict[Any, Any]:
    """Returns some rows of each array, as a copy: what is a tensor stays one."""
    if all(hasattr(column, "shape") for column in content.data.values()):
        return {key: content.taken(column, rows) for key, column in content.data.items()}
    return dict(content.columns(rows))
