"""The small part of MessagePack in which MindRecord writes numbers and texts."""

from __future__ import annotations

import struct
from typing import Any, Final

_FIXED: Final[dict[int, Any]] = {0xC0: None, 0xC2: False, 0xC3: True}
_NUMBERS: Final = {
    0xCA: ">f", 0xCB: ">d", 0xCC: ">B", 0xCD: ">H", 0xCE: ">I", 0xCF: ">Q",
    0xD0: ">b", 0xD1: ">h", 0xD2: ">i", 0xD3: ">q",
}  # fmt: skip
_TEXTS: Final = {0xD9: ">B", 0xDA: ">H", 0xDB: ">I"}
_MAPS: Final = {0xDE: ">H", 0xDF: ">I"}


def unpacked_map(data: bytes) -> dict[str, Any]:
    """Reads a map of texts to numbers and texts.

    Raises:
        ValueError: it is something else, or ends elsewhere than the data.

    Example:
        >>> unpacked_map(bytes([0x81, 0xA2]) + b"id" + bytes([0xFF]))
        {'id': -1}
    """
    try:
        count, at = _count(data, 0)
        found = {}
        for _ in range(count):
            key, at = _value(data, at)
            found[key], at = _value(data, at)
    except (struct.error, IndexError) as error:
        raise ValueError("a map that is not whole") from error
    if at != len(data) or len(found) != count or not all(isinstance(key, str) for key in found):
        raise ValueError("a map that ends elsewhere than it says")
    return found


def _count(data: bytes, at: int) -> tuple[int, int]:
    kind = data[at]
    if kind in _MAPS:
        return _number(data, at, _MAPS[kind])
    if kind >> 4 != 0x8:
        raise ValueError("no map")
    return kind & 0x0F, at + 1


def _value(data: bytes, at: int) -> tuple[Any, int]:
    kind = data[at]
    if kind < 0x80 or kind >= 0xE0:
        return kind - (256 if kind >= 0xE0 else 0), at + 1
    if kind in _FIXED:
        return _FIXED[kind], at + 1
    if kind in _NUMBERS:
        return _number(data, at, _NUMBERS[kind])
    if kind >> 5 == 0b101:
        size, start = kind & 0x1F, at + 1
    elif kind in _TEXTS:
        size, start = _number(data, at, _TEXTS[kind])
    else:
        raise ValueError(f"a value of kind {kind:#x}, which is not read")
    if start + size > len(data):
        raise ValueError("a text that is not whole")
    return data[start : start + size].decode(), start + size


def _number(data: bytes, at: int, how: str) -> tuple[Any, int]:
    (value,) = struct.unpack_from(how, data, at + 1)
    return value, at + 1 + struct.calcsize(how)
