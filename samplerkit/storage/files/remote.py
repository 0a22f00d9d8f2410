"""Remote files: read by a reader of local files, and asked for their sizes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar, final

import numpy as np

from samplerkit.errors import DatasetError, SamplerkitError
from samplerkit.order.typing import Ids
from samplerkit.storage.ahead.stats import FileStats
from samplerkit.storage.files.content import FileContent
from samplerkit.storage.files.reader import FileReader
from samplerkit.storage.progress import all_in_threads
from samplerkit.storage.remote.attempt import UNKNOWN_SIZE, in_other_words
from samplerkit.storage.remote.options import RemoteOptions
from samplerkit.storage.remote.storage import RemoteStorage
from samplerkit.storage.urls import is_remote, shown

ASKED_AT_A_TIME = 16
"""Sizes that are asked for at the same time."""

Result = TypeVar("Result")


@final
@dataclass(frozen=True)
class RemoteReader:
    """Reads URLs by a reader that knows only local files; local files it reads as ever.

    Each file is fetched into the cache of this machine, and stays there for certain only while it is read:
    what a reader gives must not need the file any more. Errors name the URL, without its query and without
    credentials, and never the copy.

    Args:
        reader: reads a local file.
        storage: fetches; None gives the URL itself to the reader.
    """

    reader: FileReader
    storage: RemoteStorage | None

    @property
    def counts_cheaply(self) -> bool:
        """Whether the reader counts without reading all of a file; it is fetched as a whole all the same."""
        return self.reader.counts_cheaply

    def read(self, path: str) -> FileContent:
        """Reads a file."""
        content = self._locally(path, self.reader.read)
        return replace(content, path=shown(path)) if is_remote(path) else content

    def count(self, path: str) -> int:
        """Reports how many samples a file has."""
        return self._locally(path, self.reader.count)

    def _locally(self, path: str, call: Callable[[str], Result]) -> Result:
        if not is_remote(path):
            return call(path)
        if self.storage is None:
            return _renamed(path, shown(path), call)
        with self.storage.fetch(path) as local:
            return _renamed(local.path, shown(path), call)


def storage_for(has_urls: bool, lengths: Any, options: RemoteOptions | None) -> RemoteStorage | None:
    """Gives what fetches the files of a dataset; None where nothing is to be fetched.

    Args:
        has_urls: whether a file is remote.
        lengths: as the user told them: they may lie at a URL too.
        options: None where URLs are left to the reader.
    """
    if options is None or not (has_urls or (isinstance(lengths, str) and is_remote(lengths))):
        return None
    return RemoteStorage(options)


def with_requests(stats: FileStats, storage: RemoteStorage | None) -> FileStats:
    """Adds what was asked of remote storage to the figures of a dataset."""
    if storage is None:
        return stats
    asked = storage.stats
    return replace(
        stats,
        requests=asked.requests,
        retries=asked.retries,
        downloads=asked.downloads,
        bytes_downloaded=asked.bytes,
    )


def sizes_of(paths: Sequence[str], storage: RemoteStorage | None) -> Ids:
    """Asks how many bytes each file has.

    Args:
        paths: of the files, and URLs.
        storage: asks for those that are remote.

    Raises:
        DatasetError: a size cannot be told.
    """

    def size(number: int) -> int:
        path = paths[number]
        try:
            if not is_remote(path):
                return Path(path).stat().st_size
        except OSError as error:
            raise DatasetError(path, f"cannot be read ({error.strerror})") from error
        found = UNKNOWN_SIZE if storage is None else storage.version(path).size
        if found == UNKNOWN_SIZE:
            raise DatasetError(shown(path), "does not tell its size")
        return found

    return np.array(all_in_threads(size, len(paths), ASKED_AT_A_TIME, "samplerkit-sizes"), dtype=np.int64)


def _renamed(path: str, name: str, call: Callable[[str], Result]) -> Result:
    """Calls with a path; an error has the name in its place."""

    def said(error: Exception) -> Exception:
        if not isinstance(error, SamplerkitError):
            error.__notes__ = [note.replace(path, name) for note in getattr(error, "__notes__", ())]
        if not isinstance(error, SamplerkitError) or path == name:
            return error
        value = error.value.replace(path, name) if isinstance(error.value, str) else error.value
        failed = type(error)(
            error.place.replace(path, name),
            error.problem.replace(path, name),
            *(() if value is None else (value,)),
            hint=error.hint,
        )
        # The reader's own error may hold the query of a URL, if it has seen one.
        failed.__cause__ = None if is_remote(path) else error.__cause__
        return failed

    return in_other_words(lambda: call(path), (MemoryError, SamplerkitError), said)
