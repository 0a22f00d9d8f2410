"""Many short texts in one piece of memory, such as the names of a million files."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from typing import Final, final

import numpy as np

from samplerkit.storage.arrays import Array

_END: Final = b"\0"


@final
class Texts:
    """Texts without zero bytes, one behind another; a text is made when it is asked for.

    A million Python strings take 90 MB and more; here each takes its own bytes, and 9 more.

    Args:
        data: the texts in UTF-8, with a zero byte behind each.

    Example:
        >>> names = Texts.of([b"a.tar", b"b.tar"])
        >>> len(names), names[1], list(names)
        (2, 'b.tar', ['a.tar', 'b.tar'])
    """

    def __init__(self, data: bytes) -> None:
        self.data: Final = data
        self._ends: Final = np.flatnonzero(np.frombuffer(data, dtype=np.uint8) == 0)

    @classmethod
    def of(cls, texts: Iterable[bytes]) -> Texts:
        """Takes texts, none of which has a zero byte."""
        return cls(b"".join(text + _END for text in texts))

    @classmethod
    def unpacked(cls, packed: Array, size: int) -> Texts:
        """Takes what `packed` gave.

        Args:
            packed: bytes.
            size: how many bytes they must become: more are never made.

        Raises:
            ValueError: they become others.
        """
        inflating = zlib.decompressobj()
        try:
            data = inflating.decompress(packed.tobytes(), size + 1)
        except zlib.error as error:
            raise ValueError(str(error)) from error
        if len(data) != size or not inflating.eof or (data and data[-1:] != _END):
            raise ValueError(f"they are not {size} bytes of texts")
        return cls(data)

    def packed(self) -> Array:
        """Gives the texts deflated: names and times that are alike take a few bytes each."""
        return np.frombuffer(zlib.compress(self.data), dtype=np.uint8)

    def as_bytes(self) -> list[bytes]:
        """Gives all of them."""
        return self.data.split(_END)[:-1]

    def __len__(self) -> int:
        return self._ends.size

    def __getitem__(self, number: int) -> str:
        start = int(self._ends[number - 1]) + 1 if number else 0
        return decoded(self.data[start : int(self._ends[number])])

    def __iter__(self) -> Iterator[str]:
        return iter(decoded(self.data).split("\0")[:-1])


def decoded(text: bytes) -> str:
    """Gives the text that bytes are, as names of files are read."""
    return text.decode("utf-8", "surrogateescape")


def encoded(text: str) -> bytes:
    """Gives the bytes of a text, as names of files are written."""
    return text.encode("utf-8", "surrogateescape")
