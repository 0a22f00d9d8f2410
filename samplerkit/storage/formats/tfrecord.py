"""A dataset over TFRecord files, without TensorFlow: an index of records, which are read in runs."""

from __future__ import annotations

import io
import os
import struct
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, starmap
from typing import Any, Final, Literal, final, get_args

import numpy as np

from samplerkit.errors import ArgumentValueError
from samplerkit.order import arguments
from samplerkit.storage.arrays import narrow
from samplerkit.storage.files.chunked import ChunkLimits
from samplerkit.storage.files.content import ChunkFile, FileContent, entries_of, gathered_samples, names_of
from samplerkit.storage.files.packages import extra
from samplerkit.storage.files.stored import ByteSpan, Stored
from samplerkit.storage.formats.base import FormatOfFiles, content_of
from samplerkit.storage.formats.file_index import IndexedFiles, IndexKind
from samplerkit.storage.formats.tfrecord_example import example_of
from samplerkit.storage.inflate import inflated
from samplerkit.storage.opening import open_regular
from samplerkit.storage.remote.options import RemoteOptions
from samplerkit.storage.threads import Progress

RecordKind = Literal["example", "bytes"]


@final
class TfRecordDataset(IndexedFiles, FormatOfFiles):
    """Samples in TFRecord files, one per record: runs of consecutive records are the files of the layout.

    An index holds the offsets of records. It is next to the file, under the file's name and `.skidx`, or in
    the user's cache, where it is made at first use. All checksums are compared whenever a run is read. A file
    compressed by gzip is one run. TensorFlow is not needed.

    Args:
        files: a path, a URL or a glob pattern, whose matches are sorted by bytes; or a list of these, in
            the order given.
        columns: the features to return, which each record must have; None for all.
        scalars: the features that have one value, which is returned as a number or bytes instead of a list.
        records: what a record is: `example`, a `tf.train.Example`; or `bytes`.
        decode: makes a sample from the dict of an Example, or from the bytes; None to return these
            themselves.
        run_bytes: the largest size of a run in bytes; a run has at least one record.
        max_chunks: runs in memory at most, including prefetched ones.
        max_bytes: bytes in memory at most; None for no limit.
        read_ahead: how many runs are prefetched; 0 for none. None for 1, and
            for remote files for 4 per rank, as far as memory allows.
        threads: how many of them are read in parallel; None as for `read_ahead`.
        progress: called while files are indexed; None for a line on the terminal, False for nothing.
        remote: how URLs are read: `RemoteOptions`, or a mapping of their fields. A file without an index next
            to it is fetched as a whole, once per machine.

    Attributes:
        files: the paths and URLs.
        is_remote: whether some of them are remote.

    Raises:
        ArgumentTypeError: an argument has the wrong type.
        ArgumentValueError: no file, a file given twice, or an unknown option.
        ArgumentRangeError: a number is too small.
        DatasetError: no file matches the pattern; later, a file cannot be read, has changed,
            is empty, or is not a TFRecord file.

    Example:
        >>> TfRecordDataset(["train-0.tfrecord", "train-1.tfrecord"], scalars=["label"])
        TfRecordDataset(2 files, not looked at)
    """

    _progress_label = "files indexed:"

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
        self._sample: Final = _Sample.of(columns, scalars, records)
        self._run_bytes: Final = arguments.at_least("run_bytes", run_bytes, 1)
        limits = ChunkLimits(max_chunks, max_bytes, read_ahead, threads)
        super().__init__(files, limits, gathered_samples, progress, remote, decode=decode)
        self._indexes = INDEXES

    def _inspect(self, number: int) -> ChunkFile:
        stored = Stored.of(self.files[number], self._storage)
        return RecordFile.of(stored, self._indexes.of(stored), self._run_bytes, self._sample)


