"""The files of the cache: how they are named, and which of a folder's files are ours."""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import final

from samplerkit.storage.remote.version import Version

FOLDER_LOCK = "samplerkit-remote.lock"

_NAME = re.compile(r"samplerkit-([0-9a-f]{32}-[0-9a-f]{16})\.(file|part|lock)")


@final
@dataclass(frozen=True)
class Entry:
    """A version of a file in the cache: the whole of it, or the part that has arrived, and a lock file.

    Args:
        folder: of the cache.
        key: digests of its identity and of the version.
    """

    folder: Path
    key: str

    @property
    def file(self) -> Path:
        """The whole file, once it is there."""
        return self.folder / f"samplerkit-{self.key}.file"

    @property
    def part(self) -> Path:
        """What is being written."""
        return self.folder / f"samplerkit-{self.key}.part"

    @property
    def lock(self) -> Path:
        """Locked by whom writes or deletes it; shared by those who use it; it holds a `Record`."""
        return self.folder / f"samplerkit-{self.key}.lock"

    @property
    def address(self) -> str:
        """The half of the key that all versions of a file share."""
        return self.key.partition("-")[0]


def entry_of(folder: Path, identity: str, version: Version, digest: str | None) -> Entry:
    """Gives the place of a version of a file; one that was held against a digest is another one.

    Args:
        folder: of the cache.
        identity: of the file: what tells it from all others, without what is private.
        version: of it.
        digest: that it was held against, or None.

    Example:
        >>> first, second = (Version(9, tag) for tag in ('"1"', '"2"'))
        >>> url = "https://host/a.tar"
        >>> one, other = (entry_of(Path("/cache"), url, each, None) for each in (first, second))
        >>> one.address == other.address, one.key == other.key
        (True, False)
    """
    told = f"{version.size} {version.tag} {digest or ''}"
    return Entry(folder, f"{_digest(identity, 16)}-{_digest(told, 8)}")


@final
@dataclass(frozen=True)
class Kept:
    """An entry that lies in the folder.

    Args:
        entry: which.
        size: in bytes, of the file and of the part: for that, what it will have at its end.
        on_disk: the bytes that it takes there now.
        used: when it was used last, in nanoseconds.
        is_part: there is no whole file: it is being written, or its owner died.
    """

    entry: Entry
    size: int
    on_disk: int
    used: int
    is_part: bool


def kept_in(folder: Path) -> Iterator[Kept]:
    """Goes through the entries of a folder; all other files, and links, are passed over."""
    found: dict[str, dict[str, os.stat_result]] = {}
    with os.scandir(folder) as listing:
        for item in listing:
            match = _NAME.fullmatch(item.name)
            if match is None:
                continue
            try:
                about = item.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue
            if stat.S_ISREG(about.st_mode):
                found.setdefault(match[1], {})[match[2]] = about
    for key, files in found.items():
        if "lock" not in files:  # without it nobody can tell whether it is ours, nor whether it is in use
            continue
        parts = [about for kind, about in files.items() if kind != "lock"]
        # Who uses it touches the lock: the times of the file tell whether anything was written to it.
        used = files["lock"].st_mtime_ns
        size, blocks = sum(about.st_size for about in parts), sum(about.st_blocks for about in parts)
        yield Kept(Entry(folder, key), size, 512 * blocks, used, "file" not in files)


def _digest(text: str, size: int) -> str:
    data = text.encode("utf-8", "surrogateescape")
    return hashlib.blake2b(data, digest_size=size, person=b"samplerkit").hexdigest()
