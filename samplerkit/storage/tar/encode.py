"""Encoding of a sample's fields by their extensions: the way back from `decode`."""

from __future__ import annotations

import gzip
import io
import json
import zipfile
from typing import Any

import numpy as np

from samplerkit.errors import ArgumentTypeError, ArgumentValueError

NUMBERS = frozenset({"cls", "cls2", "index", "inx", "id"})
JSON = frozenset({"json", "jsn"})


def encode(name: str, value: Any) -> bytes:
    r"""Gives the bytes of a field.

    Args:
        name: the field: an extension such as `cls` or `seg.png`.
        value: bytes, as they are; text, as UTF-8; an integer for `cls`, `index` and `id`; anything that JSON
            knows for `json`; an array for `npy`; a dict of arrays for `npz`. After `.gz` at the end of the
            name all but bytes is compressed.

    Raises:
        ArgumentTypeError: the value does not go with the extension.
        ArgumentValueError: a text is none that UTF-8 can hold.

    Example:
        >>> encode("cls", 7), encode("json", {"x": 1}), encode("txt", "é")
        (b'7', b'{"x": 1}', b'\xc3\xa9')
    """
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    if name.endswith(".gz"):
        # Without the time, so that the same samples give the same bytes.
        return gzip.compress(_encoded(name.removesuffix(".gz"), value), mtime=0)
    return _encoded(name, value)


def _encoded(name: str, value: Any) -> bytes:
    kind = name.rsplit(".", 1)[-1]
    if kind in JSON:
        return _json(name, value)
    if isinstance(value, str):
        return _text(name, value)
    if kind in NUMBERS and isinstance(value, int | np.integer) and not isinstance(value, bool):
        return str(int(value)).encode()
    if kind == "npy" and isinstance(value, np.ndarray) and not value.dtype.hasobject:
        stream = io.BytesIO()
        np.lib.format.write_array(stream, value, allow_pickle=False)
        return stream.getvalue()
    if kind == "npz" and isinstance(value, dict):
        return _npz(name, value)
    raise ArgumentTypeError(name, "has no encoding for such a value", value, mend="give bytes")


def _text(name: str, value: str) -> bytes:
    try:
        return value.encode()
    except UnicodeEncodeError as error:
        raise ArgumentValueError(name, "is no text that UTF-8 can hold", value, mend="give bytes") from error


def _json(name: str, value: Any) -> bytes:
    try:
        return json.dumps(value).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise ArgumentTypeError(name, f"cannot be written as JSON ({error})", value) from error


def _npz(name: str, arrays: dict[str, Any]) -> bytes:
    """Gives the bytes of `np.savez`, which takes `allow_pickle` from numpy 2.1 on only."""
    stream = io.BytesIO()
    for taken in ("file", "allow_pickle"):
        if taken in arrays:
            raise ArgumentTypeError(name, "cannot be written as arrays (numpy has no such name)", taken)
    try:
        with zipfile.ZipFile(stream, "w") as archive:
            for field, array in arrays.items():
                with archive.open(field + ".npy", "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, np.asanyarray(array), allow_pickle=False)
    except (TypeError, ValueError) as error:
        raise ArgumentTypeError(name, f"cannot be written as arrays ({error})", arrays) from error
    return stream.getvalue()
