"""TFRecord files: where their records are, which an index keeps, and how a run of them is read."""

from __future__ import annotations

import hashlib
import io
import os
import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, final

import numpy as np

from samplerkit.errors import DatasetError
from samplerkit.storage.arrays import (
    Column,
    UnreadableFileError,
    narrow,
    on_disk,
    read_arrays,
    write_arrays,
)
from samplerkit.storage.atomic import user_cache_folder
from samplerkit.storage.files.stored import REWRITE, Stored
from samplerkit.storage.formats.packages import extra, guarded
from samplerkit.storage.inflate import inflated
from samplerkit.storage.missing_file import opened
from samplerkit.storage.remote.storage import RemoteStorage
from samplerkit.storage.urls import beside, identity, is_remote

INDEX_SUFFIX: Final = ".skidx"
"""An index beside a file has its name and this."""

_MOST_BYTES: Final = 1 << 30
_KIND: Final = "tfrecord"

AROUND: Final = 16
"""Bytes of a record beside its data: length, CRC of that, and CRC of the data."""

_HEAD: Final = struct.Struct("<Q4s")
_TAIL: Final = AROUND - _HEAD.size
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
        lengths: of the data of each, shape (records,), int64.
        crcs: the masked CRC-32C of each, as the file has it, shape (records,), uint32.
    """

    lengths: Array
    crcs: Array

    @classmethod
    def walked(cls, read: Read, size: int) -> Records:
        """Goes from record to record, past the data.

        Args:
            read: gives so many bytes from a place on, fewer at the end.
            size: of what it reads from.

        Raises:
            ValueError: there are no records, or the last one is not whole.
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
            at += AROUND + length
            if at > size:
                problem = f"record {len(lengths)} ends at {at}, and there are {size} bytes"
                break
            found = read(at - 4, 4 + _HEAD.size)
            lengths.append(length)
            crcs.append(found[:4])
            head = found[4:]
        said = np.frombuffer(b"".join(head[8:] for head in heads), "<u4")
        wrong = np.flatnonzero(masked_crc32c([head[:8] for head in heads]) != said)
        if wrong.size:
            raise ValueError(f"the length of record {wrong[0]} does not fit its checksum")
        if problem:
            raise ValueError(problem)
        return cls(np.array(lengths, np.int64), np.frombuffer(b"".join(crcs), "<u4").astype(np.uint32))

    @property
    def ends(self) -> Array:
        """Where each record ends."""
        return np.cumsum(self.lengths + AROUND)

    def check(self, first: int, last: int) -> int:
        """Gives what changes with the lengths and the checksums of some records."""
        part = slice(first, last)
        return zlib.crc32(self.crcs[part].astype("<u4").tobytes(), zlib.crc32(self.lengths[part].tobytes()))

    def runs(self, most_bytes: int) -> Iterator[tuple[int, int]]:
        """Cuts the records into runs of at most so many bytes, and at least one record."""
        ends, first = self.ends, 0
        while first < ends.size:
            start = int(ends[first - 1]) if first else 0
            last = max(int(np.searchsorted(ends, start + most_bytes, side="right")), first + 1)
            yield first, last
            first = last


IndexedRecords = tuple[Records, bool]
"""The records of a file, and whether it is compressed."""


@final
@dataclass(frozen=True)
class RecordRun:
    """Records of a file that are read at once.

    Args:
        span: their bytes, offset and length, as they are when unpacked.
        first: the number of the first one.
        rows: how many.
        check: what `Records.check` gave.
    """

    span: tuple[int, int]
    first: int
    rows: int
    check: int


