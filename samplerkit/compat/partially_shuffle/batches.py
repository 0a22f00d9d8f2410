"""Batches as the original makes them: for each file a dict with some rows of each array."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from typing import Any, final

from samplerkit.compat.partially_shuffle.files import FileTable
from samplerkit.errors import DatasetError
from samplerkit.order.order import Order
from samplerkit.order.permutation import CHUNK
from samplerkit.order.typing import Ids
from samplerkit.storage.files.chunked import ChunkedDataset, ChunkLimits, Chunks
from samplerkit.storage.files.content import FileContent, gathered_samples
from samplerkit.storage.files.reader import FileReader, read_file
from samplerkit.storage.urls import is_remote, shown

_log = logging.getLogger("samplerkit")

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
