"""Thrift's compact protocol, in which Parquet writes its footers: enough to see whether one is sound."""

from __future__ import annotations

from typing import Any, final

_DEEPEST = 32


@final
class Compact:
    """Reads one struct.

    Args:
        data: that holds it, and may go on.

    Example:
        >>> Compact(bytes([0x15, 0x0E, 0x18, 0x02, 0x68, 0x69, 0x00])).struct()
        {1: 7, 2: b'hi'}
    """

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def struct(self, depth: int = 0) -> dict[int, Any]:
        """Reads a struct: its fields by number.

        Raises:
            ValueError: it is not one.
        """
        if depth > _DEEPEST:
            raise ValueError("structs in structs without end")
        fields: dict[int, Any] = {}
        field = 0
        while True:
            head = self._byte()
            if head == 0:
                return fields
            field = field + (head >> 4) if head >> 4 else self._number()
            fields[field] = self._value(head & 15, depth, in_list=False)

    def _value(self, kind: int, depth: int, *, in_list: bool) -> Any:
        if kind in {1, 2} and not in_list:  # the type of a truth is its value
            return kind == 1
        if kind in {1, 2, 3}:
            return self._byte()
        if kind in {4, 5, 6}:
            return self._number()
        if kind in {7, 8}:
            return self._bytes(8 if kind == 7 else self._varint())
        if kind in {9, 10}:
            head = self._byte()
            size = head >> 4 if head >> 4 < 15 else self._varint()
            return [self._value(head & 15, depth + 1, in_list=True) for _ in range(self._possible(size))]
        if kind == 12:
            return self.struct(depth + 1)
        raise ValueError(f"no value is of type {kind}")

    def _possible(self, size: int) -> int:
        """Refuses more than the bytes that are left could hold."""
        if size > len(self._data) - self._at:
            raise ValueError("a list that is longer than its bytes")
        return size

    def _byte(self) -> int:
        return self._bytes(1)[0]

    def _bytes(self, length: int) -> bytes:
        found = self._data[self._at : self._at + length]
        if len(found) < length:
            raise ValueError("ends early")
        self._at += length
        return found

    def _varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._byte()
            value |= (byte & 127) << shift
            if byte < 128:
                return value
            shift += 7
            if shift > 63:
                raise ValueError("a number that is too large")

    def _number(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)
