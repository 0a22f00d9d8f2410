"""Writes the indexes and the lengths of shards next to them."""

import os
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from samplerkit.errors import ArgumentValueError
from samplerkit.storage.arrays import array_bytes, on_disk
from samplerkit.storage.files.stored import INDEX_SUFFIX, Stored
from samplerkit.storage.lengths import lengths_in, lengths_text
from samplerkit.storage.names import short_names
from samplerkit.storage.remote.filesystem import read_small, write_small
from samplerkit.storage.remote.options import RemoteOptions
from samplerkit.storage.remote.storage import RemoteStorage
from samplerkit.storage.tar.format.flaws import Flaw
from samplerkit.storage.tar.index.find_or_make import Cache, find_index, make_index
from samplerkit.storage.tar.index.index import Index, cached, read_index
from samplerkit.storage.tar.read.shards import archive_names
from samplerkit.storage.threads import Progress, all_in_threads, silence
from samplerkit.storage.urls import add_suffix, is_remote, shown

LENGTHS = "lengths.json"
"""The default file name of the lengths."""

THREADS = 4
"""Shards that are indexed in parallel by default; as many fetched shards are on disk at a time."""


@dataclass(frozen=True)
class IndexResult:
    """The result of `index_shards`.

    Args:
        num_shards: the number of shards.
        num_samples: the number of samples in them.
        num_files: the number of files in them.
        num_made: the number of indexes that did not exist before.
        flaws: flaws of the shards.
        lengths: the path or URL of the lengths.
    """

    num_shards: int
    num_samples: int
    num_files: int
    num_made: int
    flaws: tuple[Flaw, ...]
    lengths: str


def index_shards(
    urls: Any,
    *,
    out: Path | None = None,
    upload: bool = False,
    checksums: bool = False,
    threads: int = THREADS,
    lengths: str | None = None,
    remote: RemoteOptions | None = None,
    progress: Progress = silence,
) -> IndexResult:
    """Writes the index of each shard, and the lengths of all; keeps indexes that exist and are up to date.

    So an interrupted run can be resumed, on this machine or another one. Remote shards are fetched into the
    cache. The first error ends the run; indexes that were written stay.

    Args:
        urls: as for a `TarDataset`.
        out: the folder for the indexes and lengths; None for the folders of the shards.
        upload: whether to write next to remote shards.
        checksums: whether the indexes have a CRC-32 of each file.
        threads: shards that are indexed in parallel.
        lengths: the path, or with `upload` the URL, of the lengths; None for `lengths.json` in `out`, or in
            the common folder of all shards.
        remote: options for remote shards; None for the defaults.
        progress: called with the number of finished shards.

    Raises:
        ArgumentTypeError: `urls` are not paths.
        ArgumentValueError: shards are remote and neither `out` nor `upload` is given, two indexes would have
            the same name, or the lengths file exists and has other shards.
        DatasetError: a shard cannot be read, or an index or the lengths cannot be written.
    """
    options = remote or RemoteOptions()
    names = archive_names(urls, options)
    targets = _targets(names, out, upload=upload)
    short = short_names(names)
    with closing(RemoteStorage(options)) as storage:
        json_path = lengths or _default_lengths(names[0], short[0], out)
        if is_remote(json_path) and not upload:
            raise ArgumentValueError("--lengths", "is remote", shown(json_path), hint="add --upload")
        data = read_small(json_path, storage.read_small)
        if data is not None and not lengths_in(data, shown(json_path)).keys() <= set(short):
            hint = "use --lengths FILE with a file of its own for these shards"
            raise ArgumentValueError("--lengths", "has other shards", shown(json_path), hint=hint)

        def work(number: int) -> tuple[Index, bool]:
            return _ensure_index(names[number], targets[number], storage, checksums=checksums)

        report = partial(progress, "indexing shard")
        results = all_in_threads(work, range(len(names)), threads, "samplerkit-index", report)
        indexes = [index for index, _ in results]
        sizes = {name: index.num_samples for name, index in zip(short, indexes, strict=True)}
        write_small(json_path, lengths_text(sizes).encode(), options)
    return IndexResult(
        len(names),
        sum(index.num_samples for index in indexes),
        sum(index.num_members for index in indexes),
        sum(is_new for _, is_new in results),
        tuple(flaw for index in indexes for flaw in index.skipped.places),
        shown(json_path),
    )


def index_shard(
    url: str,
    *,
    out: Path | None = None,
    upload: bool = False,
    checksums: bool = False,
    remote: RemoteOptions | None = None,
) -> Index:
    """Writes the index of one shard unless it is up to date: an idempotent task for distributed engines.

    Args:
        url: the path or URL of the shard.
        out: as for `index_shards`, like the other arguments.
        upload: whether to write next to a remote shard.
        checksums: whether the index has a CRC-32 of each file.
        remote: options for remote shards; None for the defaults.

    Raises:
        ArgumentValueError: the shard is remote, and neither `out` nor `upload` is given.
        DatasetError: the shard cannot be read, or the index cannot be written.
    """
    (target,) = _targets([url], out, upload=upload)
    with closing(RemoteStorage(remote or RemoteOptions())) as storage:
        return _ensure_index(url, target, storage, checksums=checksums)[0]


def _targets(names: Sequence[str], out: Path | None, *, upload: bool) -> list[str]:
    """Returns the path or URL of the index of each shard."""
    remote_names = [name for name in names if is_remote(name)]
    if upload and (out is not None or len(remote_names) < len(names)):
        hint = "index shards on disk separately, and leave --out or --upload out"
        value = str(out or shown(names[0]))
        raise ArgumentValueError("--upload", "is for remote shards, without --out", value, hint=hint)
    if remote_names and not upload and out is None:
        problem = "is needed, since nothing is written next to a remote shard"
        hint = "use --out FOLDER and upload its files, or use --upload"
        raise ArgumentValueError("--out", problem, shown(remote_names[0]), hint=hint)
    if out is None:
        return [add_suffix(name, INDEX_SUFFIX) for name in names]
    targets = [os.fspath(out / (shown(name).rpartition("/")[2] + INDEX_SUFFIX)) for name in names]
    duplicates = [path for path, count in Counter(targets).items() if count > 1]
    if duplicates:
        hint = "index each folder of shards separately"
        value = duplicates[0].rpartition("/")[2]
        raise ArgumentValueError("--out", "would have indexes of the same name", value, hint=hint)
    return targets


def _default_lengths(name: str, short: str, out: Path | None) -> str:
    """Returns the path or URL of the lengths in the common folder of all shards, or in `out`."""
    if out is not None:
        return os.fspath(out / LENGTHS)
    first = shown(name) if is_remote(name) else os.path.abspath(name)  # noqa: PTH100  # short has no `..`
    return first.removesuffix(short) + LENGTHS


def _ensure_index(name: str, target: str, storage: RemoteStorage, *, checksums: bool) -> tuple[Index, bool]:
    """Returns the index of a shard, and whether it was written now."""
    archive = Stored.of(name, storage)
    data = read_small(target, storage.read_small)
    if data is not None:
        with on_disk(data) as path:
            existing = read_index(path, (archive,))
        # Only an index of the current version of the shard is used.
        if existing is not None and existing.is_certain and existing.serves(checksums):
            return existing, False
    cache = Cache.of(None, storage.options)
    index = find_index(archive, cache, checksums=checksums)
    if index is None or not index.is_certain:
        index = cached(make_index(archive, cache, checksums=checksums), cache.index_path(archive))
    write_small(target, array_bytes(index.meta, index.arrays), storage.options)
    return index, True
