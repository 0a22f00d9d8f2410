"""What datasets share that are made of files by name: where these lie, and who is told meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from samplerkit.storage.ahead.shelf import CacheLimits
from samplerkit.storage.files.chunked import ChunkedDataset
from samplerkit.storage.files.content import ContentPart
from samplerkit.storage.files.paths import distinct_names, file_paths
from samplerkit.storage.files.remote import storage_for
from samplerkit.storage.progress import Progress, progress_of, silence
from samplerkit.storage.remote.options import RemoteOptions
from samplerkit.storage.urls import is_remote


class DatasetOfFiles(ChunkedDataset):
    """A map-style dataset over files that a user names.

    Args:
        files: as the user gave them.
        limits: what may be in memory.
        gather: makes a batch of what was taken from chunks.
        progress: as the user gave it.
        options: how URLs are read; None leaves them to somebody else.
        lengths: what else may lie elsewhere.

    Attributes:
        files: the paths and URLs.
        is_remote: whether some of them lie elsewhere.
    """

    def __init__(
        self,
        files: Any,
        limits: CacheLimits,
        gather: Callable[[Iterable[ContentPart], int], Any],
        progress: Progress | bool | None,
        options: RemoteOptions | None,
        lengths: Any = None,
    ) -> None:
        self._progress: Final = progress_of(progress)
        self.files: Final = file_paths(files, options)
        self._names: Final = distinct_names(self.files)
        self.is_remote = any(map(is_remote, self.files))
        super().__init__(limits, gather, storage_for(self.is_remote, lengths, options))

    def __getstate__(self) -> dict[str, Any]:
        # The user's terminal does not travel to another process.
        return {**super().__getstate__(), "_progress": silence}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self.files)} files, {self._shown_size})"
