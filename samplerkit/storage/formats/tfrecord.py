"""A dataset over TFRecord files, without TensorFlow: an index of records, which are read in runs."""

from __future__ import annotations

import io
import os
import struct
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import pairwise, starmap
from typing import Any, Final, Literal, final, get_args

import numpy as np

from samplerkit.errors import ArgumentValueError
from samplerkit.order import arguments
from samplerkit.storage.arrays import narrow
from samplerkit.storage.files.chunked import ChunkLimits
from samplerkit.storage.files.content import ChunkFile, FileContent, entries_of, names_of
from samplerkit.storage.files.packages import extra
from samplerkit.storage.files.stored import ByteSpan, Stored
from samplerkit.storage.formats.base import IndexedFiles, content_of
from samplerkit.storage.formats.file_index import IndexKind
from samplerkit.storage.inflate import inflated
from samplerkit.storage.open_files import open_regular
from samplerkit.storage.remote.options import RemoteOptions
from samplerkit.storage.threads import Progress

RecordKind = Literal["example", "bytes"]


@final
class TfRecordDataset(IndexedFiles):
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
        TfRecordDataset(2 files, not opened)
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
        self._make: Final = _sample_maker(columns, scalars, records)
        self._run_bytes: Final = arguments.at_least("run_bytes", run_bytes, 1)
        limits = ChunkLimits(max_chunks, max_bytes, read_ahead, threads)
        super().__init__(files, limits, progress=progress, remote=remote, decode=decode)
        self._indexes = INDEXES

    def _inspect(self, number: int) -> ChunkFile:
        stored = Stored.of(self.files[number], self._storage)
        return RecordFile.of(stored, self._indexes.of(stored), self._run_bytes, self._make)


def _sample_maker(columns: Any, scalars: Any, records: Any) -> Callable[[bytes], Any]:
    """Checks the user's arguments, and returns the function that makes a sample from a record."""
    arguments.choice("records", records, get_args(RecordKind))
    selected = names_of(columns)
    single = frozenset(names_of(scalars or None, place="scalars") or ())
    if records == "bytes":
        if selected is not None or single:
            problem = "and scalars are for examples, not for bytes"
            raise ArgumentValueError("columns", problem, columns or scalars)
        return bytes
    missing = single - set(selected) if selected is not None else ()
    if missing:
        raise ArgumentValueError("scalars", "must be among the columns", sorted(missing))
    return partial(_sample_of, selected, single)


def _sample_of(columns: Sequence[str] | None, scalars: frozenset[str], record: bytes) -> dict[str, Any]:
    """Makes a sample from an Example.

    Raises:
        ValueError: the record is not an Example, lacks a feature, or has not one value of a scalar.
    """
    features = example_of(record)
    sample = features if columns is None else entries_of(features, columns)
    for name in scalars & sample.keys():
        values: Any = () if sample[name] is None else sample[name]
        if len(values) != 1:
            raise ValueError(f"feature {name!r} has {len(values)} values, but a scalar has one")
        sample[name] = values[0]
    return sample


OVERHEAD: Final = 16
"""The bytes of a record besides its data: its length, the CRC of the length, and the CRC of the data."""

_HEAD: Final = struct.Struct("<QI")
_TAIL: Final = OVERHEAD - _HEAD.size
_UNMASK: Final = (1 << 32) - 0xA282EAD8
_ALL_BITS: Final = (1 << 32) - 1
_GZIP: Final = b"\x1f\x8b"

Array = np.ndarray[Any, Any]
Read = Callable[[int, int], bytes]


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
        crcs: list[bytes] = []
        at, head, checksum = 0, read(0, _HEAD.size), _crc32c()
        while at < size:
            number = len(lengths)
            if len(head) < _HEAD.size:
                raise ValueError(f"record {number} at byte {at} is truncated")
            length, crc = _HEAD.unpack(head)
            if checksum(head[:8]) != unmasked(crc):
                cause = "it is damaged, or compressed in a way other than gzip"
                raise ValueError(f"the length of record {number} has a wrong checksum: {cause}")
            at += OVERHEAD + length
            if at > size:
                raise ValueError(f"record {number} ends at byte {at}, beyond {size} bytes")
            data = read(at - 4, 4 + _HEAD.size)
            lengths.append(length)
            crcs.append(data[:4])
            head = data[4:]
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