@final
@dataclass(frozen=True)
class RecordFile:
    """A file as it was when it was looked at.

    Args:
        stored: the file.
        is_packed: whether it is compressed by gzip: then it is one run.
        runs: its records.
    """

    stored: Stored
    is_packed: bool
    runs: tuple[RecordRun, ...]

    @classmethod
    def of(cls, stored: Stored, records: Records, *, is_packed: bool, run_bytes: int) -> RecordFile:
        """Cuts the records of a file into runs."""
        ends, runs = records.ends, []
        for first, last in [(0, ends.size)] if is_packed else records.runs(run_bytes):
            start = int(ends[first - 1]) if first else 0
            span = (start, int(ends[last - 1]) - start)
            runs.append(RecordRun(span, first, last - first, records.check(first, last)))
        return cls(stored, is_packed, tuple(runs))

    def read(self, number: int, storage: RemoteStorage | None) -> list[bytes]:
        """Reads a run; the data of all its records are compared with their checksums.

        Raises:
            DatasetError: it cannot be read, or is not what it was.
        """
        run = self.runs[number]
        whole = (0, self.stored.size) if self.is_packed else run.span
        (data,) = self.stored.read([whole], storage)
        place = f"{self.stored.name}, records {run.first} to {run.first + run.rows}"

        def parsed() -> list[bytes]:
            plain = unpacked(data) if self.is_packed else data
            records = Records.walked(lambda at, size: plain[at : at + size], len(plain))
            if records.lengths.size != run.rows or records.check(0, run.rows) != run.check:
                raise DatasetError(place, "are not those that were there before", hint=REWRITE)
            ends = [0, *records.ends.tolist()]
            found = [plain[start + _HEAD.size : end - _TAIL] for start, end in pairwise(ends)]
            wrong = np.flatnonzero(masked_crc32c(found) != records.crcs)
            if wrong.size:
                damaged = run.first + int(wrong[0])
                raise DatasetError(
                    self.stored.name, f"record {damaged} does not fit its checksum", hint=REWRITE
                )
            return found

        return guarded(place, "read", parsed)


def looked_through(stored: Stored, storage: RemoteStorage | None) -> tuple[Records, bool]:
    """Goes through a file; a remote one is fetched into the cache of this machine for it.

    Returns:
        Its records, and whether it is compressed.

    Raises:
        DatasetError: it cannot be read, or is something else.
    """
    if is_remote(stored.path) and storage is not None:
        with storage.fetch(stored.path) as local:
            return guarded(stored.name, "read", lambda: _looked_through(local.path, local.size))
    return guarded(stored.name, "read", lambda: _looked_through(stored.path, stored.size))


def masked_crc32c(pieces: Sequence[bytes]) -> Array:
    """Gives the CRC-32C of each piece, masked as TFRecord stores it, shape (pieces,), uint32.

    Example:
        >>> [hex(crc) for crc in masked_crc32c([b"123456789", b""]).tolist()]
        ['0xc78ab0e5', '0xa282ead8']
    """
    value = extra("google_crc32c", "tfrecord").value
    crc = np.fromiter(map(value, pieces), np.uint32, len(pieces))
    return ((crc >> np.uint32(15)) | (crc << np.uint32(17))) + np.uint32(_MASK)


def unpacked(data: bytes) -> bytes:
    """Unpacks what gzip has packed."""
    return b"".join(inflated(io.BytesIO(data).read))


def _looked_through(path: str, size: int) -> tuple[Records, bool]:
    with opened(path) as file:

        def read(at: int, count: int) -> bytes:
            file.seek(at)  # within what is buffered this reads nothing
            return file.read(count)

        start = read(0, _HEAD.size)
        if _is_head(start) or start[:2] not in {_GZIP, *_ZLIB}:
            found, is_packed = Records.walked(read, size), False
        elif start.startswith(_GZIP):
            data = unpacked(read(0, size))
            found, is_packed = Records.walked(lambda at, count: data[at : at + count], len(data)), True
        else:
            raise ValueError("it is compressed by zlib: pack it with gzip, or not at all")
    if not found.lengths.size:
        raise ValueError("it is empty: leave it out")
    return found, is_packed


