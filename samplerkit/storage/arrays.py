"""Files of named arrays: written atomically, and verified and memory-mapped when they are read."""

import hashlib
import json
import os
import stat
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import IO, Any

import numpy as np

from samplerkit.storage.atomic import atomic
from samplerkit.storage.open_files import open_nonblocking

MAGIC = b"samplkit"
VERSION = 2
"""Changes with the content of indexes, catalogues and lengths; files of another version are rebuilt."""

_PREAMBLE = struct.Struct("<8sII16s")
_ALIGNMENT = 64
_DIGEST_BYTES = 16
_PIECE = 1 << 24

Array = np.ndarray[Any, np.dtype[Any]]

DTYPES = ("|u1", "<u2", "<u4", "<i8")
"""The dtypes of stored arrays."""


class UnreadableFileError(ValueError):
    """A file of arrays is damaged, inconsistent, of another version, or of another format."""


def narrow(largest: int) -> np.dtype[Any]:
    """Returns the smallest type for integers from 0 to `largest`: uint16, uint32 or int64.

    Example:
        >>> narrow(70_000)
        dtype('uint32')
    """
    if largest < 1 << 16:
        return np.dtype("<u2")
    return np.dtype("<u4") if largest < 1 << 32 else np.dtype("<i8")


def write_arrays(path: Path, meta: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
    """Writes a file of arrays atomically: to a temporary file in the same folder, which is then renamed.

    Args:
        path: the path of the file; its folder is created if needed.
        meta: JSON values.
        arrays: the arrays by name.

    Raises:
        OSError: the file cannot be written; the temporary file is deleted.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # No fsync: the file can be rebuilt, and reading checks its digest.
    with atomic(path, is_synced=False) as file:
        _write(file, meta, arrays)


def array_bytes(meta: Mapping[str, Any], arrays: Mapping[str, Array]) -> bytes:
    """Returns the content of a file of arrays, for storage that takes bytes."""
    file = BytesIO()
    _write(file, meta, arrays)
    return file.getvalue()


def _write(file: IO[bytes], meta: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
    layout = {}
    offset = 0
    for name, array in arrays.items():
        layout[name] = [array.dtype.str, array.size, offset]
        offset += -(-array.nbytes // _ALIGNMENT) * _ALIGNMENT
    header = json.dumps({"meta": meta, "arrays": layout, "bytes": offset}).encode()
    header += b" " * (-(_PREAMBLE.size + len(header)) % _ALIGNMENT)
    digest = hashlib.blake2b(header, digest_size=_DIGEST_BYTES)
    file.write(bytes(_PREAMBLE.size) + header)
    for array in arrays.values():
        for data in (np.ascontiguousarray(array).data, bytes(-array.nbytes % _ALIGNMENT)):
            digest.update(data)
            file.write(data)
    file.seek(0)
    file.write(_PREAMBLE.pack(MAGIC, VERSION, len(header), digest.digest()))


def read_arrays(path: Path, *, verify: bool = True) -> tuple[dict[str, Any], dict[str, Array]]:
    """Maps a file of arrays into memory.

    Args:
        path: the path of the file.
        verify: whether to check the digest of the whole file. Sizes are always checked.

    Returns:
        The meta values, and read-only arrays by name.

    Raises:
        OSError: the file does not exist, or cannot be read.
        UnreadableFileError: the file is damaged, of another version, or was not written by `write_arrays`.
    """
    with open(path, "rb", opener=open_nonblocking) as file:  # Path's has no opener
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise UnreadableFileError("not a regular file")
        size = status.st_size
        preamble = file.read(_PREAMBLE.size).ljust(_PREAMBLE.size, b"\0")
        magic, version, header_size, digest = _PREAMBLE.unpack(preamble)
        if magic != MAGIC or version != VERSION:
            raise UnreadableFileError("of another kind or version")
        start = _PREAMBLE.size + header_size
        header = file.read(min(header_size, size))
        if verify and _digest(header, file) != digest:
            raise UnreadableFileError("damaged")
        mapped = np.memmap(file, dtype=np.uint8, mode="r")
    plain = mapped.view(np.ndarray)[start:]
    try:
        described = json.loads(header)
        meta, end = dict(described["meta"]), start + described["bytes"]
        arrays = {name: _array(plain, *place) for name, place in described["arrays"].items()}
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise UnreadableFileError(f"its header is invalid: {error}") from error
    if size != end:
        raise UnreadableFileError("of the wrong size")
    return meta, arrays


@contextmanager
def on_disk(data: bytes) -> Iterator[Path]:
    """Writes the bytes of a file of arrays to a temporary file; arrays mapped from it stay valid afterwards.

    Mapped pages that are not needed take no memory.
    """
    with NamedTemporaryFile(prefix="samplerkit-") as file:
        file.write(data)
        file.flush()
        yield Path(file.name)


def npy_header(file: Any) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Reads the header of an `.npy` file, and returns the shape and the dtype of its array.

    Raises:
        ValueError: the file is not an `.npy` file.
    """
    # Later versions differ from 2.0 only in the encoding of field names.
    of_npy: Any = np.lib.format
    is_first = of_npy.read_magic(file) == (1, 0)
    shape, _, dtype = (of_npy.read_array_header_1_0 if is_first else of_npy.read_array_header_2_0)(file)
    return shape, dtype


def _array(plain: Array, dtype: Any, count: Any, offset: Any) -> Array:
    """Returns an array as a view of a buffer; numpy raises a ValueError if the buffer is too short."""
    if dtype not in DTYPES or count < 0:
        raise ValueError(f"{count} numbers of type {dtype}")
    return np.frombuffer(plain, dtype, count, offset)


def _digest(header: bytes, file: IO[bytes]) -> bytes:
    digest = hashlib.blake2b(header, digest_size=_DIGEST_BYTES)
    while data := file.read(_PIECE):
        digest.update(data)
    return digest.digest()