@dataclass(frozen=True, eq=False)
class RecordFile(ChunkFile):
    """A file as it was when it was first examined.

    Args:
        stored: the file.
        is_packed: whether the file is compressed by gzip, and so is one run.
        firsts: the number of the first record of each run.
        spans: the offset and length of each run in the uncompressed file, in bytes.
        checks: the `Records.check` of each run.
        make: makes a sample from a record.
    """

    stored: Stored
    is_packed: bool
    firsts: Sequence[int]
    spans: Sequence[ByteSpan]
    checks: Sequence[int]
    make: Callable[[bytes], Any]

    @classmethod
    def of(cls, stored: Stored, records: Records, run_bytes: int, make: Callable[[bytes], Any]) -> RecordFile:
        """Splits the records of a file into runs of at most `run_bytes` bytes, and at least one record."""
        ends, firsts = np.concatenate([[0], records.ends]), [0]
        while (first := firsts[-1]) < len(records):
            fit = int(np.searchsorted(ends, ends[first] + run_bytes, side="right")) - 1
            firsts.append(len(records) if records.is_packed else max(fit, first + 1))
        spans = [(start, end - start) for start, end in pairwise(ends[firsts].tolist())]
        checks, sizes = [*starmap(records.check, pairwise(firsts))], np.diff(firsts).tolist()
        # The digest changes with the lengths and checksums of all records.
        digest = repr([*zip(spans, sizes, checks, strict=True)]).encode()
        return cls(stored, records.is_packed, firsts, spans, checks, make, sizes=sizes, digest=digest)

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
            raise ValueError("its records were changed")
        ends = [0, *records.ends.tolist()]
        payloads = [plain[start + _HEAD.size : end - _TAIL] for start, end in pairwise(ends)]
        checksums = np.fromiter(map(_crc32c(), payloads), np.uint32, rows)
        wrong = np.flatnonzero(checksums != unmasked(records.crcs))
        if wrong.size:
            raise ValueError(f"record {self.firsts[chunk] + int(wrong[0])} has a wrong checksum")
        return content_of(self.place(chunk), payloads, sum(map(len, payloads)), self.make)


def unmasked(crc: Any) -> Any:
    """Returns the CRC-32C, or an array of them in uint32, that TFRecord stores masked.

    Example:
        >>> hex(unmasked(0xC78AB0E5)), unmasked(np.array([0xA282EAD8], np.uint32))
        ('0xe3069283', array([0], dtype=uint32))
    """
    rotated = crc + _UNMASK & _ALL_BITS
    return rotated << 15 & _ALL_BITS | rotated >> 17


def _crc32c() -> Callable[[bytes], int]:
    checksum: Callable[[bytes], int] = extra("google_crc32c", "tfrecord").value
    return checksum


def unpacked(data: bytes) -> bytes:
    """Decompresses gzip."""
    return b"".join(inflated(io.BytesIO(data).read))


def _scan_file(path: str) -> Records:
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size

        def read(at: int, count: int) -> bytes:
            file.seek(at)  # within the buffer this reads nothing
            return file.read(count)

        start = read(0, _HEAD.size)
        if start.startswith(_GZIP) and not _is_head(start):
            data = unpacked(read(0, size))
            inner = Records.scan(lambda at, count: data[at : at + count], len(data))
            records = replace(inner, is_packed=True)
        else:
            records = Records.scan(read, size)
    if not records.lengths.size:
        raise ValueError("it is empty: leave it out")
    return records


def _is_head(start: bytes) -> bool:
    """Whether a record begins with these bytes: its length may begin like a gzip file."""
    return len(start) == _HEAD.size and _crc32c()(start[:8]) == unmasked(_HEAD.unpack(start)[1])


