"""Which files of tokens there are: their names, what is in them, and the header of an index."""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from typing import Any, Final, final

import numpy as np

from samplerkit.errors import ArgumentTypeError, ArgumentValueError
from samplerkit.storage.urls import beside, is_remote, shown

Dtype = np.dtype[Any]

KINDS: Final = ("u1", "i1", "u2", "i2", "i4", "u4", "i8")
"""What a token may be."""

KNOWN: Final = "tokens are u1, i1, u2, i2, i4, u4 or i8, little-endian"
MAGIC: Final = b"MMIDIDX\x00\x00"
HEADER: Final = struct.Struct("<9sQBQQ")

MEGATRON: Final[dict[int, str]] = {1: "u1", 2: "i1", 3: "i2", 4: "i4", 5: "i8", 8: "u2"}
"""The types of tokens by Megatron's numbers; it has two more, of floats."""


@final
@dataclass(frozen=True)
class TokenPaths:
    """Where the tokens of a file lie, and its index.

    Args:
        data: a path or URL.
        index: of an `.idx`; None where there is none.
    """

    data: str
    index: str | None = None

    @classmethod
    def of(cls, path: str) -> TokenPaths:
        """Takes what a user names: `.npy`, raw `.bin`, an `.idx`, or the prefix of a `.bin` and an `.idx`.

        Example:
            >>> TokenPaths.of("web.bin"), TokenPaths.of("web.npy").index
            (TokenPaths(data='web.bin', index=None), None)
            >>> TokenPaths.of("web") == TokenPaths.of("web.idx")
            True
        """
        if url_end(path).endswith((".npy", ".bin")):
            return cls(path)
        if url_end(path).endswith(".idx"):
            at = len(re.split(r"[?#]", path)[0] if is_remote(path) else path) - len(".idx")
            path = path[:at] + path[at + len(".idx") :]
        return cls(_beside(path, ".bin"), _beside(path, ".idx"))


@final
@dataclass(frozen=True)
class TokenFile:
    """A file of tokens, as it was opened.

    Args:
        name: what errors call it.
        dtype: of a token.
        begin: the byte where the tokens begin.
        tokens: how many there are.
        sequences: how many its index lists; None where there is none.
    """

    name: str
    dtype: Dtype
    begin: int
    tokens: int
    sequences: int | None = None


def token_dtype(place: str, value: Any) -> Dtype:
    """Takes the type of a token.

    Raises:
        ArgumentTypeError: no type of numpy's.
        ArgumentValueError: one that tokens cannot have.
    """
    try:
        dtype: Dtype = np.dtype(value)
    except TypeError:
        raise ArgumentTypeError(place, "must be a type of numpy's", value, hint=KNOWN) from None
    if dtype.newbyteorder("<") != dtype or dtype.str[1:] not in KINDS:
        raise ArgumentValueError(place, "is no type of tokens", dtype.str, hint=KNOWN)
    return dtype


def url_end(path: str) -> str:
    """Returns a path, or a URL without its query: what its extension is looked for in."""
    return shown(path) if is_remote(path) else path


def _beside(path: str, suffix: str) -> str:
    return beside(path, suffix) if is_remote(path) else path + suffix
