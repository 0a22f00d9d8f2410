"""Files of tokens, opened, and parts of them: each as long as was asked for, of files that stay the same."""

from __future__ import annotations

import io
import os
import struct
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, Final, final

import numpy as np

from samplerkit.errors import ArgumentValueError, DatasetError
from samplerkit.storage.arrays import npy_header
from samplerkit.storage.files.handles import Handle, Handles, open_for_reading
from samplerkit.storage.files.stored import Stored
from samplerkit.storage.missing_file import AbsentError
from samplerkit.storage.progress import all_in_threads
from samplerkit.storage.remote.attempt import Span
from samplerkit.storage.remote.storage import RemoteStorage
from samplerkit.storage.tokens.token_files import (
    HEADER,
    KINDS,
    KNOWN,
    MAGIC,
    MEGATRON,
    Dtype,
    TokenFile,
    TokenPaths,
    url_end,
)
from samplerkit.storage.urls import is_remote

_ASKED_AT_A_TIME = 16
_FLOATS = {6: "float64", 7: "float32"}
_MOST_HEADER = 1 << 16

WantedBytes = tuple[int, int, Any]
"""The number of a file, the byte where the part begins, and the buffer that it is to fill."""


@final
class ByteFiles:
    """Reads parts of files, by `pread`, or by requests where a file is remote; nothing is mapped.

    Files are looked at when this is made. One that is written to later is an error, whatever of it is read.
    It may be used by several threads, and travels to other processes without what is open.

    Args:
        urls: paths and URLs.
        storage: fetches remote files.
        whole: whether remote files are fetched into the cache of this machine; else parts are asked for.

    Raises:
        DatasetError: a file is not there, or is no plain file.
    """

    def __init__(self, urls: Sequence[str], storage: RemoteStorage | None, *, whole: bool = False) -> None:
        self._storage: Final = None if whole else storage
        self.files: Final = _looked_at(urls, storage)
        self._handles: Final = Handles(partial(_opened, self.files))

    def name(self, number: int) -> str:
        """Returns what errors call a file."""
        return self.files[number].name

    def peek(self, number: int, begin: int, length: int) -> bytes:
        """Reads a small part; a remote file is not fetched for it, though others of its parts may need it."""
        file = self.files[number]
        is_here = file.storage is None
        return self.read(number, begin, length) if is_here else file.read([(begin, length)])[0]

    def read(self, number: int, begin: int, length: int) -> bytes:
        """Reads a part.

        Raises:
            DatasetError: the file ends before, or was written to.
        """
        data = bytearray(length)
        self.fill([(number, begin, memoryview(data))])
        return bytes(data)

    def fill(self, parts: Iterable[WantedBytes]) -> None:
        """Reads parts straight into buffers; those of a file should stand together.

        Raises:
            DatasetError: a file ends before, or was written to.
        """
        far: list[WantedBytes] = []
        by_ranges, files = self._storage is not None, self.files
        current, begin, descriptor = -1, 0, -1
        handle: Handle | None = None
        preadv = os.preadv
        for number, begin, buffer in parts:
            if number != current:
                if handle is not None:
                    self._check(current, handle, begin)
                is_far = by_ranges and files[number].storage is not None
                handle, current = None if is_far else self._handles.get(number), number
                descriptor = -1 if handle is None else handle.descriptor
            if handle is None:
                far.append((number, begin, buffer))
                continue
            try:
                got = preadv(descriptor, (buffer,), begin)
            except OSError as error:
                problem = f"cannot be read at byte {begin} ({error.strerror})"
                raise DatasetError(self.name(number), problem) from error
            if got != buffer.nbytes:
                self._fill_slowly(number, descriptor, begin, buffer)
        # Behind the reading: what was read is of the file as it was.
        if handle is not None:
            self._check(current, handle, begin)
        if far and self._storage is not None:
            spans = [Span(files[number].path, begin, buffer.nbytes) for number, begin, buffer in far]
            for (_, _, buffer), data in zip(far, self._storage.read(spans), strict=True):
                memoryview(buffer).cast("B")[:] = data

    def close(self) -> None:
        """Lets go of what is open; it is opened again when it is needed."""
        self._handles.close()

    def _fill_slowly(self, number: int, descriptor: int, begin: int, buffer: Any) -> None:
        """Fills a buffer from the beginning; a signal may have cut the first attempt short."""
        view = memoryview(buffer).cast("B")
        done = 0
        while done < len(view):
            got = os.preadv(descriptor, (view[done:],), begin + done)
            if not got:
                raise self._ended(number, os.fstat(descriptor).st_size, begin + len(view))
            done += got

    def _check(self, number: int, handle: Handle, begin: int) -> None:
        """Makes certain that an open file is still what it was."""
        file, status = self.files[number], os.fstat(handle.descriptor)
        if file.is_same(status):
            return
        if status.st_size < file.size:
            raise self._ended(number, status.st_size, file.size)
        what = f"grew from {file.size} to {status.st_size} bytes" if status.st_size > file.size else ""
        problem = f"{what or 'was written to'} while it was in use, as was seen at byte {begin}"
        raise DatasetError(file.name, problem, hint="make the dataset again when nobody writes to it")

    def _ended(self, number: int, end: int, wanted: int) -> DatasetError:
        file = self.files[number]
        problem = f"ends at byte {end}, was {file.size} bytes long, and is needed up to byte {wanted}"
        return DatasetError(file.name, problem, hint="it was cut meanwhile: fetch or make it again")


