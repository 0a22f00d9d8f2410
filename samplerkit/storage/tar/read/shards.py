"""The shards of a dataset: finding, confirming or building the index of each; their joint index."""

import hashlib
import json
import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from samplerkit.errors import DatasetError
from samplerkit.order.caching import cached_property
from samplerkit.order.layout import Layout
from samplerkit.order.typing import Ids
from samplerkit.storage.ahead.limits import CacheLimits
from samplerkit.storage.arrays import Array, narrow
from samplerkit.storage.catalogue.file_catalogue import FileCatalogue
from samplerkit.storage.files.paths import file_paths
from samplerkit.storage.files.stored import INDEX_SUFFIX, Stored, stored_files
from samplerkit.storage.names import short_names
from samplerkit.storage.open_files import AbsentError
from samplerkit.storage.remote.options import RemoteOptions
from samplerkit.storage.remote.storage import LocalFile, RemoteStorage
from samplerkit.storage.tar.format.flaws import Flaw, Skipped
from samplerkit.storage.tar.format.samples import ends_of
from samplerkit.storage.tar.index.find_or_make import Cache, empty_index, find_or_make, verified_index
from samplerkit.storage.tar.index.index import Index, cached, read_index, split_between
from samplerkit.storage.tar.read.contents import Contents
from samplerkit.storage.threads import Progress, all_in_threads, in_threads
from samplerkit.storage.urls import is_remote, shown

