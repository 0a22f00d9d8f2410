"""CRC-32C of many pieces of bytes at a time, in numpy: what TFRecord has behind each of its parts.

A CRC is linear: that of bytes is the XOR of what each of them gives, pushed on by as many zeros as follow it.
So rows of 64 bytes are looked up and folded, then rows of 64 such values, until each piece is one value.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import chain
from typing import Any

import numpy as np

_POLYNOMIAL = 0x82F63B78  # of Castagnoli, its bits reversed
_ROW = 64
_AT_ONCE = 1024
"""Rows that are folded in one go: so they stay in the processor's cache."""

_MASK = 0xA282EAD8
_ALL = 0xFFFFFFFF

_ZEROS = bytes(_ROW)

Array = np.ndarray[Any, Any]

Buffer = bytes | memoryview


def masked_crc32c(pieces: Sequence[Buffer]) -> Array:
    """Gives the CRC-32C of each piece, masked as TFRecord stores it, shape (pieces,), uint32.

    Example:
        >>> [hex(crc) for crc in masked_crc32c([b"123456789", b""]).tolist()]
        ['0xc78ab0e5', '0xa282ead8']
    """
    crc = _crc32c(pieces)
    return ((crc >> np.uint32(15)) | (crc << np.uint32(17))) + np.uint32(_MASK)


def _crc32c(pieces: Sequence[Buffer]) -> Array:
    sizes = np.fromiter(map(len, pieces), dtype=np.int64, count=len(pieces))
    rows = np.maximum(-(-sizes // _ROW), 1)
    ends = np.cumsum(rows) * _ROW
    # Zeros before a piece change nothing, so each ends where a row ends.
    before = [_ZEROS[:zeros] for zeros in (rows * _ROW - sizes).tolist()]
    data = np.frombuffer(bytearray().join(chain.from_iterable(zip(before, pieces, strict=True))), np.uint8)
    # That a CRC begins with ones is told by the first 4 bytes of a piece turned.
    is_long = sizes >= 4
    data[(ends - sizes)[is_long, None] + np.arange(4)] ^= 0xFF
    crc, level = _folded(data.reshape(-1, _ROW), _bytes_table()), 0
    while (rows > 1).any():
        longer = -(-rows // _ROW)
        spread = np.zeros(int(longer.sum()) * _ROW, dtype="<u4")
        spread[np.repeat(np.cumsum(longer) * _ROW - np.cumsum(rows), rows) + np.arange(crc.size)] = crc
        words = spread.view(np.uint8).reshape(-1, _ROW * 4)
        crc, rows, level = _folded(words, _words_table(level)), longer, level + 1
    crc ^= np.uint32(_ALL)
    for number in np.flatnonzero(~is_long).tolist():
        crc[number] = _one_by_one(pieces[number])
    return crc


def _folded(rows: Array, table: Array) -> Array:
    """Looks up each byte of each row in the part of the table for its column, and joins what was found."""
    flat, columns = table.ravel(), np.arange(rows.shape[1], dtype=np.uint16) * np.uint16(256)
    found = np.empty(len(rows), dtype=np.uint32)
    for start in range(0, len(rows), _AT_ONCE):
        part = rows[start : start + _AT_ONCE]
        np.bitwise_xor.reduce(flat.take(part + columns), axis=1, out=found[start : start + _AT_ONCE])
    return found


@lru_cache(maxsize=1)
def _byte() -> Array:
    """What a byte gives by itself, shape (256,)."""
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, (table >> 1) ^ np.uint32(_POLYNOMIAL), table >> 1).astype(np.uint32)
    return table


def _pushed(crc: Array) -> Array:
    """Gives what values are once a zero byte has followed."""
    pushed: Array = _byte()[crc & np.uint32(0xFF)] ^ (crc >> np.uint32(8))
    return pushed


@lru_cache(maxsize=1)
def _bytes_table() -> Array:
    """What a byte of a row gives, by its column, shape (64, 256)."""
    found = [_byte()]
    for _ in range(_ROW - 1):
        found.append(_pushed(found[-1]))
    return np.array(found[::-1])


@lru_cache(maxsize=8)
def _words_table(level: int) -> Array:
    """What a byte of a value in a row of values gives, each of which stands for 64 ** (level + 1) bytes."""
    plain = np.arange(256, dtype=np.uint32) << (8 * np.arange(4, dtype=np.uint32)[:, None])
    if level:
        before = _words_table(level - 1).reshape(_ROW, 4, 256)
        step = _through(before[-2], before[0])
    else:
        step = plain
        for _ in range(_ROW):
            step = _pushed(step)
    found = [plain]
    for _ in range(_ROW - 1):
        found.append(_through(step, found[-1]))
    return np.array(found[::-1]).reshape(_ROW * 4, 256)


def _through(step: Array, crc: Array) -> Array:
    """Gives what values are once so many zeros have followed as `step`, shape (4, 256), stands for."""
    parts = [step[number][(crc >> np.uint32(8 * number)) & np.uint32(0xFF)] for number in range(4)]
    joined: Array = np.bitwise_xor.reduce(parts)
    return joined


def _one_by_one(piece: Buffer) -> int:
    crc = _ALL
    for byte in piece:
        crc = int(_byte()[(crc ^ byte) & 0xFF]) ^ (crc >> 8)
    return crc ^ _ALL
