"""The values of MosaicML's MDS: what its encodings make of bytes. Pickles are refused."""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Callable
from decimal import Decimal
from functools import partial
from typing import Any, Final

import numpy as np

from samplerkit.storage.files.packages import extra

Decoder = Callable[[bytes], Any]

_SCALARS: Final = (
    "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64", "float16", "float32", "float64",
)  # fmt: skip
_DTYPES: Final = {
    8: "u1", 9: "i1", 16: "<u2", 17: "<i2", 18: "<f2",
    32: "<u4", 33: "<i4", 34: "<f4", 64: "<u8", 65: "<i8", 66: "<f8",
}  # fmt: skip
_SHAPE_DTYPES: Final = ("u1", "<u2", "<u4", "<u8")


class UnsafeEncodingError(Exception):
    """An encoding that runs code when it is read."""


def decoder(encoding: str) -> Decoder:
    """Gives what makes a value of bytes.

    Args:
        encoding: as an index of MDS names it.

    Raises:
        UnsafeEncodingError: it is `pkl`.
        ValueError: it is not known.

    Example:
        >>> decoder("int")(bytes([5, 0, 0, 0, 0, 0, 0, 0])), decoder("ndarray:uint8:2,1")(b"ab").tolist()
        (5, [[97], [98]])
    """
    name, _, options = encoding.partition(":")
    if name == "pkl":
        raise UnsafeEncodingError(encoding)
    if name == "ndarray":
        return _array_decoder(options)
    if name in _SCALARS and not options:
        return partial(_scalar, np.dtype(name).newbyteorder("<"))
    found = _PLAIN.get(encoding)
    if found is None:
        raise ValueError(f"encoding {encoding!r} is not known")
    return found


def _array_decoder(options: str) -> Decoder:
    kind, _, sizes = options.partition(":")
    if kind and kind not in _SCALARS:
        raise ValueError(f"arrays of {kind!r} are not known")
    shape = tuple(map(int, sizes.split(","))) if sizes else None
    return partial(_array, np.dtype(kind).newbyteorder("<") if kind else None, shape)


def _array(dtype: Any, shape: tuple[int, ...] | None, data: bytes) -> Any:
    """Reads an array: its type and its shape come before it, unless all arrays have the same."""
    at = 0
    if dtype is None:
        dtype, at = np.dtype(_DTYPES[data[0]]), 1
    if shape is None:
        number, of_sizes = data[at] >> 2, np.dtype(_SHAPE_DTYPES[data[at] % 4])
        shape = tuple(np.frombuffer(data, of_sizes, number, at + 1).tolist())
        at += 1 + number * of_sizes.itemsize
    values = np.frombuffer(data, dtype, offset=at).reshape(shape)
    return values.astype(dtype.newbyteorder("="))  # a copy, which can be written to


def _scalar(dtype: Any, data: bytes) -> Any:
    (value,) = np.frombuffer(data, dtype)
    return value


def _raw_image(data: bytes) -> Any:
    width, height, named = np.frombuffer(data, "<u4", 3).tolist()
    mode = data[12 : 12 + named].decode()
    return _pillow().frombytes(mode, (width, height), data[12 + named :])


def _image(kind: str, data: bytes) -> Any:
    image = _pillow().open(io.BytesIO(data), formats=[kind])
    image.load()  # else damage would be found only later
    return image


def _listed(decode: Decoder, start: int, data: bytes) -> list[Any]:
    """Reads a list: how many, how long each is, and they themselves."""
    number = int.from_bytes(data[start : start + 4], "little")
    sizes = np.frombuffer(data, "<u4", number, start + 4).tolist()
    at, found = start + 4 + 4 * number, []
    for size in sizes:
        found.append(decode(data[at : at + size]))
        at += size
    if at != len(data):
        raise ValueError("a list that does not end where it says")
    return found


def _pillow() -> Any:
    return extra("PIL.Image", "mds")


def _integer(data: bytes) -> int:
    (value,) = struct.unpack("<q", data)
    return int(value)


def _decimal(data: bytes) -> Decimal:
    return Decimal(data.decode())


_JPEG, _PNG = partial(_image, "JPEG"), partial(_image, "PNG")

_PLAIN: Final[dict[str, Decoder]] = {
    "bytes": bytes,
    "str": bytes.decode,
    "int": _integer,
    "str_int": int,
    "str_float": float,
    "str_decimal": _decimal,
    "json": json.loads,
    "pil": _raw_image,
    "jpeg": _JPEG,
    "png": _PNG,
    "jpeg_array": partial(_listed, _JPEG, 0),
    "jpegarray": partial(_listed, _JPEG, 0),
    "list[pil]": partial(_listed, _raw_image, 4),
    "list[jpeg]": partial(_listed, _JPEG, 4),
    "list[png]": partial(_listed, _PNG, 4),
}