INDEXES: Final = IndexKind("tfrecord", Records, _scan_file)
"""The indexes of TFRecord files. They are not trusted: records have their own checksums."""

# On the wire a map is a list of its entries. Of several lists of a feature, the last one counts.
_EXAMPLE_SCHEMA: Final = """
name: "samplerkit/example.proto" package: "samplerkit" syntax: "proto3"
message_type { name: "Example" field { name: "features" number: 1 type: TYPE_MESSAGE type_name: "Features" } }
message_type { name: "Features"
  field { name: "entries" number: 1 label: LABEL_REPEATED type: TYPE_MESSAGE type_name: "Entry" } }
message_type { name: "Entry" field { name: "key" number: 1 type: TYPE_STRING }
  field { name: "value" number: 2 type: TYPE_MESSAGE type_name: "Feature" } }
message_type { name: "Feature" oneof_decl { name: "kind" }
  field { name: "bytes" number: 1 type: TYPE_MESSAGE type_name: "Bytes" oneof_index: 0 }
  field { name: "floats" number: 2 type: TYPE_MESSAGE type_name: "Floats" oneof_index: 0 }
  field { name: "integers" number: 3 type: TYPE_MESSAGE type_name: "Integers" oneof_index: 0 } }
message_type { name: "Bytes" field { name: "values" number: 1 label: LABEL_REPEATED type: TYPE_BYTES } }
message_type { name: "Floats" field { name: "values" number: 1 label: LABEL_REPEATED type: TYPE_FLOAT } }
message_type { name: "Integers" field { name: "values" number: 1 label: LABEL_REPEATED type: TYPE_INT64 } }
"""
"""The messages, as protobuf writes a `FileDescriptorProto` as text."""


def example_of(record: bytes) -> dict[str, Any]:
    """Reads an Example.

    Returns:
        A dict of features, sorted by name because protobuf maps have no order: an array of int64 or float32,
        or a list of bytes; None if a feature holds no list.

    Raises:
        ValueError: the record has other fields than an Example, or a list has values of another type.
        google.protobuf.message.DecodeError: it is not a message.

    Example:
        >>> example_of(bytes([10, 13, 10, 11, 10, 1, 120, 18, 6, 26, 4, 10, 2, 7, 9]))
        {'x': array([7, 9])}
    """
    message_type, unknown_fields = _parser()
    example = message_type.FromString(record)
    for unknown in unknown_fields(example):
        # A SequenceExample begins the same way, and would lose its feature lists.
        raise ValueError(f"field {unknown.field_number} is not a field of an Example")
    features = {entry.key: entry.value for entry in example.features.entries}
    return {name: _values_of(features[name], unknown_fields) for name in sorted(features)}


def _values_of(feature: Any, unknown_fields: Any) -> Any:
    kind = feature.WhichOneof("kind")
    if kind is None:
        return None
    message = getattr(feature, kind)
    if any(unknown.field_number == 1 for unknown in unknown_fields(message)):  # of another wire type
        raise ValueError(f"a list of {kind} has values of another type")
    values = message.values
    return list(values) if kind == "bytes" else np.array(values, np.float32 if kind == "floats" else np.int64)


@cache
def _parser() -> tuple[Any, Any]:
    """Makes the message type in a pool of its own, since TensorFlow adds its own to the global one."""
    file = extra("google.protobuf.descriptor_pb2", "tfrecord").FileDescriptorProto()
    extra("google.protobuf.text_format", "tfrecord").Parse(_EXAMPLE_SCHEMA, file)
    pool = extra("google.protobuf.descriptor_pool", "tfrecord").DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    descriptor = pool.FindMessageTypeByName("samplerkit.Example")
    message_type = extra("google.protobuf.message_factory", "tfrecord").GetMessageClass(descriptor)
    return message_type, extra("google.protobuf.unknown_fields", "tfrecord").UnknownFieldSet