def _is_head(start: bytes) -> bool:
    """Whether a record begins so: a length may begin with the bytes of gzip."""
    return len(start) == _HEAD.size and masked_crc32c([start[:8]]).tobytes() == start[8:]


def records_of(stored: Stored, storage: RemoteStorage | None) -> IndexedRecords:
    """Finds the index of a file, or makes it and keeps it in the cache.

    It is not trusted: records are compared with their own checksums whenever they are read.

    Raises:
        DatasetError: the file cannot be read, or the file beside it is no index of it.
    """
    found = _beside(stored, storage)
    if found is not None:
        return found
    version = _version(stored, storage)
    name = identity(stored.path) if is_remote(stored.path) else os.path.realpath(stored.path)
    digest = hashlib.blake2b(os.fsencode(name), digest_size=10, person=b"tfrecord").hexdigest()
    kept = user_cache_folder() / _KIND / f"{digest}{INDEX_SUFFIX}"
    if version:
        with suppress(OSError, UnreadableFileError, DatasetError):
            known = _understood(kept, stored, version)
            if known is not None:
                return known
    made = looked_through(stored, storage)
    if version:
        with suppress(OSError):  # where the cache cannot be written to, each process looks through the file
            write_index(kept, stored, made, version)
    return made


def write_index(path: Path, stored: Stored, indexed: IndexedRecords, version: str) -> None:
    """Writes an index.

    Args:
        path: of the index.
        stored: the file.
        indexed: what was found in it.
        version: of this state of the file; it is compared only in the cache.

    Raises:
        OSError: it cannot be written.
    """
    records, is_packed = indexed
    lengths = records.lengths.astype(narrow(int(records.lengths.max(initial=0))))
    meta = {"kind": _KIND, "size": stored.size, "version": version, "is_packed": is_packed}
    columns = {"length": Column.of(lengths), "crc": Column.of(records.crcs.astype("<u4"))}
    write_arrays(path, meta, columns)


def _version(stored: Stored, storage: RemoteStorage | None) -> str:
    if not is_remote(stored.path):
        return str(stored.changed_ns)
    return "" if storage is None else storage.version(stored.path).tag


def _beside(stored: Stored, storage: RemoteStorage | None) -> IndexedRecords | None:
    name = f"{stored.name}{INDEX_SUFFIX}"
    hint = "delete it, and write it again with dataset.save_indexes()"
    try:
        if is_remote(stored.path):
            address = beside(stored.path, INDEX_SUFFIX)
            data = None if storage is None else storage.read_small(address, _MOST_BYTES)
            if data is None:
                return None
            with on_disk(data) as path:
                found = _understood(path, stored)
        else:
            found = _understood(Path(name), stored)
    except FileNotFoundError:
        return None
    except (OSError, UnreadableFileError) as error:
        raise DatasetError(name, f"cannot be read ({error})", hint=hint) from error
    if found is None:
        raise DatasetError(name, f"is of another state of the file, which has {stored.size} bytes", hint=hint)
    return found


def _understood(path: Path, stored: Stored, version: str | None = None) -> IndexedRecords | None:
    """Reads an index; None if it is of another file.

    Raises:
        OSError: it cannot be read.
        UnreadableFileError: it is damaged.
        DatasetError: it is something else.
    """
    meta, arrays = read_arrays(path)
    if (meta.get("kind"), meta.get("size")) != (_KIND, stored.size) or not {"length", "crc"} <= arrays.keys():
        return None
    if version not in {None, meta.get("version")}:
        return None
    records = Records(arrays["length"].astype(np.int64), arrays["crc"].astype(np.uint32))
    is_packed = bool(meta.get("is_packed"))
    whole = int((records.lengths + AROUND).sum())
    fits = is_packed or whole == stored.size
    is_sound = fits and records.lengths.size == records.crcs.size > 0 and records.lengths.min() >= 0
    return (records, is_packed) if is_sound else None
