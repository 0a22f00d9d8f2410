"""Parses the wire format of `tf.train.Example`: features by name, each a list of bytes, float32 or int64."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

_VARINT, _EIGHT, _BYTES, _FOUR = 0, 1, 2, 5
_OF_BYTES, _OF_FLOATS, _OF_INTEGERS = 1, 2, 3
Bytes = bytes | memoryview


def example_of(record: bytes | memoryview) -> dict[str, Any]:
    """Reads an Example.

    Returns:
        A dict of features, sorted by name because protobuf maps have no order: an array of int64 or float32,
        or a list of bytes; None if a feature holds no list.

    Raises:
        ValueError: the record is not an Example.

    Example:
        >>> example_of(bytes([10, 13, 10, 11, 10, 1, 120, 18, 6, 26, 4, 10, 2, 7, 9]))
        {'x': array([7, 9])}
    """
    features: dict[str, Any] = {}
    for number, kind, value in _fields(memoryview(record)):
        if number != 1 or kind != _BYTES:
            # A SequenceExample begins the same way, and would lose its feature lists.
            raise ValueError(f"field {number} of an Example, which has but one")
        for entry, entry_kind, pair in _fields(value):
            if entry == 1 and entry_kind == _BYTES:
                parts = {part: data for part, part_kind, data in _fields(pair) if part_kind == _BYTES}
                features[str(parts.get(1, b""), "utf-8")] = _feature(parts.get(2, b""))
    return {name: features[name] for name in sorted(features)}


def scalars_of(sample: Mapping[str, Any], names: frozenset[str]) -> dict[str, Any]:
    """Returns the features of a sample, those in `names` as the one value that they hold.

    Raises:
        ValueError: one of these holds no value, or several.
    """
    features = dict(sample)
    for name in names & features.keys():
        values = features[name]
        if values is None or len(values) != 1:
            count = 0 if values is None else len(values)
            raise ValueError(f"feature {name!r} has {count} values, and one was to be")
        features[name] = values[0]
    return features


def _feature(data: Bytes) -> Any:
    """Reads a feature: of lists of several kinds, the last kind counts; lists of one kind are joined."""
    last_kind = 0
    parts: list[Any] = []
    for number, kind, part in _fields(data):
        if kind == _BYTES and number <= _OF_INTEGERS:
            if number != last_kind:
                last_kind, parts = number, []
            parts.append(part)
    values = [entry for part in parts for entry in _fields(part) if entry[0] == 1]
    if last_kind == _OF_BYTES:
        return [bytes(value) for _, kind, value in values if kind == _BYTES]
    if last_kind == _OF_FLOATS:
        return _joined([_floats(kind, value) for _, kind, value in values], np.float32)
    return _joined([_integers(kind, value) for _, kind, value in values], np.int64) if last_kind else None


def _joined(parts: list[Any], dtype: Any) -> Any:
    return np.concatenate(parts) if parts else np.zeros(0, dtype)


def _floats(kind: int, value: Any) -> Any:
    if kind not in {_FOUR, _BYTES}:
        raise ValueError("a list of floats that holds something else")
    return np.frombuffer(value, "<f4").astype(np.float32)


def _integers(kind: int, value: Any) -> Any:
    if kind == _VARINT:
        return np.array([value], np.uint64).view(np.int64)
    if kind != _BYTES:
        raise ValueError("a list of integers that holds something else")
    data = np.frombuffer(value, np.uint8)
    ends = np.flatnonzero(data < 128)
    if data.size and (not ends.size or ends[-1] != data.size - 1):
        raise ValueError("an integer that does not end")
    starts = np.concatenate([[0], ends[:-1] + 1]) if ends.size else ends
    if ends.size == data.size:  # each below 128
        return data.astype(np.int64)
    if (ends - starts).max() > 9:
        raise ValueError("an integer that is too large")
    places = np.arange(data.size) - np.repeat(starts, ends - starts + 1)
    bits = (data & 127).astype(np.uint64) << (7 * places).astype(np.uint64)
    return np.bitwise_or.reduceat(bits, starts).view(np.int64)


def _fields(data: Bytes) -> Iterator[tuple[int, int, Any]]:
    """Iterates over the fields of a message: number, wire type and value of each.

    Raises:
        ValueError: the message ends early, or has a wire type that Examples do not use.
    """
    at, end = 0, len(data)
    while at < end:
        key, at = _varint(data, at)
        number, kind = key >> 3, key & 7
        if kind == _VARINT:
            value, at = _varint(data, at)
            yield number, kind, value
            continue
        if kind == _BYTES:
            size, at = _varint(data, at)
        elif kind in {_EIGHT, _FOUR}:
            size = 8 if kind == _EIGHT else 4
        else:
            raise ValueError(f"a field of kind {kind}")
        if not number or size > end - at:
            raise ValueError("a field that is longer than its message")
        yield number, kind, data[at : at + size]
        at += size


def _varint(data: Bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise ValueError("a number that does not end")
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value & 0xFFFFFFFFFFFFFFFF, at
        shift += 7
