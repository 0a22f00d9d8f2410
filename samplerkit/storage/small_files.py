"""Small files that are read and written as a whole, on disk or in a bucket."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from samplerkit.errors import DatasetError
from samplerkit.storage.atomic import atomic
from samplerkit.storage.remote.filesystem import put
from samplerkit.storage.remote.options import RemoteOptions
from samplerkit.storage.urls import is_remote

MOST_BYTES = 1 << 30
"""A larger file is none that is meant to be read as a whole."""


def read_small(path: str, read_remote: Callable[[str, int], bytes | None]) -> bytes | None:
    """Reads a file that is there; None if there is none.

    Args:
        path: or URL.
        read_remote: reads a URL, of so many bytes at most: a method of a `RemoteStorage`.

    Raises:
        DatasetError: it cannot be read.
    """
    if is_remote(path):
        return read_remote(path, MOST_BYTES)
    if not Path(path).is_file():
        return None
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise DatasetError(path, f"cannot be read ({error.strerror})") from error


def write_small(path: str, data: bytes, options: RemoteOptions) -> None:
    """Writes a file, all or nothing.

    Args:
        path: or URL.
        data: what it is to hold.
        options: how a URL is reached.

    Raises:
        DatasetError: it cannot be written.
    """
    if is_remote(path):
        put(options, path, data)
        return
    try:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        with atomic(Path(path)) as file:
            file.write(data)
    except OSError as error:
        hint = "make room, or say --out FOLDER"
        raise DatasetError(path, f"cannot be written ({error.strerror})", hint=hint) from error
