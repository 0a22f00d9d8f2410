"""Batches as the original makes them: for each file a dict with some rows of each array."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any, final

import numpy as np

from samplerkit.compat.partially_shuffle.files import FileTable
from samplerkit.errors import DatasetError
from samplerkit.order.order import Order
from samplerkit.order.permutation import CHUNK
from samplerkit.order.typing import Ids
from samplerkit.storage.ahead.cache import ReadAheadCache
from samplerkit.storage.ahead.cache_entries import CacheLimits, FileStats
from samplerkit.storage.files.content import FileContent
from samplerkit.storage.files.reader import FileReader, read_file
from samplerkit.storage.urls import is_remote, shown

_log = logging.getLogger("samplerkit")

Item = list[Any]
"""A batch: a list with a dict of arrays for each file in it, None, and the list of these files."""


@final
class BatchReader:
    """Reads the batches of one iteration; the files that come next are read meanwhile.

    Args:
        files: the files.
        reader: reads one of them.
        file_buffer: files in memory, besides the one that is read ahead.
        is_logged: whether each file that is read is written to the log.
    """

    def __init__(self, files: FileTable, reader: FileReader, file_buffer: int, *, is_logged: bool) -> None:
        self._files = files
        self._is_closed = False
        limits = CacheLimits(max_files=file_buffer + 1, max_bytes=None, read_ahead=1, threads=1)
        read = partial(_read, reader, files, is_logged)
        self._cache: ReadAheadCache[FileContent] = ReadAheadCache(
            read, files.layout.num_files, limits, FileStats()
        )

    @property
    def stats(self) -> FileStats:
        """What was read and waited for."""
        return self._cache.stats

    def expect(self, upcoming: Iterable[Ids]) -> None:
        """Receives the ids of all batches to come."""
        self._cache.expect(upcoming, self._files.layout.file_of)

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
        file = self._files.layout.file_of(ids)
        rows = ids - self._files.layout.starts[file]
        numbers, first = np.unique(file, return_index=True)
        in_turn = numbers[np.argsort(first)].tolist()
        self._cache.begin(ids)
        arrays: dict[int, dict[Any, Any]] = {}
        try:
            while len(arrays) < len(in_turn):
                # While one file is gone through, another one arrives.
                number = self._cache.nearest([number for number in in_turn if number not in arrays])
                with self._cache.using(number) as content:
                    arrays[number] = _rows(content, rows[file == number])
                    del content  # it is let go now
        finally:
            self._cache.end()
        return [
            [arrays[number] for number in in_turn],
            None,
            [self._files.given[number] for number in in_turn],
        ]

    @property
    def times_reread(self) -> int:
        """How often files were read again, once it is certain that too few are in memory; else 0."""
        return self._cache.rereading.times if self._cache.is_too_small else 0

    def stop(self) -> None:
        """Lets the files go, without waiting for the thread."""
        self._is_closed = True
        self._cache.stop()

    def close(self) -> None:
        """Ends the thread and lets the files go."""
        self._is_closed = True
        self._cache.close()


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


def _rows(content: FileContent, rows: Ids) -> dict[Any, Any]:
    """Returns some rows of each array, as a copy: what is a tensor stays one."""
    if all(hasattr(column, "shape") for column in content.data.values()):
        return {key: content.taken(column, rows) for key, column in content.data.items()}
    return dict(content.columns(rows))
