"""Where indexes and unpacked archives are kept: never among the user's data unless that is asked for."""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from samplerkit.errors import ArgumentTypeError
from samplerkit.storage.remote.location import is_remote
from samplerkit.storage.user_cache import user_cache_folder

INDEX_SUFFIX = ".skidx"
"""An index beside a shard has its name and this."""


@dataclass(frozen=True)
class Cache:
    """A folder of files that can be made again.

    Args:
        folder: made when the first file is kept.

    Example:
        >>> Cache.of("/scratch/mine").index_path("/data/train-0.tar").name
        '47bfc3a0d2e1f97ba976.skidx'
    """

    folder: Path

    @classmethod
    def of(cls, place: Any) -> Cache:
        """Takes a folder, or None for the user's cache folder (`$XDG_CACHE_HOME/samplerkit`).

        Raises:
            ArgumentTypeError: neither a path nor None.
        """
        if place is None:
            return cls(user_cache_folder() / "tar")
        if not isinstance(place, str | os.PathLike):
            raise ArgumentTypeError("cache", "must be a folder or None", place)
        return cls(Path(os.fspath(place)).absolute())

    def index_path(self, archive: str) -> Path:
        """Where the index of an archive is kept."""
        return self.folder / f"{_digest(absolute(archive))}{INDEX_SUFFIX}"

    def unpacked_path(self, archive: str, size: int, version: int | str) -> Path:
        """Where an archive that was compressed is kept unpacked; its size and version are in the name."""
        told = f"{version:x}" if isinstance(version, int) else _digest(version)
        return self.folder / f"{_digest(absolute(archive))}-{size:x}-{told}.tar"

    def drop_older(self, unpacked: Path) -> None:
        """Deletes the unpacked copies of earlier versions of the same archive."""
        archive = unpacked.name.partition("-")[0]
        for path in self.folder.glob(f"{archive}-*.tar"):
            if path != unpacked:
                path.unlink(missing_ok=True)

    def catalogue_path(self, identity: str) -> Path:
        """Where the joint index of several archives is kept."""
        return self.folder / f"{_digest(identity)}.catalogue"

    @contextmanager
    def lock(self, path: Path) -> Iterator[None]:
        """Lets one process at a time make a file; the lock ends with its owner, however that ends.

        Where the folder cannot be written to, there is no lock: nobody else can make the file either.
        """
        # One of 64 lock files for each kind of file serves, so that they stay few. Who makes an index may
        # unpack an archive meanwhile: the same lock for both would wait for itself.
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
