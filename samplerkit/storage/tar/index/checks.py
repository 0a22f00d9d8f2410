"""Whether a file of ours says what an index can say: each value is checked before one is used.

A digest that fits says that a file is whole, not that samplerkit wrote it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from samplerkit.storage.arrays import Array, unsound
from samplerkit.storage.tar.format.headers import BLOCK
from samplerkit.storage.tar.index.archive import Archive

MOST = 1 << 62
"""No number of an index is as large."""

AT_ONCE = 1 << 20
"""Numbers that are checked in one go."""

_FLAW = (int, str, str)


def check_index_meta(place: str, meta: Mapping[str, Any]) -> None:
    """Checks the values of an index that are no arrays.

    Raises:
        DatasetError: one of them is not what it must be; `place` is the file's name.
    """
    kinds = {"size": int, "mtime_ns": _is_version, "unpacked_size": _is_size, "is_certain": bool}
    _check_meta(place, meta, {**kinds, "flaws": [_FLAW], **_SAMPLES})


def check_joint_meta(place: str, meta: Mapping[str, Any], archives: int) -> None:
    """Checks what is kept of several archives, with or without their samples.

    Raises:
        DatasetError: a value is not what it must be; `place` is the file's name.
    """

    def is_archive(value: Any) -> bool:
        return _fits(value, int) and value < archives

    _check_meta(place, meta, {"flaws": [(is_archive, *_FLAW)], "fingerprint": str})


def check_catalogue(
    place: str, archives: Sequence[Archive], meta: Mapping[str, Any], arrays: Mapping[str, Array]
) -> None:
    """Checks all of the joint index of some archives, numbers too.

    Raises:
        DatasetError: something is not what it must be; `place` is the file's name.
    """
    number = len(archives)
    check_joint_meta(place, meta, number)
    _check_meta(place, meta, {"unpacked": (_is_size,) * number, **_SAMPLES})
    sizes = [
        archive.size if unpacked is None else unpacked
        for archive, unpacked in zip(archives, meta["unpacked"], strict=True)
    ]
    samples = arrays.get("samples", np.zeros(0, dtype=np.int64))
    if samples.size != number:
        raise unsound(place, f"samples has another length than {number}", samples.size)
    _check_samples(place, meta, arrays, samples, sizes)


def _check_meta(place: str, meta: Mapping[str, Any], kinds: Mapping[str, Any]) -> None:
    for name, kind in {**kinds, "counts": _are_counts}.items():
        if name not in meta:
            raise unsound(place, "a value is missing", name)
        if not _fits(meta[name], kind):
            raise unsound(place, f"{name} cannot be what it says", meta[name])
    if bool(meta["counts"]) != bool(meta["flaws"]):
        raise unsound(place, "counts are not those of its flaws", meta["counts"])


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


_SAMPLES: Mapping[str, Any] = {"fields": [_are_fields], "ignored": int}


def check_numbers(place: str, archive: Archive, meta: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
    """Checks all numbers of an index: none leads out of its arrays or out of the archive.

    Raises:
        DatasetError: one does; `place` is the file's name.
    """
    end = archive.size if meta["unpacked_size"] is None else meta["unpacked_size"]
    samples = arrays["signature"].size if "signature" in arrays else 0
    _check_samples(place, meta, arrays, np.array([samples]), [end])


def _check_samples(
    place: str, meta: Mapping[str, Any], arrays: Mapping[str, Array], archives: Array, ends: Sequence[int]
) -> None:
    """Checks the arrays: no number leads out of them, or out of its archive, which ends at `ends`."""
    for name, size in _sizes(place, arrays).items():
        if arrays[name].size != size:
            raise unsound(place, f"{name} has another length than {size}", arrays[name].size)
    _check_sums(place, "samples", archives, arrays["signature"].size)
    widths = np.array([len(names) for names in meta["fields"]], dtype=np.int64)
    _check_within(place, "signature", arrays["signature"], widths.size)
    _check_steps(place, "first", arrays, lambda part: widths[arrays["signature"][part]], "offset")
    _check_steps(place, "key_end", arrays, None, "keys")
    starts = np.concatenate([[0], np.cumsum(archives, dtype=np.int64)])
    _check_places(place, arrays, arrays["first"][starts].astype(np.int64), np.array(ends, dtype=np.int64))


def _sizes(place: str, arrays: Mapping[str, Array]) -> dict[str, int]:
    """How long each array must be."""
    for name in ("first", "signature", "key_end", "keys", "offset", "size"):
        if name not in arrays:
            raise unsound(place, "an array is missing", name)
    for name, dtype in (("keys", "u1"), ("crc", "<u4")):
        if name in arrays and arrays[name].dtype != np.dtype(dtype):
            raise unsound(place, f"{name} has another type than {dtype}", arrays[name].dtype.str)
    samples, members = arrays["signature"].size, arrays["offset"].size
    sizes = {"first": samples + 1, "key_end": samples + 1, "size": members}
    return {**sizes, "crc": members} if "crc" in arrays else sizes


def _check_within(place: str, name: str, numbers: Array, end: int) -> None:
    for at in range(0, numbers.size, AT_ONCE):
        part = numbers[at : at + AT_ONCE]
        wrong = (part < 0) | (part >= end)
        if wrong.any():
            raise unsound(place, f"{name} lies outside of [0, {end})", int(part[wrong][0]))


def _check_sums(place: str, name: str, numbers: Array, total: int) -> None:
    _check_within(place, name, numbers, total + 1)
    # Each is at most the total, so as many as fit into memory cannot overflow.
    if int(numbers.sum(dtype=np.int64)) != total:
        raise unsound(place, f"{name} do not add up to {total}", int(numbers.sum(dtype=np.int64)))


def _check_steps(
    place: str,
    name: str,
    arrays: Mapping[str, Array],
    widths: Callable[[slice], Array] | None,
    counted: str,
) -> None:
    """Checks where samples begin in another array: they follow one another, and fill it."""
    begins, total = arrays[name], arrays[counted].size
    _check_within(place, name, begins, total + 1)
    if int(begins[0]) != 0 or int(begins[-1]) != total:
        raise unsound(place, f"{name} does not go from 0 to {total}", (int(begins[0]), int(begins[-1])))
    for at in range(0, begins.size - 1, AT_ONCE):
        part = slice(at, min(at + AT_ONCE, begins.size - 1))
        steps = np.diff(begins[part.start : part.stop + 1].astype(np.int64))
        wrong = steps < 0 if widths is None else (steps != widths(part)) | (steps < 1)
        if wrong.any():
            raise unsound(
                place, f"{name} has a wrong step at {at + int(np.argmax(wrong))}", int(steps[wrong][0])
            )


def _check_places(place: str, arrays: Mapping[str, Array], bounds: Array, ends: Array) -> None:
    """Checks where files lie: one behind the other, each inside of its archive."""
    for at in range(0, arrays["offset"].size, AT_ONCE):
        offset = arrays["offset"][at : at + AT_ONCE].astype(np.int64)
        size = arrays["size"][at : at + AT_ONCE].astype(np.int64)
        archive = np.searchsorted(bounds, np.arange(at, at + offset.size), side="right") - 1
        is_next = np.diff(archive, prepend=-1) == 0
        before = np.concatenate([arrays["offset"][at - 1 : at] if at else [0], offset[:-1]]).astype(np.int64)
        if at:
            is_next[0] = bool(np.searchsorted(bounds, at - 1, side="right") - 1 == archive[0])
        # Not their sum, which may be too large for 64 bits.
        wrong = (offset < BLOCK) | (size < 0) | (size > ends[archive]) | (offset > ends[archive] - size)
        wrong |= is_next & (offset <= before)
        if wrong.any():
            number = int(np.argmax(wrong))
            found = (int(offset[number]), int(size[number]))
            raise unsound(place, f"offset and size of file {at + number} cannot be", found)