@final
@dataclass(frozen=True)
class _Sample:
    """Makes samples from records."""

    columns: tuple[str, ...] | None
    scalars: frozenset[str]
    is_example: bool

    @classmethod
    def of(cls, columns: Any, scalars: Any, records: Any) -> _Sample:
        """Checks the user's arguments."""
        arguments.choice("records", records, get_args(RecordKind))
        selected = names_of(columns)
        single = frozenset(names_of(scalars or None, place="scalars") or ())
        if records == "bytes" and (selected is not None or single):
            problem = "and scalars are of examples, and not of bytes"
            raise ArgumentValueError("columns", problem, columns or scalars)
        missing = single - set(selected) if selected is not None else ()
        if missing:
            raise ArgumentValueError("scalars", "names what is not among the columns", sorted(missing))
        return cls(selected, single, records == "example")

    def make(self, record: bytes) -> Any:
        """Makes a sample from a record.

        Raises:
            ValueError: the record is not an Example, lacks a feature, or has not one value of a scalar.
        """
        if not self.is_example:
            return record
        features = example_of(record)
        sample = features if self.columns is None else entries_of(features, self.columns)
        for name in self.scalars & sample.keys():
            values: Any = () if sample[name] is None else sample[name]
            if len(values) != 1:
                raise ValueError(f"feature {name!r} has {len(values)} values, and one was to be")
            sample[name] = values[0]
        return sample


OVERHEAD: Final = 16
"""The bytes of a record besides its data: its length, the CRC of the length, and the CRC of the data."""

