"""Samples in TFRecord files: runs of records, and `tf.train.Example` without TensorFlow."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Literal, final, get_args

from samplerkit.errors import ArgumentValueError
from samplerkit.order import arguments
from samplerkit.storage.files.chunked import ChunkLimits
from samplerkit.storage.files.content import Content, FileContent, gathered_samples
from samplerkit.storage.files.stored import Stored
from samplerkit.storage.formats.base import (
    ChunkFile,
    DecodeSample,
    FormatOfFiles,
    checked_decode,
    content_of,
    names_of,
)
from samplerkit.storage.formats.kept_index import IndexedFiles
from samplerkit.storage.formats.tfrecord.example import example_of, scalars_of
from samplerkit.storage.formats.tfrecord.records import INDEXES, RecordFile
from samplerkit.storage.progress import Progress
from samplerkit.storage.remote.options import RemoteOptions
from samplerkit.storage.remote.storage import RemoteStorage

RecordKind = Literal["example", "bytes"]


@final
class TfRecordDataset(IndexedFiles, FormatOfFiles):
    """Samples in TFRecord files, each a record: runs of records are the files of the layout.

    Where records begin is said by an index: beside the file, under its name and `.skidx`, or in the user's
    cache, where it is made at the first look. All checksums are compared whenever a run is read. A file that
    gzip has packed is one run. TensorFlow is not needed.

    Args:
        files: a path, a URL or a glob pattern, whose matches are sorted by bytes; or a list of these, in
            the order given.
        columns: the features to hand out, which each record must have; None for what it has.
        scalars: the features that are one value, and handed out as such: a number, or bytes.
        records: what a record is: `example`, a `tf.train.Example`; or `bytes`.
        decode: makes a sample of the dict of an Example, or of the bytes; None for these themselves.
        run_bytes: the bytes of records that are read at once.
        max_chunks: runs in memory at most, those that are read ahead included.
        max_bytes: bytes in memory at most; None for no limit.
        read_ahead: how many runs are read before they are needed; 0 for none. None for 1, and
            of remote ones for 4 a rank, as far as there is room.
        threads: how many of them at a time; None as for `read_ahead`.
        progress: is called while files are looked at; None for a line on the terminal, False for nothing.
        remote: how URLs are read: `RemoteOptions`, or a mapping of these. A file without an index beside it
            is fetched as a whole, once a machine.

    Attributes:
        files: the paths and URLs.
        is_remote: whether some of them are remote.

    Raises:
        ArgumentTypeError: an argument has the wrong type.
        ArgumentValueError: no file, one that is named twice, or a word that is not known.
        ArgumentRangeError: a number is too small.
        DatasetError: nothing matches the pattern; later, a file cannot be read, is not the one that it was,
            is empty, or holds something else.

    Example:
        >>> TfRecordDataset(["train-0.tfrecord", "train-1.tfrecord"], scalars=["label"])
        TfRecordDataset(2 files, not looked at)
    """

    _looking = "files indexed:"
    _indexes = INDEXES

    def __init__(
        self,
        files: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
        columns: Sequence[str] | None = None,
        *,
        scalars: Sequence[str] = (),
        records: RecordKind = "example",
        decode: Callable[[Any], Any] | None = None,
        run_bytes: int = 1 << 24,
        max_chunks: int = 4,
        max_bytes: int | None = None,
        read_ahead: int | None = None,
        threads: int | None = None,
        progress: Progress | bool | None = None,
        remote: RemoteOptions | Mapping[str, Any] | None = None,
    ) -> None:
        self._sample: Final = _Sample.of(columns, scalars, records, decode)
        self._run_bytes: Final = arguments.at_least("run_bytes", run_bytes, 1)
        limits = ChunkLimits.of(max_chunks, max_bytes, read_ahead, threads)
        super().__init__(files, limits, gathered_samples, progress, RemoteOptions.of(remote))

    def _look(self, number: int) -> ChunkFile:
        stored = Stored.of(self.files[number], self._storage)
        found, is_packed = self._indexes.of(stored, self._storage)
        file = RecordFile.of(stored, found, is_packed=is_packed, run_bytes=self._run_bytes)
        # Changes with the lengths and checksums of all records; their features need not be alike.
        digest = repr([(run.span, run.rows, run.check) for run in file.runs]).encode()
        return ChunkFile(file, [run.rows for run in file.runs], digest=digest)

    def _reader(self, columns: tuple[Any, ...]) -> Callable[[RecordFile, int], Content]:
        return partial(_read, self._sample, self._storage)


@final
@dataclass(frozen=True)
class _Sample:
    """What becomes of a record."""

    columns: tuple[str, ...] | None
    scalars: frozenset[str]
    is_example: bool
    decode: DecodeSample | None

    @classmethod
    def of(cls, columns: Any, scalars: Any, records: Any, decode: Any) -> _Sample:
        """Takes what the user gives."""
        arguments.choice("records", records, get_args(RecordKind))
        named = names_of(columns)
        # None at all is what most records have; an empty value of another type is still refused.
        is_none = isinstance(scalars, list | tuple) and not scalars
        single = frozenset(() if is_none else names_of(scalars) or ())
        if records == "bytes" and (named is not None or single):
            problem = "and scalars are of examples, and not of bytes"
            raise ArgumentValueError("columns", problem, columns or scalars)
        missing = single - set(named) if named is not None else ()
        if missing:
            raise ArgumentValueError("scalars", "names what is not among the columns", sorted(missing))
        return cls(named, single, records == "example", checked_decode(decode))

    def made(self, record: bytes) -> Any:
        """Makes a sample of a record.

        Raises:
            ValueError: it is no Example, or lacks a feature.
        """
        if not self.is_example:
            return record
        found = example_of(record)
        for name in self.columns or ():
            if name not in found:
                raise ValueError(f"no feature {name!r}, but {sorted(found)}")
        chosen = found if self.columns is None else {name: found[name] for name in self.columns}
        return scalars_of(chosen, self.scalars)


def _read(sample: _Sample, storage: RemoteStorage | None, file: RecordFile, number: int) -> FileContent:
    records, first = file.read(number, storage), file.runs[number].first
    place, size = f"{file.stored.name}, records from {first}", sum(map(len, records))
    return content_of(place, records, size, sample.made, sample.decode)
