"""Encoding of a sample's fields by their extensions: the way back from `decode`."""

from __future__ import annotations

import io
import json
from typing import Any

import numpy as np

from samplerkit.errors import ArgumentTypeError

NUMBERS = frozenset({"cls", "cls2", "index", "inx", "id"})
JSON = frozenset({"json", "jsn"})


def encode(name: str, value: Any) -> bytes:
    r"""Gives the bytes of a field.

    Args:
        name: the field: an extension such as `cls` or `seg.png`.
        value: bytes, as they are; text, as UTF-8; an integer for `cls`, `index` and `id`; anything that JSON
            knows for `json`; an array for `npy`; a dict of arrays for `npz`.

    Raises:
        ArgumentTypeError: the value does not go with the extension.

    Example:
        >>> encode("cls", 7), encode("json", {"x": 1}), encode("txt", "é")
        (b'7', b'{"x": 1}', b'\xc3\xa9')
    """
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    kind = name.rsplit(".", 1)[-1]
    if kind in JSON:
        try:
            return json.dumps(value).encode()
        except (TypeError, ValueError) as error:
            raise ArgumentTypeError(name, f"cannot be written as JSON ({error})", value) from error
    if isinstance(value, str):
        return value.encode()
    if kind in NUMBERS and isinstance(value, int | np.integer) and not isinstance(value, bool):
        return str(int(value)).encode()
    stream = io.BytesIO()
    if kind == "npy" and isinstance(value, np.ndarray) and not value.dtype.hasobject:
        np.lib.format.write_array(stream, value, allow_pickle=False)
        return stream.getvalue()
    if kind == "npz" and isinstance(value, dict):
        np.savez(stream, allow_pickle=False, **value)
        return stream.getvalue()
    raise ArgumentTypeError(name, "has no encoding for such a value", value, mend="give bytes")