_HEAD: Final = struct.Struct("<Q4s")
_TAIL: Final = OVERHEAD - _HEAD.size
_MASK: Final = 0xA282EAD8
_GZIP: Final = b"\x1f\x8b"
_ZLIB: Final = {b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda"}

Array = np.ndarray[Any, Any]
Read = Callable[[int, int], bytes]


@final
@dataclass(frozen=True, eq=False)
class Records:
    """The records of a file, or of a part of it.

    Args:
        lengths: the length of the data of each, shape (records,), in the smallest dtype that holds them.
        crcs: the masked CRC-32C of each, as stored in the file, shape (records,), uint32.
        is_packed: whether the file is compressed by gzip.
    """

    lengths: Array
    crcs: Array
    is_packed: bool = False

    @classmethod
    def scan(cls, read: Read, size: int) -> Records:
        """Reads the headers of all records and skips their data.

        Args:
            read: returns a number of bytes from an offset on, fewer at the end of the data.
            size: the size of that data in bytes.

        Raises:
            ValueError: the data does not consist of records, or the last one is incomplete.
        """
        lengths: list[int] = []
        heads: list[bytes] = []
        crcs: list[bytes] = []
        at, problem = 0, ""
        head = read(0, _HEAD.size)
        while at < size:
            if len(head) < _HEAD.size:
                problem = f"record {len(lengths)} at {at} is not whole"
                break
            heads.append(head)
            length, _ = _HEAD.unpack(head)
            at += OVERHEAD + length
            if at > size:
                problem = f"record {len(lengths)} ends at {at}, and there are {size} bytes"
                break
            data = read(at - 4, 4 + _HEAD.size)
            lengths.append(length)
            crcs.append(data[:4])
            head = data[4:]
        expected = np.frombuffer(b"".join(head[8:] for head in heads), "<u4")
        wrong = np.flatnonzero(masked_crc32c([head[:8] for head in heads]) != expected)
        if wrong.size:
            raise ValueError(f"the length of record {wrong[0]} does not fit its checksum")
        if problem:
            raise ValueError(problem)
        return cls(np.array(lengths, narrow(max(lengths, default=0))), np.frombuffer(b"".join(crcs), "<u4"))

    def __len__(self) -> int:
        return self.lengths.size

    @property
    def ends(self) -> Array:
        """The offset at which each record ends."""
        return np.cumsum(self.lengths.astype(np.int64) + OVERHEAD)

    def fits(self, size: int) -> bool:
        """Whether a file of `size` bytes can have these records."""
        is_complete = self.is_packed or int(self.ends[-1]) == size
        return is_complete and self.lengths.size == self.crcs.size and int(self.lengths.min()) >= 0

    def check(self, first: int, last: int) -> int:
        """Returns a checksum of the lengths and CRCs of some records."""
        part = slice(first, last)
        lengths = self.lengths[part].astype(np.int64)
        return zlib.crc32(self.crcs[part].tobytes(), zlib.crc32(lengths.tobytes()))


@final
@dataclass(frozen=True, eq=False)
class RecordFile(ChunkFile):
    """A file as it was when it was first examined.

    Args:
        stored: the file.
        is_packed: whether the file is compressed by gzip, and so is one run.
        firsts: the number of the first record of each run.
        spans: the offset and length of each run in the uncompressed file, in bytes.
        checks: the `Records.check` of each run.
        sample: makes samples from records.
    """

    stored: Stored
    is_packed: bool
    firsts: Sequence[int]
    spans: Sequence[ByteSpan]
    checks: Sequence[int]
    sample: _Sample

    @classmethod
    def of(cls, stored: Stored, records: Records, run_bytes: int, sample: _Sample) -> RecordFile:
        """Splits the records of a file into runs of at most `run_bytes` bytes, and at least one record."""
        ends, firsts = np.concatenate([[0], records.ends]), [0]
        while (first := firsts[-1]) < len(records):
            fit = int(np.searchsorted(ends, ends[first] + run_bytes, side="right")) - 1
            firsts.append(len(records) if records.is_packed else max(fit, first + 1))
        spans = [(start, end - start) for start, end in pairwise(ends[firsts].tolist())]
        checks, sizes = [*starmap(records.check, pairwise(firsts))], np.diff(firsts).tolist()
        # The digest changes with the lengths and checksums of all records.
        digest = repr([*zip(spans, sizes, checks, strict=True)]).encode()
        return cls(stored, records.is_packed, firsts, spans, checks, sample, sizes=sizes, digest=digest)

    def place(self, chunk: int) -> str:
        """Returns the name of a run in error messages."""
        return f"{self.stored.name}, records from {self.firsts[chunk]}"

    def read(self, chunk: int) -> FileContent:
        """Reads a run, and checks the data of all its records against their checksums.

        Raises:
            DatasetError: the file was changed.
            ValueError: the run has changed, or does not consist of records.
        """
        rows = self.sizes[chunk]
        (data,) = self.stored.read([(0, self.stored.size) if self.is_packed else self.spans[chunk]])
        plain = unpacked(data) if self.is_packed else data
        records = Records.scan(lambda at, size: plain[at : at + size], len(plain))
        if records.lengths.size != rows or records.check(0, rows) != self.checks[chunk]:
            raise ValueError("they are not those that were there before")
        ends = [0, *records.ends.tolist()]
        payloads = [plain[start + _HEAD.size : end - _TAIL] for start, end in pairwise(ends)]
        wrong = np.flatnonzero(masked_crc32c(payloads) != records.crcs)
        if wrong.size:
            raise ValueError(f"record {self.firsts[chunk] + int(wrong[0])} does not fit its checksum")
        size = sum(map(len, payloads))
        return content_of(self.place(chunk), payloads, size, self.sample.make)


def masked_crc32c(pieces: Sequence[bytes]) -> Array:
    """Returns the CRC-32C of each piece, masked as TFRecord stores it, shape (pieces,), uint32.

    Example:
        >>> [hex(crc) for crc in masked_crc32c([b"123456789", b""]).tolist()]
        ['0xc78ab0e5', '0xa282ead8']
    """
    value = extra("google_crc32c", "tfrecord").value
    crc = np.fromiter(map(value, pieces), np.uint32, len(pieces))
    return ((crc >> np.uint32(15)) | (crc << np.uint32(17))) + np.uint32(_MASK)


def unpacked(data: bytes) -> bytes:
    """Decompresses gzip."""
    return b"".join(inflated(io.BytesIO(data).read))


def _scan_file(path: str, size: int) -> Records:
    with open_regular(path) as file:

        def read(at: int, count: int) -> bytes:
            file.seek(at)  # within the buffer this reads nothing
            return file.read(count)

        start = read(0, _HEAD.size)
        if _is_head(start) or start[:2] not in {_GZIP, *_ZLIB}:
            records = Records.scan(read, size)
        elif start.startswith(_GZIP):
            data = unpacked(read(0, size))
            inner = Records.scan(lambda at, count: data[at : at + count], len(data))
            records = replace(inner, is_packed=True)
        else:
            raise ValueError("it is compressed by zlib: pack it with gzip, or not at all")
    if not records.lengths.size:
        raise ValueError("it is empty: leave it out")
    return records


def _is_head(start: bytes) -> bool:
    """Whether a record begins with these bytes: its length may begin like a gzip file."""
    return len(start) == _HEAD.size and masked_crc32c([start[:8]]).tobytes() == start[8:]


INDEXES: Final = IndexKind("tfrecord", Records, _scan_file)
"""The indexes of TFRecord files. They are not trusted: records have their own checksums."""
