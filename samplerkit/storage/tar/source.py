"""The archives of a dataset with their index, opened at first use."""

from __future__ import annotations

import logging
from typing import Any, Literal, final

from samplerkit.order.once import once
from samplerkit.storage.progress import progress_of, silence
from samplerkit.storage.tar.archive import Archive
from samplerkit.storage.tar.cache import Cache
from samplerkit.storage.tar.catalogue import Catalogue, open_catalogue
from samplerkit.storage.tar.flaws import Skipped
from samplerkit.storage.tar.handles import checked_most
from samplerkit.storage.tar.names import archive_names
from samplerkit.storage.tar.reader import Reader

_LOGGER = logging.getLogger(__name__)

OnError = Literal["raise", "skip"]


@final
class Source:
    """Archives, and what was asked of them.

    Args:
        urls: as in `archive_names`.
        on_error: whether a flaw is an error, or is counted and skipped.
        max_handles: archives that are open at a time.
        checksums: whether what is read is compared with a CRC-32 that was taken with the index.
        cache: the folder for indexes.
        progress: what tells how far the first pass is.
    """

    def __init__(
        self,
        urls: Any,
        on_error: OnError,
        max_handles: int | None,
        checksums: bool,
        cache: Any,
        progress: Any,
    ) -> None:
        self.names = archive_names(urls)
        self.progress = progress_of(progress)
        self._on_error = on_error
        self._max_handles = checked_most(max_handles)
        self._checksums = checksums
        self._cache = Cache.of(cache)

    @once
    def catalogue(self) -> Catalogue:
        """Where all samples lie; made at first use.

        Raises:
            DatasetError: an archive cannot be read, or has a flaw and flaws are errors.
        """
        archives = tuple(Archive.of(name) for name in self.names)
        found = open_catalogue(archives, self._cache, checksums=self._checksums, progress=self.progress)
        if self._on_error == "raise" and len(found.skipped):
            raise found.skipped.places[0].error()
        if len(found.skipped):
            counts = ", ".join(f"{count} {reason}" for reason, count in found.skipped.counts.items())
            _LOGGER.warning("skipped in %s and the other archives: %s", self.names[0], counts)
        return found

    @once
    def reader(self) -> Reader:
        """Reads samples."""
        return Reader(self.catalogue, self._cache, self._max_handles)

    def __getstate__(self) -> dict[str, Any]:
        # What shows the progress belongs to this process.
        return {**self.__dict__, "progress": silence}

    @property
    def skipped(self) -> Skipped:
        """What was skipped: nothing, unless flaws are skipped."""
        return self.catalogue.skipped
