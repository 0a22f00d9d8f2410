"""Where indexes and copies are kept: never among the user's data unless that is asked for."""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from samplerkit.errors import ArgumentTypeError
from samplerkit.storage.remote.options import RemoteOptions
from samplerkit.storage.urls import is_remote
from samplerkit.storage.user_cache import user_cache_folder

INDEX_SUFFIX = ".skidx"
"""An index beside a shard has its name and this."""


REMOTE_FOLDER = "remote"
"""Where fetched shards and unpacked ones lie in a cache folder that the user names for a dataset."""


@dataclass(frozen=True)
class Cache:
    """A folder of indexes, which can be made again, and one of copies, which is bounded.

    Args:
        folder: of indexes; made when the first one is kept.
        options: tell where copies are kept, and how many bytes of them.

    Example:
        >>> Cache.of("/scratch/mine").index_path("/data/train-0.tar").name
        '47bfc3a0d2e1f97ba976.skidx'
    """

    folder: Path
    options: RemoteOptions = field(default_factory=RemoteOptions)

    @classmethod
    def of(cls, place: Any, options: RemoteOptions | None = None) -> Cache:
        """Takes a folder, or None for the user's cache folder (`$XDG_CACHE_HOME/samplerkit`).

        Args:
            place: the folder.
            options: where copies are kept, unless it is there, and how many bytes of them.

        Raises:
            ArgumentTypeError: neither a path nor None.
        """
        options = options or RemoteOptions()
        if place is None:
            return cls(user_cache_folder() / "tar", options)
        if not isinstance(place, str | os.PathLike):
            raise ArgumentTypeError("cache", "must be a folder or None", place)
        folder = Path(os.fspath(place)).absolute()
        if options.cache is None:
            options = replace(options, cache=os.fspath(folder / REMOTE_FOLDER))
        return cls(folder, options)

    def index_path(self, archive: str) -> Path:
        """Where the index of an archive is kept."""
        return self.folder / f"{_digest(absolute(archive))}{INDEX_SUFFIX}"

    def catalogue_path(self, identity: str) -> Path:
        """Where the joint index of several archives is kept."""
        return self.folder / f"{_digest(identity)}.catalogue"

    @contextmanager
    def lock(self, path: Path) -> Iterator[None]:
        """Lets one process at a time make a file; the lock ends with its owner, however that ends.

        Where the folder cannot be written to, there is no lock: nobody else can make the file either.
        """
        # One of 64 lock files for each kind of file serves, so that they stay few.
        name = f"lock{path.suffix}-{int(_digest(path.name)[:2], 16) % 64:02}"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self.folder / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError:
            yield
            return
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)


def absolute(archive: str) -> str:
    """Gives what an archive is called everywhere on this machine: its real path, or its URL as it is."""
    return archive if is_remote(archive) else os.path.realpath(archive)


def _digest(text: str) -> str:
    return hashlib.blake2b(os.fsencode(text), digest_size=10, person=b"samplerkit").hexdigest()