def _looked_at(urls: Sequence[str], storage: RemoteStorage | None) -> tuple[Stored, ...]:
    if not any(map(is_remote, urls)):
        return tuple(map(Stored.of, urls))

    def look(number: int) -> Stored:
        return Stored.of(urls[number], storage)

    return tuple(all_in_threads(look, len(urls), _ASKED_AT_A_TIME, "samplerkit-version"))


def _opened(files: Sequence[Stored], number: int) -> Handle:
    """Opens a file; of a remote one the copy, which is fetched if there is none."""
    file = files[number]
    if file.storage is None:
        return Handle(open_for_reading(file.path, file.path))
    # Once it is open, it may be evicted.
    with file.storage.fetch(file.path) as local:
        return Handle(open_for_reading(local.path, file.name), is_copy=True)


@final
class Opened:
    """The files of a dataset, looked at: their data, their indexes, and what is known of each.

    Args:
        paths: of each file.
        dtype: of the tokens, where the user says it; raw files do not tell it themselves.
        storage: fetches remote files.
        whole: whether remote data files are fetched into the cache of this machine.

    Raises:
        DatasetError: a file is not there, is truncated, has another type than the others, or contradicts its
            index.
        ArgumentValueError: nothing says the type of raw tokens.
    """

    def __init__(
        self, paths: Sequence[TokenPaths], dtype: Dtype | None, storage: RemoteStorage | None, *, whole: bool
    ) -> None:
        for path in paths:
            _require_known(path)
        self.data: Final = ByteFiles([path.data for path in paths], storage, whole=whole)
        # What asks for pages of an index asks for many small ones: it is fetched once a machine.
        indexed = [number for number, path in enumerate(paths) if path.index is not None]
        self.indexes: Final = ByteFiles(
            [paths[number].index or "" for number in indexed], storage, whole=True
        )
        self.index_of: Final = {number: place for place, number in enumerate(indexed)}
        self.files: Final = tuple(self._opened(number, path, dtype) for number, path in enumerate(paths))
        first = self.files[0]
        for file in self.files:
            if file.dtype != first.dtype:
                problem = f"holds {file.dtype}, and {first.name} {first.dtype}"
                raise DatasetError(file.name, problem, hint="files of one dataset have one type of tokens")

    def close(self) -> None:
        """Lets go of what is open."""
        self.data.close()
        self.indexes.close()

    def _opened(self, number: int, path: TokenPaths, dtype: Dtype | None) -> TokenFile:
        if path.index is not None:
            return self._of_megatron(number, dtype)
        if url_end(path.data).endswith(".npy"):
            return self._of_npy(number, dtype)
        name, size = self.data.name(number), self.data.files[number].size
        if dtype is None:
            hint = f"say dtype='uint16', for one; of Megatron's .bin and .idx give the prefix, {name[:-4]!r}"
            raise ArgumentValueError("dtype", "must be said for raw tokens", name, hint=hint)
        if size % dtype.itemsize:
            problem = f"has {size} bytes: at byte {size - size % dtype.itemsize} a token of {dtype} is cut"
            raise DatasetError(
                name, problem, hint="say the dtype that it was written with, or fetch it again"
            )
        return TokenFile(name, dtype, 0, size // dtype.itemsize)

    def _of_npy(self, number: int, said: Dtype | None) -> TokenFile:
        name, size = self.data.name(number), self.data.files[number].size
        file = io.BytesIO(self.data.peek(number, 0, min(size, _MOST_HEADER)))
        try:
            shape, dtype = npy_header(file)
        except (ValueError, EOFError) as error:
            raise DatasetError(name, f"is no npy file ({error})", hint="fetch or make it again") from error
        if len(shape) != 1 or dtype.str[1:] not in KINDS or dtype.newbyteorder("<") != dtype:
            problem = f"holds {dtype.str} of shape {shape}"
            raise DatasetError(name, problem, hint=f"{KNOWN}, in an array of one dimension")
        _require_dtype(name, dtype, said)
        begin, tokens = file.tell(), int(shape[0])
        _require_size(name, size, begin + tokens * dtype.itemsize, "its header")
        return TokenFile(name, dtype, begin, tokens)

    def _of_megatron(self, number: int, said: Dtype | None) -> TokenFile:
        place = self.index_of[number]
        name, index, size = self.data.name(number), self.indexes.name(place), self.indexes.files[place].size
        if size < HEADER.size:
            problem = f"ends at byte {size}, within its header of {HEADER.size} bytes"
            raise DatasetError(index, problem, hint="fetch or make it again")
        magic, version, code, n, m = HEADER.unpack(self.indexes.peek(place, 0, HEADER.size))
        if magic != MAGIC or version != 1:
            problem = f"is no index of Megatron's: it begins with {magic!r}, version {version}"
            raise DatasetError(index, problem, hint="give the prefix of a .bin and an .idx")
        if code not in MEGATRON:
            what = f"{_FLOATS[code]} numbers" if code in _FLOATS else f"a type of number {code}, at byte 17"
            raise DatasetError(index, f"says {what}, which are no tokens", hint=KNOWN)
        dtype = np.dtype("<" + MEGATRON[code])
        _require_dtype(name, dtype, said)
        rows = HEADER.size + 12 * n + 8 * m
        if size not in {rows, rows + n}:
            problem = f"has {size} bytes, and its header says {rows}: {n} sequences, {m} documents"
            raise DatasetError(
                index, problem, hint=f"it is wrong from byte {min(size, rows)} on: make it again"
            )
        end = 0
        if n:
            (length,) = struct.unpack("<i", self.indexes.peek(place, HEADER.size + 4 * (n - 1), 4))
            at = HEADER.size + 4 * n + 8 * (n - 1)
            (pointer,) = struct.unpack("<q", self.indexes.peek(place, at, 8))
            if length < 0 or pointer < 0 or pointer % dtype.itemsize:
                problem = (
                    f"says at byte {at} that sequence {n - 1} begins at byte {pointer}, of {length} tokens"
                )
                raise DatasetError(index, problem, hint="it does not belong to its .bin: make it again")
            end = pointer + length * dtype.itemsize
        _require_size(name, self.data.files[number].size, end, f"its index {index}")
        return TokenFile(name, dtype, 0, end // dtype.itemsize, n)


def _require_known(path: TokenPaths) -> None:
    """Requires that a prefix is one: any other name was taken for it.

    Raises:
        AbsentError: there is no file that it begins.
    """
    if path.index is None or is_remote(path.data):
        return
    if not os.path.lexists(path.data) and not os.path.lexists(path.index):
        name = path.data.removesuffix(".bin")
        problem = "is of no known format, and there is neither a .bin nor an .idx of that name"
        hint = "known: .npy, raw .bin, and Megatron's .bin with its .idx, named by their prefix"
        raise AbsentError(name, problem, hint=hint)


def _require_size(name: str, size: int, told: int, who: str) -> None:
    if size < told:
        problem = f"ends at byte {size}, and {who} says {told} bytes"
        raise DatasetError(name, problem, hint="it was cut: fetch or make it again")
    if size > told:
        problem = f"continues behind byte {told}, where {who} says that it ends, up to byte {size}"
        raise DatasetError(name, problem, hint="wait until it is written, or make both again")


def _require_dtype(name: str, dtype: Dtype, said: Dtype | None) -> None:
    if said is not None and said != dtype:
        raise DatasetError(name, f"holds {dtype}, and dtype says", said.name, hint="leave dtype out")
