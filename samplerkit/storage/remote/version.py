"""What is known of a remote file, and the parts of one that are read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

UNKNOWN_SIZE = -1
"""The size of a file of which the server does not tell it."""


@final
@dataclass(frozen=True)
class Version:
    """Which content a URL had when it was first asked.

    Args:
        size: in bytes; -1 if the server does not tell.
        tag: what changes with the content: the ETag, else a checksum, a generation or the time of the last
            change, with its name before it; "" if nothing of that is told.
    """

    size: int
    tag: str = ""


@final
@dataclass(frozen=True)
class Span:
    """A part of a remote file.

    Args:
        url: of the file.
        offset: of the first byte.
        length: in bytes.
    """

    url: str
    offset: int
    length: int
