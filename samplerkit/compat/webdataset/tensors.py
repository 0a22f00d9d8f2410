"""webdataset's decoders for `decode`: arrays in `.ten` files, and functions by extension."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from samplerkit.errors import ArgumentValueError, DatasetError
from samplerkit.order import arguments
from samplerkit.storage.tar.steps import checked_function

MAGIC = b"~TenBin~"
KINDS = frozenset({"f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"})
ALIGNMENT = 64
_CHUNK = struct.Struct("<8sq")
_HEADER = struct.Struct("<8s8sq")


def handle_extension(extensions: str, f: Callable[[bytes], Any]) -> Callable[[str, bytes], Any]:
    """Makes a function for `decode`.

    Args:
        extensions: extensions separated by spaces; an extension may have several parts, as in `seg.png`.
        f: a function of the bytes of such a field.

    Raises:
        ArgumentTypeError: `extensions` is not a string, or `f` is not a function.
        ArgumentValueError: there is no extension.

    Example:
        >>> decoder = handle_extension("jpg seg.png", len)
        >>> decoder(".left.jpg", b"123"), decoder(".seg.png", b"12"), decoder(".png", b"1")
        (3, 2, None)
    """
    words = arguments.text("extensions", extensions).lower().split()
    targets = tuple(tuple(word.split(".")) for word in words)
    if not targets:
        raise ArgumentValueError("extensions", "must not be empty", extensions)
    return partial(_by_extension, targets, checked_function("f", f))


def _by_extension(
    targets: tuple[tuple[str, ...], ...], function: Callable[[bytes], Any], extension: str, data: bytes
) -> Any:
    """Decodes a field with one of the extensions, given as parts like `("seg", "jpg")`; None for others."""
    parts = tuple(extension.lower().split("."))
    matches = any(parts[-len(target) :] == target for target in targets)
    return function(data) if matches else None


def tensors(extension: str, data: bytes) -> list[np.ndarray[Any, Any]] | None:
    """Decodes `.ten` and `.tb`: a list of arrays; None for other extensions.

    Source: webdataset's `tenbin`: chunks padded to 64 bytes, alternately a header and its array.

    Raises:
        DatasetError: the bytes do not have this format.
    """
    if extension[extension.rfind(".") + 1 :] not in {"ten", "tb"}:
        return None
    chunks = list(_chunks(data))
    if len(chunks) % 2:
        raise DatasetError("tensors", "a header has no array")
    return [_array(header, values) for header, values in zip(chunks[::2], chunks[1::2], strict=True)]


def _chunks(data: bytes) -> Iterator[bytes]:
    position = 0
    while position < len(data):
        if len(data) - position < _CHUNK.size:
            raise DatasetError("tensors", f"end at byte {len(data)}, in the middle of a length")
        magic, size = _CHUNK.unpack_from(data, position)
        position += _CHUNK.size
        if magic != MAGIC or not 0 <= size <= len(data) - position:
            raise DatasetError("tensors", f"have a wrong mark or length at byte {position - _CHUNK.size}")
        yield data[position : position + size]
        position += -(-size // ALIGNMENT) * ALIGNMENT


def _array(header: bytes, values: bytes) -> np.ndarray[Any, Any]:
    if len(header) < _HEADER.size:
        raise DatasetError("tensors", "have a header that is too short")
    kind, _, rank = _HEADER.unpack_from(header)
    name = kind.rstrip(b"\0").decode("ascii", "replace")
    shape = np.frombuffer(header, "<i8")[3:].tolist() if len(header) % 8 == 0 else []
    if name not in KINDS or len(shape) != rank or min(shape, default=0) < 0:
        raise DatasetError("tensors", f"have a header of type {name!r} and shape {tuple(shape)}")
    dtype = np.dtype(name).newbyteorder("<")
    if math.prod(shape) * dtype.itemsize != len(values):
        raise DatasetError("tensors", f"have {len(values)} bytes for shape {tuple(shape)} of {name}")
    # A copy: torch needs writable arrays.
    return np.frombuffer(bytearray(values), dtype).reshape(shape)
