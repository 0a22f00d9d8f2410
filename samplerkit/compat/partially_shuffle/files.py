"""The files of the user's dataset, their lengths, and batches of their rows in the original's format."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping
from copy import copy
from dataclasses import replace
from functools import partial
from typing import Any

from samplerkit.errors import ArgumentTypeError, DatasetError
from samplerkit.loading.state.identity import describe_dataset
from samplerkit.order import arguments
from samplerkit.order.caching import cached_property
from samplerkit.order.layout import Layout
from samplerkit.order.typing import Ids
from samplerkit.storage.files.chunked import ChunkCache, ChunkedDataset, ChunkLimits, Chunks
from samplerkit.storage.files.content import ContentPart, FileContent
from samplerkit.storage.files.file_reader import FileReader, read_file
from samplerkit.storage.files.paths import distinct_names
from samplerkit.storage.files.readers import file_reader
from samplerkit.storage.per_process import PerProcess
from samplerkit.storage.remote.options import RemoteOptions
from samplerkit.storage.remote.storage import RemoteStorage
from samplerkit.storage.threads import TerminalLine
from samplerkit.storage.urls import shown

_log = logging.getLogger("samplerkit")


Item = list[Any]
"""A batch: a list with a dict of arrays for each file in it, None, and the list of these files."""


class DatasetFiles(ChunkedDataset):
    """The files that a dataset lists, in its order, and batches of their rows.

    `updated` reads the list of files again; files are counted when lengths are first needed. The next files
    are prefetched.

    Args:
        dataset: an object with `files`.
        reader: the user's reader.
        lengths: samples by file; files that are not in it are counted.
        file_buffer: files in memory, in addition to the prefetched one; also how many are counted in
            parallel, if the reader must read a file to count it.
        is_logged: whether each file that is read is logged.
        remote: how URLs are fetched; None to pass them to the reader.

    Raises:
        ArgumentTypeError: the dataset has no `files`, `lengths` is not a dict from files to integers, or an
            argument has the wrong type.
    """

    def __init__(
        self,
        dataset: Any,
        reader: Any,
        lengths: Any,
        file_buffer: int,
        is_logged: bool,
        remote: RemoteOptions | None,
    ) -> None:
        if not hasattr(dataset, "files"):
            raise ArgumentTypeError("dataset", "must have a list of paths called files", dataset)
        storage = None if remote is None else RemoteStorage(remote)
        limits = ChunkLimits(file_buffer + 1, None, read_ahead=1, threads=1, argument="file_buffer + 1")
        super().__init__(limits, partial(_item, {}), storage)
        self._dataset = dataset
        # A wrapper with **kwargs passes get_data on: the original always gives it.
        any_reader = file_reader(reader, or_any=not isinstance(reader, str))
        # Also if URLs are not fetched: errors name a URL without its query and credentials.
        self._reader = replace(any_reader, storage=storage)
        self._lengths = _given_lengths(lengths)
        self._file_buffer = file_buffer
        self._is_logged = is_logged
        self._listed: tuple[Any, ...] = ()

    def updated(self) -> DatasetFiles:
        """Returns the files that the dataset lists now; iterations over the former list are not affected."""
        listed = tuple(self._dataset.files)
        if listed == self._listed:
            return self
        originals = dict(zip(map(shown, paths_of(listed)), listed, strict=True))
        other, processes = copy(self), PerProcess[ChunkCache]()
        processes.current().earlier = self.stats
        changes = {"_listed": listed, "_chunks": None, "_processes": processes}
        vars(other).update(changes, _gather=partial(_item, originals))
        vars(other).pop("description", None)
        return other

    @cached_property
    def description(self) -> str:
        """A description of the files for the state, with a digest of names and lengths."""
        return describe_dataset(self.layout)

    def _find(self) -> Chunks:
        paths = paths_of(self._listed)
        # A file that is listed twice is read twice as often: some users weight their files in this way.
        distinct = tuple(dict.fromkeys(paths))
        missing = [path for path in distinct if path not in self._lengths]
        if missing:
            lengths = self._reader.count_all(missing, self._file_buffer, TerminalLine())
            self._lengths.update(zip(missing, lengths, strict=True))
            self._note_counted(len(missing))
        names = dict(zip(distinct, distinct_names(distinct), strict=True))
        layout = Layout([self._lengths[path] for path in paths], [names[path] for path in paths])
        return Chunks(layout, partial(_read, self._reader, paths, layout.sizes, self._is_logged))


def paths_of(files: Any) -> tuple[str, ...]:
    """Checks the `files` of a dataset.

    Raises:
        ArgumentTypeError: an entry is not a path.
        DatasetError: the list is empty.
    """
    paths = []
    for number, file in enumerate(files):
        if not isinstance(file, str | os.PathLike) or not isinstance(os.fspath(file), str):
            raise ArgumentTypeError(f"dataset.files[{number}]", "must be a path", file)
        paths.append(os.fspath(file))
    if not paths:
        raise DatasetError("dataset.files", "must not be empty")
    return tuple(paths)


def _given_lengths(files_len: Any) -> dict[str, int]:
    if files_len is None:
        return {}
    if not isinstance(files_len, Mapping):
        raise ArgumentTypeError("files_len", "must be a dict from a file to its number of samples", files_len)
    return {
        os.fspath(file): arguments.integer(f"files_len[{file!r}]", length)
        for file, length in files_len.items()
    }


def _read(
    reader: FileReader, paths: tuple[str, ...], sizes: Ids, is_logged: bool, number: int
) -> FileContent:
    if is_logged:
        _log.info("reading %s", shown(paths[number]))
    hint = "correct files_len, or leave it out to have them counted"
    content = read_file(reader, paths, sizes, number, hint)
    if not isinstance(content.data, dict):
        raise DatasetError(content.path, "must be read as a dict of arrays", hint="let the reader return one")
    return content


def _item(originals: Mapping[str, Any], parts: Iterable[ContentPart], _: int) -> Item:
    """Makes a batch: files in the order in which they first occur in it, with their rows in order."""
    files: dict[int, tuple[Any, dict[Any, Any]]] = {}
    for content, rows, places in parts:
        files[int(places[0])] = originals[content.path], _rows(content, rows)
        del content  # frees it before the next one is read
    ordered = [files[place] for place in sorted(files)]
    return [[arrays for _, arrays in ordered], None, [file for file, _ in ordered]]


def _rows(content: Any, rows: Ids) -> dict[Any, Any]:
    """Returns some rows of each array as a copy; tensors stay tensors."""
    if all(hasattr(column, "shape") for column in content.data.values()):
        return {key: content.select(column, rows) for key, column in content.data.items()}
    return dict(content.columns(rows))
