"""The shards of a dataset that are opened one by one; finding, confirming or building the index of each."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import Any, Literal, final

import numpy as np

from samplerkit.errors import DatasetError
from samplerkit.order.caching import cached_property
from samplerkit.order.typing import Ids
from samplerkit.storage.ahead.limits import CacheLimits
from samplerkit.storage.catalogue.file_catalogue import FileCatalogue
from samplerkit.storage.files.paths import file_paths
from samplerkit.storage.files.stored import INDEX_SUFFIX, Stored
from samplerkit.storage.names import short_names
from samplerkit.storage.open_files import AbsentError
from samplerkit.storage.remote.options import RemoteOptions
from samplerkit.storage.remote.storage import LocalFile, RemoteStorage
from samplerkit.storage.tar.format.flaws import Flaw
from samplerkit.storage.tar.index.finding import Cache, certain_index, empty_index, find_or_make
from samplerkit.storage.tar.index.index import Index
from samplerkit.storage.threads import all_in_threads
from samplerkit.storage.urls import is_remote, shown

PARALLEL_REQUESTS = 16
"""Shards whose versions or indexes are requested in parallel."""

PARALLEL_FETCHES = 2
"""Shards that are fetched in parallel; few, since the cache may be small."""


OnError = Literal["raise", "skip"]

Fetch = Literal["auto", "shards", "ranges"]
"""How remote samples are read: from whole shards, by ranges, or chosen by the order."""


@dataclass(frozen=True)
class TarOptions:
    """Options for reading shards: the arguments of `TarDataset` with the same names."""

    on_error: OnError
    max_handles: int | None
    checksums: bool
    cache: Cache
    fetch: Fetch
    max_shards: int
    read_ahead: int

    @property
    def skips(self) -> bool:
        """Whether flaws are counted and skipped instead of raised."""
        return self.on_error == "skip"

    @property
    def limits(self) -> CacheLimits:
        """Limits on open shards; one that is not needed soon is closed, and stays in the cache on disk."""
        threads = max(1, min(self.read_ahead, 4))
        return CacheLimits(
            self.max_shards, None, self.read_ahead, threads, keeps_unneeded=False, argument="max_shards"
        )


@final
@dataclass(frozen=True, eq=False)
class Shards:
    """The shards of a dataset; it holds nothing open, so that every process can use it.

    `storage` is None if no shard is remote. With a `catalogue`, which has the version of each shard, versions
    are not requested.
    """

    urls: tuple[str, ...]
    storage: RemoteStorage | None
    options: TarOptions
    catalogue: FileCatalogue | None = None

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The URLs without credentials and queries."""
        return tuple(map(shown, self.urls))

    @property
    def short_names(self) -> tuple[str, ...]:
        """The names relative to the common folder."""
        return short_names(self.urls) if self.catalogue is None else self.catalogue.names

    @property
    def is_remote(self) -> bool:
        """Whether some shards are remote."""
        return self.storage is not None and any(map(is_remote, self.names))

    def archive(self, number: int) -> Stored:
        """Looks up a shard, which may take a request; one of a catalogue is known already.

        Raises:
            DatasetError: the shard does not exist, or the server does not answer.
        """
        if self.catalogue is not None:
            return self.catalogue.stored(number, self.storage)
        return Stored.of(self.urls[number], self.storage)

    def sizes(self) -> Ids:
        """Returns the size of each shard; sizes are requested in parallel."""
        if self.catalogue is not None:
            return self.catalogue.sizes
        archives = all_in_threads(self.archive, len(self.urls), PARALLEL_REQUESTS, "samplerkit-version")
        return np.array([archive.size for archive in archives], dtype=np.int64)

    def usual_size(self) -> int | None:
        """Returns the size of the first remote shard, as an estimate for all; None if it is unknown."""
        try:
            size = self.archive(self._first_remote).size
        except DatasetError:  # no error, since this process may not read this shard
            return None
        return size or None

    def cache_capacity(self) -> int:
        """Returns how many remote shards fit into the cache on disk, if all have the usual size.

        A cache without a limit is assumed to hold all shards.
        """
        size, max_bytes = self.usual_size(), self.options.cache.options.max_cache_bytes
        if size is None or max_bytes is None:
            return len(self.urls)
        # A compressed shard also needs room for its decompressed copy.
        parts = 2 if self.names[self._first_remote].endswith((".gz", ".tgz")) else 1
        return max_bytes // (parts * size)

    @property
    def _first_remote(self) -> int:
        return next(number for number, name in enumerate(self.names) if is_remote(name))

    def local_path(self, number: int) -> str | None:
        """Returns the path of a shard on this machine, also of a cached one; None if there is none."""
        if self.storage is None or not is_remote(self.urls[number]):
            return self.urls[number]
        copy = self.storage.cached(self.archive(number).path)
        if copy is None:
            return None
        with copy:
            return copy.path

    def lookup_index(self, number: int) -> Index | None:
        """Finds the index of a shard in the cache or next to it, without fetching the shard; None if missing.

        Raises:
            DatasetError: the shard does not exist, or the server does not answer; or the shard has a flaw,
                and flaws are errors.
        """
        try:
            archive, options = self.archive(number), self.options
            index = find_or_make(archive, options.cache, lambda: None, checksums=options.checksums)
        except AbsentError as error:
            return self.missing_index(number, error)
        return None if index is None else self._accepted(index)

    def missing_index(self, number: int, error: AbsentError) -> Index:
        """Returns the index of a missing shard: one without samples and with a flaw.

        Raises:
            AbsentError: flaws are errors.
        """
        if not self.options.skips:
            try:
                raise error
            finally:
                del error  # it refers to this frame
        name = self.names[number]
        flaw = Flaw(name, 0, "unreadable", error.problem)
        return empty_index(Stored(name, 0), flaw)

    def open_shard(
        self, number: int, loaded: Index | None = None, *, refuses_stale: bool
    ) -> tuple[Index, LocalFile | None]:
        """Fetches a whole shard if it is remote, and finds or builds its index.

        Args:
            number: the number of the shard.
            loaded: its index, if it was loaded before.
            refuses_stale: whether an index next to the shard that is of another version is an error, since it
                was used already; otherwise it is ignored with a warning.

        Returns:
            The index, and the copy of a remote shard, which is not evicted while the object exists.

        Raises:
            DatasetError: the shard cannot be read, or has a flaw and flaws are errors.
        """
        if loaded is not None and loaded.is_missing:
            return loaded, None
        try:
            archive, options = self.archive(number), self.options
            storage = self.storage if is_remote(archive.path) else None
            copy = None if storage is None else storage.fetch(archive.path)
            # Without a tag, two versions of the same size cannot be distinguished.
            if loaded is None or not (loaded.is_certain and loaded.archive == archive and archive.version):
                loaded = certain_index(
                    archive, options.cache, checksums=options.checksums, refuses_stale=refuses_stale
                )
            return self._accepted(loaded), copy
        except AbsentError as error:
            return self.missing_index(number, error), None

    def _accepted(self, index: Index) -> Index:
        if index.skipped.places and not self.options.skips:
            raise index.skipped.places[0].error()
        if self.options.checksums or "crc" not in index.arrays:
            return index
        return replace(index, arrays={name: array for name, array in index.arrays.items() if name != "crc"})