_LOGGER = logging.getLogger(__name__)

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
        archives = all_in_threads(self.archive, range(len(self.urls)), PARALLEL_REQUESTS, "samplerkit-size")
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

    def open_shard(self, number: int, loaded: Index | None = None) -> tuple[Index, LocalFile | None]:
        """Fetches a whole shard if it is remote, and finds or builds its index.

        Args:
            number: the number of the shard.
            loaded: its index, if it was loaded before.

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
                loaded = verified_index(archive, options.cache, checksums=options.checksums)
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
        raise DatasetError("urls", "there is no such file", missing[0], hint="check the path")
    return names


Load = Callable[[], Index]
"""Maps the index of an archive again, so that only two indexes are open at a time."""


def summarized(loads: Sequence[Load], names: tuple[str, ...], *, checksums: bool) -> Contents:
    """Summarizes several archives; checksums enter the fingerprint only on request.

    A sample whose files are split over two archives is cut off from both. The fingerprint depends only on the
    samples: it is the same if an archive is packed again or gzipped.
    """
    counts, cuts, skipped, digests = [], list[list[int]](), list[Flaw](), []
    split, previous = list[Flaw](), None
    for load in loads:
        index = load()
        counts.append(index.num_samples)
        cuts.append([0, index.num_samples])
        skipped += index.skipped.places
        digests.append(_digest(index, checksums=checksums))
        if previous is not None and (flaw := split_between(previous, index)) is not None:
            split.append(flaw)
            cuts[-2][1] -= 1
            cuts[-1][0] = 1
        previous = index
    # If the only sample of an archive is split at both ends, `stop` is less than `first`.
    ranges = [(first, max(first, stop)) for first, stop in cuts]
    identity = hashlib.blake2b(digest_size=16, person=b"samplerkit")
    for digest, cut in zip(digests, ranges, strict=True):
        identity.update(digest + repr(cut).encode())
    firsts, stops = np.array(ranges, dtype=np.int64).T
    layout = Layout(stops - firsts, names)
    return Contents(layout, np.array(counts), firsts, identity.hexdigest(), Skipped((*skipped, *split)))


def _digest(index: Index, *, checksums: bool) -> bytes:
    """Returns the digest of the samples of an archive, without their positions."""
    digest = hashlib.blake2b(json.dumps(index.fields).encode(), digest_size=16)
    for name in ("first", "signature", "key_end", "keys", "size", *(["crc"] if checksums else [])):
        digest.update(index.arrays[name].size.to_bytes(8, "little"))
        digest.update(np.ascontiguousarray(index.arrays[name]).data)
    return digest.digest()


def joined(loads: Sequence[Load], names: tuple[str, ...], *, checksums: bool) -> Index:
    """Joins the indexes of several archives, of which one is open at a time."""
    contents = summarized(loads, names, checksums=checksums)
    # Tuples of fields are renumbered over all archives, in order of appearance.
    fields: dict[tuple[str, ...], int] = {}
    archives: list[Stored] = []
    unpacked: list[int | None] = []
    parts: list[dict[str, Array]] = []
    sizes = contents.layout.sizes
    for load, first, size in zip(loads, contents.firsts.tolist(), sizes.tolist(), strict=True):
        index = load()
        archives += index.archives
        unpacked += index.unpacked
        numbers = np.array([fields.setdefault(each, len(fields)) for each in index.fields], np.int64)
        part = index.part(first, first + size)
        part["signature"] = numbers[part["signature"]]
        parts.append({name: part[name].copy() for name in part if checksums or name != "crc"})
    arrays = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    arrays |= {name: ends_of(arrays[name]) for name in ("first", "key_end")}
    arrays["signature"] = arrays["signature"].astype(narrow(len(fields)))
    arrays["samples"] = sizes
    return Index(
        tuple(archives), tuple(unpacked), tuple(fields), contents.skipped, arrays, contents.fingerprint
    )


def indexed_contents(shards: Shards, progress: Progress) -> Contents | Index:
    """Indexes shards: returns their joint index if all are on disk, otherwise a summary of their indexes.

    The fingerprint is the same for both.

    Raises:
        DatasetError: a shard cannot be read, or has a flaw and flaws are errors.
    """
    if shards.storage is None:
        contents: Contents | Index = _joint_index(shards, progress)
    else:
        loads, checksums = _indexes(shards, progress), shards.options.checksums
        contents = summarized(loads, shards.short_names, checksums=checksums)
    skipped = contents.skipped
    if len(skipped) and not shards.options.skips:
        raise skipped.places[0].error()
    if len(skipped):
        counts = ", ".join(f"{count} {reason}" for reason, count in skipped.counts.items())
        _LOGGER.warning("skipped in %s and the other archives: %s", shards.names[0], counts)
    return contents


def _joint_index(shards: Shards, progress: Progress) -> Index:
    """Finds the joint index of archives on disk in the cache; otherwise builds it and caches it."""
    archives, options = stored_files(shards.urls, None), shards.options
    # The name depends on the paths only, so that the index of changed archives replaces the old one.
    paths = [archive.identity for archive in archives]
    path = options.cache.joint_path(json.dumps([options.checksums, paths]))
    index = read_index(path, archives)
    if index is None:
        loads = _indexes(shards, progress)
        index = cached(joined(loads, shards.short_names, checksums=options.checksums), path)
        if index.path is None:  # the next process reads all shards again
            _LOGGER.warning("the index stays in memory: %s cannot be written to", options.cache.folder)
    return index


def _indexes(shards: Shards, progress: Progress) -> list[Load]:
    """Finds the index of each shard next to it or in the cache, or builds it from the shard.

    Raises:
        DatasetError: a shard cannot be read, or has a flaw and flaws are errors.
    """
    num_shards, loads = len(shards.urls), dict[int, Load]()

    def fetch(shard: int) -> Index:
        return shards.open_shard(shard)[0]

    progress("indexing archive", 0, num_shards)
    for find, threads in ((shards.lookup_index, PARALLEL_REQUESTS), (fetch, PARALLEL_FETCHES)):
        missing = [shard for shard in range(num_shards) if shard not in loads]
        for shard, index in in_threads(find, missing, threads, "samplerkit-index"):
            if index is not None:
                loads[shard] = index.load
                progress("indexing archive", len(loads), num_shards)
    return [loads[shard] for shard in range(num_shards)]
