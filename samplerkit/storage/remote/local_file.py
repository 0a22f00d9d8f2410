"""A file in the cache that is in use."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Any, final

from samplerkit.errors import NotSupportedError


@final
class LocalFile:
    """A file in the cache that is in use: it is not evicted until this is closed, or is garbage.

    Args:
        path: where it lies; read it only, for it is shared.
        size: in bytes.
        descriptor: of its lock file, which is locked for sharing; this closes it.
    """

    def __init__(self, path: Path, size: int, descriptor: int) -> None:
        self.path = str(path)
        self.size = size
        self._descriptor: int | None = descriptor
        self._pid = os.getpid()

    def close(self) -> None:
        """Lets go of the file. It may be evicted from now on."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is None:
            return
        if self._pid == os.getpid():
            # A process that was forked meanwhile has the same lock: closing alone would not end it.
            fcntl.flock(descriptor, fcntl.LOCK_UN)
        os.close(descriptor)

    def __enter__(self) -> LocalFile:
        return self

    def __exit__(self, *exception: Any) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_descriptor", None) is not None:
            self.close()

    def __reduce__(self) -> Any:
        raise NotSupportedError(
            "LocalFile", "belongs to one process", mend="fetch the URL in the other one: it is in the cache"
        )

    def __repr__(self) -> str:
        return f"LocalFile({self.path!r}, {self.size} bytes)"
