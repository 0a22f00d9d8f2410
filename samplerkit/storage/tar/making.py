"""The source that a user's arguments mean."""

from __future__ import annotations

from typing import Any, get_args

from samplerkit.errors import ArgumentValueError
from samplerkit.order import arguments
from samplerkit.storage.lengths import fetched_lengths, given_lengths
from samplerkit.storage.progress import progress_of
from samplerkit.storage.remote.options import RemoteOptions
from samplerkit.storage.remote.storage import RemoteStorage
from samplerkit.storage.tar.cache import Cache
from samplerkit.storage.tar.names import archive_names, short_names
from samplerkit.storage.tar.reading import Fetching
from samplerkit.storage.tar.shard_source import ShardSource
from samplerkit.storage.tar.shards import Shards
from samplerkit.storage.tar.source import ArchiveSource, Fetch, IndexedSource, OnError
from samplerkit.storage.urls import is_remote, shown


def source_of(
    urls: Any,
    on_error: Any,
    max_handles: Any,
    checksums: Any,
    cache: Any,
    progress: Any,
    *,
    lengths: Any,
    remote: Any,
    fetch: Any,
    max_shards: Any,
    read_ahead: Any,
) -> ArchiveSource:
    """Takes the arguments of a `TarDataset`: archives on disk are joined, others are opened one by one.

    Raises:
        ArgumentTypeError: an argument has the wrong type.
        ArgumentValueError: a choice is not known, or names or lengths do not fit.
        ArgumentRangeError: a number is not positive.
        DatasetError: a file is not there.
    """
    _check_choice("on_error", on_error, get_args(OnError))
    _check_choice("fetch", fetch, get_args(Fetch))
    arguments.boolean("checksums", checksums)
    folder = Cache.of(cache, RemoteOptions.of(remote))
    options = folder.options
    fetching = Fetching(
        fetch,
        arguments.at_least("max_shards", max_shards, 1),
        arguments.at_least("read_ahead", read_ahead, 0),
    )
    most, told = arguments.limit("max_handles", max_handles), progress_of(progress)
    # What is told and skipped may be missing from the start.
    keeps_absent = lengths is not None and on_error == "skip"
    names = archive_names(urls, options, keeps_absent=keeps_absent)
    if lengths is None and not any(map(is_remote, names)):
        return IndexedSource(names, on_error, most, checksums, folder, told)
    needs_storage = any(map(is_remote, names)) or (isinstance(lengths, str) and is_remote(lengths))
    storage = RemoteStorage(options) if needs_storage else None
    if lengths is not None:
        lengths = given_lengths(fetched_lengths(lengths, storage), names, short_names(names))
    public = tuple(shown(name) if is_remote(name) else name for name in names)
    shards = Shards(names, public, storage, folder, checksums, on_error == "skip")
    return ShardSource(shards, lengths, fetching, told)


def _check_choice(place: str, value: Any, choices: tuple[str, ...]) -> None:
    if arguments.text(place, value) not in choices:
        named = " or ".join(repr(choice) for choice in choices)
        raise ArgumentValueError(place, f"must be {named}", value)
