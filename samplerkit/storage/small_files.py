"""Small files that are read and written as a whole, on disk or in a bucket."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import final

from samplerkit.errors import DatasetError
from samplerkit.storage.atomic import atomic
from samplerkit.storage.remote.filesystem import put
from samplerkit.storage.remote.options import RemoteOptions

MOST_BYTES = 1 << 30
"""A larger file is none that is meant to be read as a whole."""


@final
@dataclass(frozen=True)
class SmallFiles:
    """How small files are read and written, by their paths or their URLs.

    Args:
        read: gives a file that is there; None if there is none.
        write: writes a file, all or nothing.
    """

    read: Callable[[str], bytes | None]
    write: Callable[[str, bytes], None]


def in_bucket(read_small: Callable[..., bytes | None], options: RemoteOptions) -> SmallFiles:
    """Returns the place of remote files, which a storage reads."""
    return SmallFiles(partial(read_small, most_bytes=MOST_BYTES), partial(put, options))


def _read_here(path: str) -> bytes | None:
    if not Path(path).is_file():
        return None
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise DatasetError(path, f"cannot be read ({error.strerror})") from error


def _write_here(path: str, data: bytes) -> None:
    try:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        with atomic(Path(path)) as file:
            file.write(data)
    except OSError as error:
        hint = "make room, or say --out FOLDER"
        raise DatasetError(path, f"cannot be written ({error.strerror})", hint=hint) from error


ON_DISK = SmallFiles(_read_here, _write_here)
"""The place of files on disk."""
