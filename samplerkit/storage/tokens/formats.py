"""What a file of tokens is: raw numbers, an `.npy` array, or Megatron's `.bin` with its `.idx`."""

from __future__ import annotations

import io
import os
import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, final

import numpy as np

from samplerkit.errors import ArgumentTypeError, ArgumentValueError, DatasetError
from samplerkit.storage.missing_file import AbsentError
from samplerkit.storage.remote.storage import RemoteStorage
from samplerkit.storage.tokens.byte_files import ByteFiles
from samplerkit.storage.urls import beside, is_remote, shown

Dtype = np.dtype[Any]

KINDS: Final = ("u1", "i1", "u2", "i2", "i4", "u4", "i8")
"""What a token may be."""

MAGIC: Final = b"MMIDIDX\x00\x00"
HEADER: Final = struct.Struct("<9sQBQQ")
MEGATRON: Final[dict[int, str]] = {1: "u1", 2: "i1", 3: "i2", 4: "i4", 5: "i8", 8: "u2"}
"""The types of tokens by Megatron's numbers; it has two more, of floats."""

_FLOATS = {6: "float64", 7: "float32"}
_MOST_HEADER = 1 << 16
_KNOWN = "tokens are u1, i1, u2, i2, i4, u4 or i8, little-endian"


@final
@dataclass(frozen=True)
class TokenPaths:
    """Where the tokens of a file lie, and its index.

    Args:
        data: a path or URL.
        index: of an `.idx`; None where there is none.
    """

    data: str
    index: str | None = None

    @classmethod
    def of(cls, path: str) -> TokenPaths:
        """Takes what a user names: `.npy`, raw `.bin`, an `.idx`, or the prefix of a `.bin` and an `.idx`.

        Example:
            >>> TokenPaths.of("web.bin"), TokenPaths.of("web.npy").index
            (TokenPaths(data='web.bin', index=None), None)
            >>> TokenPaths.of("web") == TokenPaths.of("web.idx")
            True
        """
        if _end(path).endswith((".npy", ".bin")):
            return cls(path)
        if _end(path).endswith(".idx"):
            at = len(re.split(r"[?#]", path)[0] if is_remote(path) else path) - len(".idx")
            path = path[:at] + path[at + len(".idx") :]
        return cls(_beside(path, ".bin"), _beside(path, ".idx"))


@final
@dataclass(frozen=True)
class TokenFile:
    """A file of tokens, as it was opened.

    Args:
        name: what errors call it.
        dtype: of a token.
        begin: the byte where the tokens begin.
        tokens: how many there are.
        sequences: how many its index tells of; None where there is none.
    """

    name: str
    dtype: Dtype
    begin: int
    tokens: int
    sequences: int | None = None


def token_dtype(place: str, value: Any) -> Dtype:
    """Takes the type of a token.

    Raises:
        ArgumentTypeError: no type of numpy's.
        ArgumentValueError: one that tokens cannot have.
    """
    try:
        dtype: Dtype = np.dtype(value)
    except TypeError:
        raise ArgumentTypeError(place, "must be a type of numpy's", value, hint=_KNOWN) from None
    if dtype.newbyteorder("<") != dtype or dtype.str[1:] not in KINDS:
        raise ArgumentValueError(place, "is no type of tokens", dtype.str, hint=_KNOWN)
    return dtype


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
        ArgumentValueError: nobody tells the type of raw tokens.
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
        if _end(path.data).endswith(".npy"):
            return self._of_npy(number, dtype)
        name, size = self.data.name(number), self.data.size(number)
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
        name, size = self.data.name(number), self.data.size(number)
        file = io.BytesIO(self.data.peek(number, 0, min(size, _MOST_HEADER)))
        try:
            version = np.lib.format.read_magic(file)
            read = np.lib.format.read_array_header_1_0 if version == (1, 0) else _read_header_2_0
            shape, _, dtype = read(file)
        except (ValueError, EOFError) as error:
            raise DatasetError(name, f"is no npy file ({error})", hint="fetch or make it again") from error
        if len(shape) != 1 or dtype.str[1:] not in KINDS or dtype.newbyteorder("<") != dtype:
            problem = f"holds {dtype.str} of shape {shape}"
            raise DatasetError(name, problem, hint=f"{_KNOWN}, in an array of one dimension")
        _require_dtype(name, dtype, said)
        begin, tokens = file.tell(), int(shape[0])
        _require_size(name, size, begin + tokens * dtype.itemsize, "its header")
        return TokenFile(name, dtype, begin, tokens)

    def _of_megatron(self, number: int, said: Dtype | None) -> TokenFile:
        place = self.index_of[number]
        name, index, size = self.data.name(number), self.indexes.name(place), self.indexes.size(place)
        if size < HEADER.size:
            problem = f"ends at byte {size}, within its header of {HEADER.size} bytes"
            raise DatasetError(index, problem, hint="fetch or make it again")
        magic, version, code, n, m = HEADER.unpack(self.indexes.peek(place, 0, HEADER.size))
        if magic != MAGIC or version != 1:
            problem = f"is no index of Megatron's: it begins with {magic!r}, version {version}"
            raise DatasetError(index, problem, hint="give the prefix of a .bin and an .idx")
        if code not in MEGATRON:
            what = f"{_FLOATS[code]} numbers" if code in _FLOATS else f"a type of number {code}, at byte 17"
            raise DatasetError(index, f"tells of {what}, which are no tokens", hint=_KNOWN)
        dtype = np.dtype("<" + MEGATRON[code])
        _require_dtype(name, dtype, said)
        rows = HEADER.size + 12 * n + 8 * m
        if size not in {rows, rows + n}:
            problem = f"has {size} bytes, and its header tells of {rows}: {n} sequences, {m} documents"
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
        _require_size(name, self.data.size(number), end, f"its index {index}")
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
        problem = f"ends at byte {size}, and {who} tells of {told} bytes"
        raise DatasetError(name, problem, hint="it was cut: fetch or make it again")
    if size > told:
        problem = f"continues behind byte {told}, where {who} says that it ends, up to byte {size}"
        raise DatasetError(name, problem, hint="wait until it is written, or make both again")


def _require_dtype(name: str, dtype: Dtype, said: Dtype | None) -> None:
    if said is not None and said != dtype:
        raise DatasetError(name, f"holds {dtype}, and dtype says", said.name, hint="leave dtype out")


def _read_header_2_0(file: io.BytesIO) -> Any:
    # Later versions differ from 2.0 only in the encoding of the names of fields.
    return np.lib.format.read_array_header_2_0(file)


def _end(path: str) -> str:
    return shown(path) if is_remote(path) else path


def _beside(path: str, suffix: str) -> str:
    return beside(path, suffix) if is_remote(path) else path + suffix