def archive_names(
    urls: Any, options: RemoteOptions | None = None, *, keeps_absent: bool = False
) -> tuple[str, ...]:
    """Returns the names of archives; a request is only made to expand a glob of URLs.

    Args:
        urls: a path or a URL, or a list of these. In each, `{000..127}`, `{000..127..2}` and `{a,b}` are
            expanded as by a shell, then `*`, `?` and `[...]`, sorted by bytes. A path that exists is not
            expanded. Web servers cannot list files.
        options: options for remote archives; None for the defaults.
        keeps_absent: whether missing files are kept, provided that at least one exists.

    Returns:
        One path or URL per archive, in the given order.

    Raises:
        ArgumentTypeError: `urls` is neither a path nor a list of paths.
        ArgumentValueError: the list is empty, or braces do not match.
        DatasetError: a file does not exist or is not a regular file, or no file matches.
    """
    names = file_paths(urls, options or RemoteOptions(), "urls", INDEX_SUFFIX)
    # The methods of Path raise if a name is too long.
    missing = [name for name in names if not (is_remote(name) or os.path.isfile(name))]  # noqa: PTH113
    for name in filter(os.path.exists, missing):
        hint = "give the files themselves, as in 'folder/*.tar'"
        raise DatasetError("urls", "is not a regular file", name, hint=hint)
    if missing and not (keeps_absent and len(missing) < len(names)):
        is_link = os.path.islink(missing[0])  # noqa: PTH114
        problem = "is a link whose target is missing" if is_link else "there is no such file"
        raise DatasetError("urls", problem, missing[0], hint="check the path")
    return names
