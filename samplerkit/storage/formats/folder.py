"""What datasets share that are a folder with an index, here or at a URL: MosaicML's and litData's."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, Final

from samplerkit.errors import ArgumentTypeError
from samplerkit.storage.files.chunked import AskedLimits, ChunkedDataset
from samplerkit.storage.files.content import gathered_samples
from samplerkit.storage.files.remote import storage_for
from samplerkit.storage.formats.arrow_rows import names_of
from samplerkit.storage.formats.stored import Stored
from samplerkit.storage.remote.options import RemoteOptions
from samplerkit.storage.urls import beside, is_remote, local_path, shown

INDEX: Final = "index.json"


class FolderDataset(ChunkedDataset):
    """Samples in the files of a folder, which an index names.

    Args:
        folder: as the user gave it.
        columns: the columns to hand out; None for all.
        decode: makes a sample of what was read; None for this itself.
        limits: what may be in memory.
        remote: how URLs are read, as the user gave it.

    Attributes:
        folder: the path or URL.
        is_remote: whether it lies elsewhere.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        columns: Sequence[str] | None,
        decode: Callable[[Any], Any] | None,
        limits: AskedLimits,
        remote: RemoteOptions | Mapping[str, Any] | None,
    ) -> None:
        if not isinstance(folder, str | os.PathLike):
            raise ArgumentTypeError("folder", "must be a path or a URL", folder)
        if decode is not None and not callable(decode):
            raise ArgumentTypeError("decode", "must be a function of a sample", decode)
        self.folder: Final = local_path(os.fspath(folder))
        self.is_remote = is_remote(self.folder)
        self._columns: Final = names_of(columns)
        self._decode: Final = decode
        storage = storage_for(self.is_remote, None, RemoteOptions.of(remote))
        super().__init__(limits, gathered_samples, storage)

    def _read_index(self) -> tuple[Stored, bytes]:
        """Reads the index, whole."""
        index = Stored.of(self._inside(INDEX), self._storage)
        return index, index.read([(0, index.size)], self._storage)[0]

    def _inside(self, name: str) -> str:
        if not self.is_remote:
            return os.fspath(Path(self.folder, name))
        return beside(self.folder, name if self.folder.endswith("/") else f"/{name}")

    def __repr__(self) -> str:
        place = shown(self.folder) if self.is_remote else self.folder
        return f"{type(self).__name__}({place!r}, {self._shown_size})"


def require_inside(name: str) -> None:
    """Requires that a file of an index lies in the folder.

    Raises:
        ValueError: it leads out.
    """
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or not path.parts:
        raise ValueError(f"a shard outside of the folder, {name!r}")
