"""What datasets share that are made of files by name: where these lie, and who is told meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, ClassVar, Final

from samplerkit.storage.catalogue.file import opened_catalogue
from samplerkit.storage.catalogue.known import Kind
from samplerkit.storage.files.chunked import AskedLimits, ChunkedDataset
from samplerkit.storage.files.content import ContentPart
from samplerkit.storage.files.paths import distinct_names, file_paths
from samplerkit.storage.files.remote import storage_for
from samplerkit.storage.progress import Progress, progress_of, silence
from samplerkit.storage.remote.options import RemoteOptions
from samplerkit.storage.urls import is_remote


class DatasetOfFiles(ChunkedDataset):
    """A map-style dataset over files that a user names.

    Args:
        files: as the user gave them; where `_kind` says what they are, they may be a catalogue.
        limits: what may be in memory.
        gather: makes a batch of what was taken from chunks.
        progress: as the user gave it.
        options: how URLs are read; None leaves them to somebody else.
        lengths: what else may lie elsewhere.

    Attributes:
        files: the paths and URLs.
        is_remote: whether some of them lie elsewhere.
    """

    _kind: ClassVar[Kind | None] = None

    def __init__(
        self,
        files: Any,
        limits: AskedLimits,
        gather: Callable[[Iterable[ContentPart], int], Any],
        progress: Progress | bool | None,
        options: RemoteOptions | None,
        lengths: Any = None,
    ) -> None:
        self._progress: Final = progress_of(progress)
        known = None if self._kind is None else opened_catalogue(files, self._kind, options)
        self._catalogue: Final = known
        self.files: Final = file_paths(files, options) if known is None else known.files
        self._names: Final = distinct_names(self.files) if known is None else tuple(known.names)
        self.is_remote = any(map(is_remote, self.files)) if known is None else known.is_remote
        super().__init__(limits, gather, storage_for(self.is_remote, lengths, options))

    def __getstate__(self) -> dict[str, Any]:
        # The user's terminal does not travel to another process.
        return {**super().__getstate__(), "_progress": silence}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self.files)} files, {self._shown_size})"
