"""Lengths that are being computed, in a file that only grows: what a killed process leaves behind counts."""

from __future__ import annotations

import json
import os
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Final, final

import numpy as np

from samplerkit.errors import ArgumentValueError, StateError
from samplerkit.order.typing import Ids
from samplerkit.storage.atomic import atomic
from samplerkit.storage.locks import NoLocksError, locked

SUFFIX: Final = ".part"

_DTYPE: Final = np.dtype("<i4")
_RECORD = struct.Struct("<II")
_MOST_ENTRIES = 1 << 24
_LONGEST_HEADER = 1 << 16
_MADE_ANEW = "remove it, and the lengths are computed anew"


@final
class LengthsJournal:
    """The lengths of the first samples, record by record, each with its checksum.

    Args:
        file: open for reading and writing, and locked.
        path: of the file.
        identity: what is computed, as JSON values: a file that says something else is refused.

    Raises:
        StateError: the file is of another dataset or function.
    """

    def __init__(self, file: BinaryIO, path: Path, identity: dict[str, Any]) -> None:
        self._file = file
        self._out = path.with_suffix("")
        self.done = 0
        self.width: int | None = None
        header = json.dumps(identity, sort_keys=True).encode() + b"\n"
        found = file.readline(_LONGEST_HEADER)
        self._begin = end = len(header)
        if found == header:
            for whole, lengths in self._records():
                end = whole
                self.done += len(lengths)
                self.width = lengths.shape[1]
        else:
            _require_same(found, identity, path)
            file.seek(0)
            file.write(header)
        # What stands behind the last whole record was cut off, or damaged.
        file.seek(end)
        file.truncate()

    def append(self, lengths: Ids) -> None:
        """Adds the lengths of the next samples: of shape (m,), or (m, 2) for pairs.

        Raises:
            ArgumentValueError: pairs behind single lengths, or the other way round.
        """
        rows = lengths.reshape(len(lengths), -1)
        self.width = self.width or rows.shape[1]
        if rows.shape[1] != self.width:
            raise ArgumentValueError(
                f"lengths[{self.done}]",
                f"must be {'pairs' if self.width == 2 else 'numbers'}, as those before",
                lengths[0].tolist(),
            )
        data = rows.astype(_DTYPE).tobytes()
        # Who is killed in the middle leaves a record whose checksum does not fit.
        with _written(self._out):
            self._file.write(_RECORD.pack(rows.size << 2 | self.width, zlib.crc32(data)) + data)
            self._file.flush()
        self.done += len(rows)

    def finish(self, out: Path) -> None:
        """Writes the lengths as an `.npy` file, which is there as a whole or not at all."""
        shape = (self.done,) if self.width != 2 else (self.done, 2)
        with atomic(out) as file:
            header = {"descr": _DTYPE.str, "fortran_order": False, "shape": shape}
            np.lib.format.write_array_header_1_0(file, header)
            written = 0
            for _, lengths in self._records():
                file.write(lengths.tobytes())
                written += len(lengths)
            if written != self.done:
                raise OSError("what was written there before has changed")

    def _records(self) -> Iterator[tuple[int, np.ndarray[Any, Any]]]:
        """Gives where each whole record ends, and its lengths, of shape (m, width)."""
        end = self._begin
        self._file.seek(end)
        while len(head := self._file.read(_RECORD.size)) == _RECORD.size:
            packed, checksum = _RECORD.unpack(head)
            entries, width = packed >> 2, packed & 3
            if not 0 < entries <= _MOST_ENTRIES or width not in (1, 2) or entries % width:
                return
            data = self._file.read(entries * _DTYPE.itemsize)
            if len(data) != entries * _DTYPE.itemsize or zlib.crc32(data) != checksum:
                return
            end += _RECORD.size + len(data)
            yield end, np.frombuffer(data, dtype=_DTYPE).reshape(-1, width)


@contextmanager
def journal_of(out: Path, identity: dict[str, Any]) -> Iterator[LengthsJournal]:
    """Opens the journal of a file of lengths, beside it; at the end, it becomes that file.

    Raises:
        ArgumentValueError: the folder cannot be written to, or another process computes these lengths now.
        StateError: the journal is of another dataset or function.
    """
    part = out.with_name(out.name + SUFFIX)
    with _written(out):
        try:
            descriptor = locked(part, is_exclusive=True)
        except NoLocksError:
            descriptor = os.open(part, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    if descriptor is None:
        raise ArgumentValueError("out", "is being computed by another process", str(out), mend="wait for it")
    with os.fdopen(descriptor, "r+b") as file:
        with _written(out):
            journal = LengthsJournal(file, part, identity)
        yield journal
        with _written(out):
            journal.finish(out)
            part.unlink(missing_ok=True)


@contextmanager
def _written(out: Path) -> Iterator[None]:
    """Says of which file it was that an error of the disk stopped the writing."""
    try:
        yield
    except OSError as error:
        raise ArgumentValueError("out", f"cannot be written ({error.strerror or error})", str(out)) from error


def _require_same(found: bytes, identity: dict[str, Any], path: Path) -> None:
    """Refuses a journal of something else; one whose header is damaged says nothing, and is made anew."""
    try:
        saved = json.loads(found)
    except ValueError:
        return
    if not isinstance(saved, dict):
        return
    for name, value in identity.items():
        if saved.get(name) != value:
            raise StateError(
                f"{path}: {name}", "is of other lengths", saved.get(name), value, mend=_MADE_ANEW
            )
