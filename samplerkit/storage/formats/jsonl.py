"""A dataset over files of JSON lines, with random access by an index of line offsets."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, final

import numpy as np

from samplerkit.errors import DatasetError
from samplerkit.order import arguments
from samplerkit.order.caching import cached_property
from samplerkit.order.layout import Layout
from samplerkit.order.typing import Ids
from samplerkit.storage.ahead.limits import CacheLimits
from samplerkit.storage.files.chunked import ChunkLimits, Chunks
from samplerkit.storage.files.content import FileContent, digest_of, names_of
from samplerkit.storage.files.json_lines import LineDecoder, LineKind, Lines, lines_of, require_sums
from samplerkit.storage.files.stored import ByteFiles, Stored
from samplerkit.storage.formats.base import IndexedFiles, content_of
from samplerkit.storage.formats.file_index import IndexKind
from samplerkit.storage.ids import checked_ids, checked_index
from samplerkit.storage.inflate import unpacked
from samplerkit.storage.open_files import REWRITE
from samplerkit.storage.remote.options import RemoteOptions
from samplerkit.storage.remote.storage import Span
from samplerkit.storage.threads import Progress


@final
class JsonlDataset(IndexedFiles):
    r"""Samples in files of JSON lines, one per line; the files are the files of the layout.

    Lines are read individually, so that GLOBAL costs no more than other orders. An index of 9 bytes per line
    holds the offset and a checksum (the sum of the bytes modulo 256) of each line. It is next to the file,
    under the file's name and `.skidx`, or in the user's cache, where it is made at first use. Files
    compressed by gzip or zstd, recognized by their first bytes, are decompressed as a whole and kept in
    memory for a while.

    Empty lines are not samples. A line ends with `\n` or `\r\n`; the last line need not have an end.

    Args:
        files: a path, a URL or a glob pattern, whose matches are sorted by bytes; or a list of these, in
            the order given.
        decode: what a sample is: `json`, the value of the line; `text`, the line; `bytes`, its bytes; or a
            function that makes a sample from the value.
        columns: the fields to select from each JSON object, which it must have; None for all.
        max_chunks: compressed files in memory at most, including prefetched ones.
        max_bytes: bytes of them in memory at most; None for no limit.
        max_unpacked_bytes: the largest uncompressed size of a file. None for 200 times its size, or 1 GiB if
            that is more.
        read_ahead: how many compressed files are prefetched; 0 for none. None for 1, and for remote files for
            4 per rank, as far as memory allows.
        threads: how many of them are read in parallel; None as for `read_ahead`.
        progress: called while files are indexed; None for a line on the terminal, False for nothing.
        remote: how URLs are read: `RemoteOptions`, or a mapping of their fields. A file without an index next
            to it is fetched as a whole, once per machine, to make one; later its lines are read by ranges.

    Attributes:
        files: the paths and URLs.
        is_remote: whether some of them are remote.

    Raises:
        ArgumentTypeError: an argument has the wrong type.
        ArgumentValueError: no file, a file given twice, or an unknown option.
        ArgumentRangeError: a number is too small.
        DatasetError: no file matches the pattern; later, a file cannot be read or has changed,
            or a line is not JSON: the error has its number.

    Source: https://jsonlines.org

    Example:
        >>> import tempfile
        >>> path = os.path.join(tempfile.mkdtemp(), "a.jsonl")
        >>> with open(path, "w") as file:
        ...     _ = file.write('{"text": "one", "id": 1}\n\n{"text": "two", "id": 2}\n')
        >>> len(JsonlDataset(path)), JsonlDataset(path)[1], JsonlDataset(path, columns=["id"])[0]
        (2, {'text': 'two', 'id': 2}, {'id': 1})
    """

    def __init__(
        self,
        files: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
        *,
        decode: LineKind | Callable[[Any], Any] = "json",
        columns: Sequence[str] | None = None,
        max_chunks: int = 4,
        max_bytes: int | None = None,
        max_unpacked_bytes: int | None = None,
        read_ahead: int | None = None,
        threads: int | None = None,
        progress: Progress | bool | None = None,
        remote: RemoteOptions | Mapping[str, Any] | None = None,
    ) -> None:
        self._decoder: Final = LineDecoder(decode, names_of(columns))
        self._max_unpacked: Final = arguments.limit("max_unpacked_bytes", max_unpacked_bytes)
        limits = ChunkLimits(max_chunks, max_bytes, read_ahead, threads)
        super().__init__(files, limits, progress=progress, remote=remote)
        self._indexes = IndexKind("jsonl", Lines, partial(lines_of, max_bytes=self._max_unpacked))

    def __getitem__(self, index: int) -> Any:
        """Returns a sample."""
        return self.__getitems__([checked_index(index, self)])[0]

    def __getitems__(self, ids: Iterable[int]) -> list[Any]:
        """Returns a batch, in the order of the ids.

        Raises:
            OutOfDatasetError: an id is out of range.
            DatasetError: a line cannot be read, has changed, or cannot be decoded.
        """
        checked = checked_ids(ids, len(self))
        indexed, is_packed, data = self._index.files
        files = self.layout.file_of(checked)
        rows = checked - self.layout.starts[files]
        lines, sums = np.empty(checked.size, object), np.empty(checked.size, np.uint8)
        remote_places: list[Ids] = []
        remote_spans: list[Span] = []
        for file in sorted({*files.tolist()}):
            index, stored, places = indexed[file].lines, indexed[file].stored, np.flatnonzero(files == file)
            own_rows = rows[places]
            sums[places] = index.sums[own_rows]  # the byte sum that each line must have
            if is_packed[file]:
                continue
            begins = index.starts[own_rows]
            spans = [*zip(begins.tolist(), (index.starts[own_rows + 1] - begins).tolist(), strict=True)]
            if stored.storage is None:
                lines[places] = data.read(file, spans)
            else:
                remote_places.append(places)
                remote_spans += [Span(stored.path, *span) for span in spans]
        if self._storage is not None and remote_spans:
            lines[np.concatenate(remote_places)] = self._storage.read(remote_spans)
        packed = np.flatnonzero(is_packed[files])
        if packed.size:
            lines[packed] = super().__getitems__(checked[packed])

        def place(at: int) -> str:
            file: IndexedFile = indexed[int(files[at])]
            return file.place(int(rows[at]))

        read = lines.tolist()
        require_sums(read, sums, place)
        return self._decoder.samples(read, place)

    def expect(self, upcoming: Iterable[Ids]) -> None:
        """Receives the ids that this process will read, to decompress files in advance.

        A `Loader` calls it. Lines of other files are read when they are needed.
        """
        layout, (_, is_packed, _) = self.layout, self._index.files
        if is_packed.any():
            super().expect(ids[is_packed[layout.file_of(ids)]] for ids in upcoming)

    def close(self) -> None:
        """Ends the threads, frees memory and closes files. The dataset can be used again."""
        super().close()
        if self._chunks is not None:
            *_, data = self._chunks.files
            data.close()

    @property
    def _limits(self) -> CacheLimits:
        limits, (_, is_packed, _) = super()._limits, self._index.files
        return limits if is_packed.any() else replace(limits, max_files=max(1, len(self.files)))

    def _inspect(self, number: int) -> IndexedFile:
        file = IndexedFile(Stored.of(self.files[number], self._storage), self._indexes)
        _ = file.lines
        return file

    def _find(self) -> Chunks:
        files = tuple(self._inspect_all())
        is_packed = np.array([bool(file.lines.packing) for file in files])
        data = ByteFiles([file.stored for file in files], self._storage)
        layout = Layout([len(file.lines) for file in files], self._names)
        digest = digest_of(b"".join(file.lines.check() for file in files)).hex()
        return Chunks(layout, partial(_unpacked, files, self._max_unpacked), digest, (files, is_packed, data))


@dataclass(frozen=True, eq=False)
class IndexedFile:
    """A file and its line offsets, which are read again in a process that this object is sent to.

    Args:
        stored: the file as it was when it was first examined.
        indexes: finds the index of the file.
    """

    stored: Stored
    indexes: IndexKind

    @cached_property
    def lines(self) -> Lines:
        """The offsets of the lines."""
        lines: Lines = self.indexes.of(self.stored)
        return lines

    def place(self, row: int) -> str:
        """Returns the name of a line in error messages."""
        return f"{self.stored.name}, line {self.lines.number(row)}"

    def __reduce__(self) -> Any:
        return IndexedFile, (self.stored, self.indexes)


def _unpacked(files: Sequence[IndexedFile], max_bytes: int | None, number: int) -> FileContent:
    """Reads a compressed file as a whole.

    Raises:
        DatasetError: the file cannot be read, or has changed.
    """
    stored, starts = files[number].stored, files[number].lines.starts
    with stored.local_path() as path:
        data = b"".join(unpacked(path, max_bytes))
    if len(data) != starts[-1]:
        problem = f"no longer decompresses to {starts[-1]} bytes"
        raise DatasetError(stored.name, problem, len(data), hint=REWRITE)
    rows = range(starts.size - 1)
    return content_of(stored.name, rows, len(data), lambda row: data[starts[row] : starts[row + 1]])
