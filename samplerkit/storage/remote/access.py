"""What a way to remote files must offer, and the two there are: HTTP, and fsspec for all other URLs."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Protocol

from samplerkit.errors import DatasetError
from samplerkit.storage.remote.counts import Counts
from samplerkit.storage.remote.filesystem import Filesystems
from samplerkit.storage.remote.options import RemoteOptions
from samplerkit.storage.remote.version import Version
from samplerkit.storage.threads import Stop


class Access(Protocol):
    """A way to remote files, in one process; each method makes one attempt.

    All may raise `Transient`, `Refused` and `Stopped`, and no exception of another library.
    """

    without_ranges: set[str]
    """URLs of which only the whole file can be had."""

    def version(self, url: str, stop: Stop) -> Version:
        """Asks for the size and the tag of a file."""

    def part(self, url: str, version: Version, offset: int, length: int, stop: Stop) -> bytes:
        """Reads a part of a file, of at least one byte, and of the version that is told."""

    def rest(
        self, url: str, version: Version, offset: int, stop: Stop, *, is_verified: bool = False
    ) -> Iterator[bytes]:
        """Reads a file from a byte on to its end; `is_verified`: against a digest, later."""

    def small(self, url: str, most: int, stop: Stop) -> tuple[bytes, Version]:
        """Reads a whole small file."""

    def confirm(self, url: str, version: Version, stop: Stop) -> None:
        """Makes certain that parts that were read are of a version, where their reading did not."""

    def may_resume(self, version: Version) -> bool:
        """Tells whether a broken download may go on where it broke."""

    def close(self) -> None:
        """Lets connections go."""


def web_access(options: RemoteOptions, counts: Counts) -> Access:
    """Gives the way to HTTP URLs.

    Raises:
        DatasetError: `requests` is not there.
    """
    try:
        # An extra: only HTTP URLs need requests.
        http = import_module("samplerkit.storage.remote.http")
    except ImportError as error:
        mend = 'install it with: pip install "samplerkit[remote]"'
        raise DatasetError("remote", "needs requests, which is not installed", mend=mend) from error
    access: Access = http.Http(options, counts)
    return access


def filesystem_access(options: RemoteOptions, counts: Counts) -> Access:
    """Gives the way to all other URLs."""
    return Filesystems(options, counts)
