"""Samples in TFRecord files: runs of records, and `tf.train.Example` without TensorFlow."""

from __future__ import annotations

import hashlib
import os
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any, Final, Literal, final, get_args

from samplerkit.errors import ArgumentTypeError, ArgumentValueError, DatasetError
from samplerkit.order import arguments
from samplerkit.order.layout import Layout
from samplerkit.storage.files.chunked import ChunkCache, limits_of
from samplerkit.storage.files.content import FileContent, MadeSamples, gathered_samples
from samplerkit.storage.files.several import DatasetOfFiles
from samplerkit.storage.formats.arrow_rows import names_of
from samplerkit.storage.formats.record_index import INDEX_SUFFIX, records_of, write_index
from samplerkit.storage.formats.stored import Stored
from samplerkit.storage.formats.tf_example import example_of, scalars_of
from samplerkit.storage.formats.tfrecord_file import RecordFile
from samplerkit.storage.lengths import COUNTING_THREADS
from samplerkit.storage.per_process import Process
from samplerkit.storage.progress import Progress, all_in_threads
from samplerkit.storage.remote.options import RemoteOptions
from samplerkit.storage.remote.storage import RemoteStorage

RecordKind = Literal["example", "bytes"]


@final
class TfRecordDataset(DatasetOfFiles):
    """Samples in TFRecord files, each a record: runs of records are the files of the layout.

    Where records stand is told by an index: beside the file, under its name and `.skidx`, or in the user's
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
            where they lie elsewhere for 4 a rank, as far as there is room.
        threads: how many of them at a time; None as for `read_ahead`.
        progress: is called while files are looked at; None for a line on the terminal, False for nothing.
        remote: how URLs are read: `RemoteOptions`, or a mapping of these. A file without an index beside it
            is fetched as a whole, once a machine.

    Attributes:
        files: the paths and URLs.
        is_remote: whether some of them lie elsewhere.

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
        limits = limits_of(max_chunks, max_bytes, read_ahead, threads)
        super().__init__(files, limits, gathered_samples, progress, RemoteOptions.of(remote))
        self._looked: tuple[RecordFile, ...] = ()

    @property
    def fingerprint(self) -> str:
        """What changes with the content: a digest of the lengths and checksums of all records."""
        _ = self.layout
        state = hashlib.blake2b(digest_size=16)
        for file in self._looked:
            state.update(repr([(run.span, run.rows, run.check) for run in file.runs]).encode())
        return state.hexdigest()

    def save_indexes(self, folder: str | os.PathLike[str] | None = None) -> int:
        """Writes the index of each file, from which other machines and jobs learn where its records stand.

        Args:
            folder: where to, under the name of the file and `.skidx`, to be put beside files that lie
                elsewhere; None for beside the files.

        Returns:
            How many records there are.

        Raises:
            ArgumentValueError: files lie elsewhere and no folder was said, or two indexes have one name.
            DatasetError: a file cannot be read, or an index cannot be written.
        """
        if folder is None and self.is_remote:
            mend = "say a folder, and upload what is in it"
            problem = "is needed, for nothing is written beside files that lie elsewhere"
            raise ArgumentValueError("folder", problem, folder, mend=mend)
        ends = self.files if folder is None else [name.rpartition("/")[2] for name in self._names]
        if len(set(ends)) < len(ends):
            mend = "save those of each folder by themselves"
            raise ArgumentValueError("folder", "would hold two indexes of one name", folder, mend=mend)

        def save(number: int) -> int:
            stored = Stored.of(self.files[number], self._storage)
            indexed = records_of(stored, self._storage)
            target = Path(folder or "", ends[number] + INDEX_SUFFIX)
            try:
                write_index(target, stored, indexed, "")
            except OSError as error:
                raise DatasetError(str(target), f"cannot be written ({error.strerror})") from error
            return indexed[0].lengths.size

        told = partial(self._progress, "files indexed:")
        return sum(all_in_threads(save, len(self.files), COUNTING_THREADS, "samplerkit-records", told))

    def _looked_up(self, process: Process[ChunkCache]) -> Layout:
        def look(number: int) -> RecordFile:
            stored = Stored.of(self.files[number], self._storage)
            found, is_packed = records_of(stored, self._storage)
            return RecordFile.of(stored, found, is_packed=is_packed, run_bytes=self._run_bytes)

        told = partial(self._progress, "files indexed:")
        self._looked = tuple(
            all_in_threads(look, len(self.files), COUNTING_THREADS, "samplerkit-records", told)
        )
        sizes = [run.rows for file in self._looked for run in file.runs]
        names = [
            f"{name}:{number}"
            for name, file in zip(self._names, self._looked, strict=True)
            for number in range(len(file.runs))
        ]
        return Layout(sizes, names)

    def _reading(self, layout: Layout) -> Callable[[int], FileContent]:
        starts = [0, *accumulate(len(file.runs) for file in self._looked)]
        return partial(_read, self._looked, starts, self._sample, self._storage)


@final
@dataclass(frozen=True)
class _Sample:
    """What becomes of a record."""

    columns: tuple[str, ...] | None
    scalars: frozenset[str]
    is_example: bool
    decode: Callable[[Any], Any] | None

    @classmethod
    def of(cls, columns: Any, scalars: Any, records: Any, decode: Any) -> _Sample:
        """Takes what the user tells."""
        arguments.choice("records", records, get_args(RecordKind))
        if decode is not None and not callable(decode):
            raise ArgumentTypeError("decode", "must be a function of a sample", decode)
        named = names_of(columns)
        # None at all is what most records have; an empty value of another type is still refused.
        is_none = isinstance(scalars, list | tuple) and not scalars
        single = frozenset(() if is_none else names_of(scalars) or ())
        if records == "bytes" and (named is not None or single):
            raise ArgumentValueError(
                "columns", "and scalars are of examples, and not of bytes", columns or scalars
            )
        missing = single - set(named) if named is not None else ()
        if missing:
            raise ArgumentValueError("scalars", "names what is not among the columns", sorted(missing))
        return cls(named, single, records == "example", decode)

    def made(self, record: memoryview) -> Any:
        """Makes a sample of a record.

        Raises:
            ValueError: it is no Example, or lacks a feature.
        """
        if self.is_example:
            found = example_of(record)
            for name in self.columns or ():
                if name not in found:
                    raise ValueError(f"no feature {name!r}, but {sorted(found)}")
            sample: Any = found if self.columns is None else {name: found[name] for name in self.columns}
            sample = scalars_of(sample, self.scalars)
        else:
            sample = bytes(record)
        return sample if self.decode is None else self.decode(sample)


def _read(
    files: Sequence[RecordFile],
    starts: Sequence[int],
    sample: _Sample,
    storage: RemoteStorage | None,
    number: int,
) -> FileContent:
    at = bisect_right(starts, number) - 1
    file, run = files[at], number - starts[at]
    records = file.read(run, storage)
    first = file.runs[run].first
    place = f"{file.stored.name}, records from {first}"
    size = sum(map(len, records))
    return FileContent(place, MadeSamples(records, sample.made, size), len(records), size)
