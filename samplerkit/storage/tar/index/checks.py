"""Whether a file of ours says what an index can say: each value is checked before one is used.

A digest that fits says that a file is whole, not that samplerkit wrote it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from samplerkit.storage.arrays import Array, unsound
from samplerkit.storage.tar.format.headers import BLOCK

MOST = 1 << 62
"""No number of an index is as large."""

AT_ONCE = 1 << 20
"""Numbers that are checked in one go."""


def _fits(value: Any, kind: Any) -> bool:
    """Whether a value is of a kind: a type, `[kind]` for a list of any length, a tuple, or a function."""
    if kind is int:
        return type(value) is int and 0 <= value < MOST
    if isinstance(kind, type):
        return type(value) is kind
    if isinstance(kind, list):
        return isinstance(value, list) and all(_fits(one, kind[0]) for one in value)
    if isinstance(kind, tuple):
        return isinstance(value, list) and len(value) == len(kind) and all(map(_fits, value, kind))
    return bool(kind(value))


def _is_size(value: Any) -> bool:
    return value is None or _fits(value, int)


def _is_version(value: Any) -> bool:
    return type(value) in {int, str}


def _are_fields(value: Any) -> bool:
    return bool(value) and _fits(value, [str])


def _are_counts(value: Any) -> bool:
    return isinstance(value, dict) and all(_fits(count, int) and count > 0 for count in value.values())


_VALUES: Mapping[str, Any] = {
    "archives": [(int, _is_version)],
    "unpacked": [_is_size],
    "fields": [_are_fields],
    "flaws": [(int, int, str, str)],
    "counts": _are_counts,
    "ignored": int,
    "fingerprint": str,
    "is_certain": bool,
}


def check_values(place: str, meta: Mapping[str, Any]) -> None:
    """Checks the values of an index that are no arrays.

    Raises:
        DatasetError: one of them is not what it must be; `place` is the file's name.
    """
    for name, kind in _VALUES.items():
        if name not in meta:
            raise unsound(place, "a value is missing", name)
        if not _fits(meta[name], kind):
            raise unsound(place, f"{name} cannot be what it says", meta[name])
    archives = len(meta["archives"])
    if len(meta["unpacked"]) != archives:
        raise unsound(place, "unpacked cannot be what it says", meta["unpacked"])
    if any(number >= archives for number, *_ in meta["flaws"]):
        raise unsound(place, "flaws cannot be what it says", meta["flaws"])
    if bool(meta["counts"]) != bool(meta["flaws"]):
        raise unsound(place, "counts are not those of its flaws", meta["counts"])


def check_numbers(place: str, meta: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
    """Checks all numbers of an index: none leads out of its arrays or out of its archive.

    Raises:
        DatasetError: one does; `place` is the file's name.
    """
    for name, size in _sizes(place, arrays, len(meta["archives"])).items():
        if arrays[name].size != size:
            raise unsound(place, f"{name} has another length than {size}", arrays[name].size)
    samples, signature = arrays["samples"], arrays["signature"]
    _check_within(place, "samples", samples, signature.size + 1)
    # Each is at most the total, so as many as fit into memory cannot overflow.
    if (total := int(samples.sum(dtype=np.int64))) != signature.size:
        raise unsound(place, f"samples do not add up to {signature.size}", total)
    widths = np.array([len(names) for names in meta["fields"]], dtype=np.int64)
    _check_within(place, "signature", signature, widths.size)
    _check_steps(place, "first", arrays, "offset", widths)
    _check_steps(place, "key_end", arrays, "keys", None)
    starts = np.concatenate([[0], np.cumsum(samples, dtype=np.int64)])
    ends = [
        size if plain is None else plain
        for (size, _), plain in zip(meta["archives"], meta["unpacked"], strict=True)
    ]
    _check_places(place, arrays, arrays["first"][starts].astype(np.int64), np.array(ends, dtype=np.int64))


def _sizes(place: str, arrays: Mapping[str, Array], archives: int) -> dict[str, int]:
    """How long each array must be."""
    for name in ("samples", "first", "signature", "key_end", "keys", "offset", "size"):
        if name not in arrays:
            raise unsound(place, "an array is missing", name)
    for name, dtype in (("keys", "u1"), ("crc", "<u4")):
        if name in arrays and arrays[name].dtype != np.dtype(dtype):
            raise unsound(place, f"{name} has another type than {dtype}", arrays[name].dtype.str)
    samples, members = arrays["signature"].size, arrays["offset"].size
    sizes = {"samples": archives, "first": samples + 1, "key_end": samples + 1, "size": members}
    return {**sizes, "crc": members} if "crc" in arrays else sizes


def _check_within(place: str, name: str, numbers: Array, end: int) -> None:
    for at in range(0, numbers.size, AT_ONCE):
        part = numbers[at : at + AT_ONCE]
        wrong = (part < 0) | (part >= end)
        if wrong.any():
            raise unsound(place, f"{name} lies outside of [0, {end})", int(part[wrong][0]))


def _check_steps(
    place: str, name: str, arrays: Mapping[str, Array], counted: str, widths: Array | None
) -> None:
    """Checks where samples begin in another array: they follow one another, and fill it."""
    begins, total = arrays[name], arrays[counted].size
    _check_within(place, name, begins, total + 1)
    if int(begins[0]) != 0 or int(begins[-1]) != total:
        raise unsound(place, f"{name} does not go from 0 to {total}", (int(begins[0]), int(begins[-1])))
    for at in range(0, begins.size - 1, AT_ONCE):
        part = slice(at, min(at + AT_ONCE, begins.size - 1))
        steps = np.diff(begins[part.start : part.stop + 1].astype(np.int64))
        wrong = (steps < 0) if widths is None else (steps != widths[arrays["signature"][part]]) | (steps < 1)
        if wrong.any():
            raise unsound(
                place, f"{name} has a wrong step at {at + int(np.argmax(wrong))}", int(steps[wrong][0])
            )


def _check_places(place: str, arrays: Mapping[str, Array], bounds: Array, ends: Array) -> None:
    """Checks where files lie: one behind the other, each inside of its archive."""
    for at in range(0, arrays["offset"].size, AT_ONCE):
        # With the file before, to which the first of this part is compared.
        start = max(0, at - 1)
        offset = arrays["offset"][start : at + AT_ONCE].astype(np.int64)
        size = arrays["size"][start : at + AT_ONCE].astype(np.int64)
        archive = np.searchsorted(bounds, np.arange(start, start + offset.size), side="right") - 1
        # Not their sum, which may be too large for 64 bits.
        wrong = (offset < BLOCK) | (size < 0) | (size > ends[archive]) | (offset > ends[archive] - size)
        wrong[1:] |= (np.diff(archive) == 0) & (offset[1:] <= offset[:-1])
        if wrong.any():
            number = int(np.argmax(wrong))
            found = (int(offset[number]), int(size[number]))
            raise unsound(place, f"offset and size of file {start + number} cannot be", found)
