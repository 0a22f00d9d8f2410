"""Parts of bytes, each cut when it is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final, overload


@final
@dataclass(frozen=True, eq=False)
class ByteParts(Sequence[memoryview]):
    """Parts of bytes that follow one another, each cut when it is asked for.

    As many views as there are samples would make Python look for garbage in all that is in memory. And each
    is of the bytes themselves: without a GIL, threads must not cut one view at the same moment.

    Args:
        data: all of them.
        borders: where each part begins, and the last one ends.
        head: bytes of each that stand before what is given.
        tail: those that stand behind it.

    Example:
        >>> [bytes(part) for part in ByteParts(b"<one><two>", [0, 5, 10], head=1, tail=1)]
        [b'one', b'two']
    """

    data: bytes
    borders: list[int]
    head: int = 0
    tail: int = 0

    def __len__(self) -> int:
        return len(self.borders) - 1

    @overload
    def __getitem__(self, at: int) -> memoryview: ...

    @overload
    def __getitem__(self, at: slice) -> list[memoryview]: ...

    def __getitem__(self, at: int | slice) -> memoryview | list[memoryview]:
        if isinstance(at, slice):
            return [self[number] for number in range(*at.indices(len(self)))]
        number = range(len(self))[at]
        return memoryview(self.data)[self.borders[number] + self.head : self.borders[number + 1] - self.tail]
