"""A file of named arrays: written at once or not at all, checked and mapped when it is read."""

from __future__ import annotations

import hashlib
import json
import os
import stat
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import IO, Any

import numpy as np

from samplerkit.storage.atomic import atomic
from samplerkit.storage.opening import without_waiting

MAGIC = b"samplkit"
VERSION = 2
"""Changes with what indexes, catalogues and lengths hold: a file of another version is made again."""

_PREAMBLE = struct.Struct("<8sII16s")
_ALIGNMENT = 64
_DIGEST_BYTES = 16
_AT_ONCE = 1 << 24

Array = np.ndarray[Any, np.dtype[Any]]

DTYPES = ("|u1", "<u2", "<u4", "<i8")
"""The types of numbers that are written."""


class UnreadableFileError(Exception):
    """A file of arrays is damaged, of another version, says what cannot be, or is no such file."""


@dataclass(frozen=True)
class Column:
    """An array that is to be written.

    Args:
        dtype: the type of its numbers.
        size: how many.
        parts: gives them, in arrays one after another.
    """

    dtype: np.dtype[Any]
    size: int
    parts: Callable[[], Iterable[Array]]

    @classmethod
    def of(cls, array: Array) -> Column:
        """Takes an array as it is."""
        return cls(array.dtype, array.size, lambda: [array])


def narrow(largest: int) -> np.dtype[Any]:
    """Returns the type for numbers from 0 to `largest`: uint16, uint32 or int64.

    Example:
        >>> narrow(70_000)
        dtype('uint32')
    """
    if largest < 1 << 16:
        return np.dtype("<u2")
    return np.dtype("<u4") if largest < 1 << 32 else np.dtype("<i8")


def write_arrays(path: Path, meta: Mapping[str, Any], columns: Mapping[str, Column]) -> None:
    """Writes a file of arrays: to a temporary file beside it, which then takes its name.

    Args:
        path: of the file; its folder is made if need be.
        meta: JSON values.
        columns: the arrays by name.

    Raises:
        OSError: the file cannot be written; nothing is left behind.
    """
    layout = {}
    offset = 0
    for name, column in columns.items():
        layout[name] = [column.dtype.str, column.size, offset]
        offset += -(-column.size * column.dtype.itemsize // _ALIGNMENT) * _ALIGNMENT
    header = json.dumps({"meta": meta, "arrays": layout, "bytes": offset}).encode()
    header += b" " * (-(_PREAMBLE.size + len(header)) % _ALIGNMENT)
    path.parent.mkdir(parents=True, exist_ok=True)
    # It can be made again, and is checked against its digest: no disk need be waited for.
    with atomic(path, is_synced=False) as file:
        digest = hashlib.blake2b(header, digest_size=_DIGEST_BYTES)
        file.write(bytes(_PREAMBLE.size) + header)
        for column in columns.values():
            written = 0
            for part in column.parts():
                data = np.ascontiguousarray(part, dtype=column.dtype).data
                written += data.nbytes
                digest.update(data)
                file.write(data)
            padding = bytes(-written % _ALIGNMENT)
            digest.update(padding)
            file.write(padding)
        file.seek(0)
        file.write(_PREAMBLE.pack(MAGIC, VERSION, len(header), digest.digest()))


def read_arrays(path: Path, *, verify: bool = True) -> tuple[dict[str, Any], dict[str, Array]]:
    """Maps a file of arrays.

    Args:
        path: of the file.
        verify: whether the digest of all its bytes is compared; the sizes always are.

    Returns:
        The meta values, and read-only arrays by name.

    Raises:
        OSError: there is no such file, or it cannot be read.
        UnreadableFileError: the file is damaged, of another version, or not by `write_arrays`.
    """
    with open(path, "rb", opener=without_waiting) as file:  # Path's has no opener
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise UnreadableFileError("no plain file")
        size = status.st_size
        preamble = file.read(_PREAMBLE.size)
        if len(preamble) < _PREAMBLE.size:
            raise UnreadableFileError("too short")
        magic, version, header_size, digest = _PREAMBLE.unpack(preamble)
        if magic != MAGIC or version != VERSION:
            raise UnreadableFileError("of another kind or version")
        start = _PREAMBLE.size + header_size
        if start > size:
            raise UnreadableFileError("too short")
        header = file.read(header_size)
        if verify and _digest(header, file) != digest:
            raise UnreadableFileError("damaged")
        mapped = np.memmap(file, dtype=np.uint8, mode="r")
    plain = mapped.view(np.ndarray)[start:]
    try:
        described = json.loads(header)
        meta, end = dict(described["meta"]), start + described["bytes"]
        arrays = {name: _array(plain, *place) for name, place in described["arrays"].items()}
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise UnreadableFileError(f"its header says what cannot be: {error}") from error
    if size != end:
        raise UnreadableFileError("of the wrong size")
    return meta, arrays


@contextmanager
def on_disk(data: bytes) -> Iterator[Path]:
    """Puts the bytes of a file of arrays on disk for a moment; what was mapped of it stays.

    So pages that are not needed take no memory.
    """
    with NamedTemporaryFile(prefix="samplerkit-") as file:
        file.write(data)
        file.flush()
        yield Path(file.name)


def npy_header(file: Any) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Reads the header of an `.npy` file; gives the shape and the type of its array.

    Raises:
        ValueError: it is none.
    """
    # Later versions differ from 2.0 only in the encoding of the names of fields.
    of_npy: Any = np.lib.format
    is_first = of_npy.read_magic(file) == (1, 0)
    shape, _, dtype = (of_npy.read_array_header_1_0 if is_first else of_npy.read_array_header_2_0)(file)
    return shape, dtype


def _array(plain: Array, dtype: Any, count: Any, offset: Any) -> Array:
    """Gives an array that lies in some bytes; numpy raises a ValueError where it cannot."""
    if dtype not in DTYPES or count < 0:
        raise ValueError(f"{count} numbers of type {dtype}")
    return np.frombuffer(plain, dtype, count, offset)


def _digest(header: bytes, file: IO[bytes]) -> bytes:
    digest = hashlib.blake2b(header, digest_size=_DIGEST_BYTES)
    while data := file.read(_AT_ONCE):
        digest.update(data)
    return digest.digest()
