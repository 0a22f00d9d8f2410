"""The indexes and the lengths of shards, made once and put beside them."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from samplerkit.errors import ArgumentValueError
from samplerkit.storage.arrays import on_disk
from samplerkit.storage.lengths import lengths_in, lengths_text
from samplerkit.storage.names import short_names
from samplerkit.storage.remote.access import UNKNOWN_SIZE
from samplerkit.storage.remote.filesystem import read_small, write_small
from samplerkit.storage.remote.options import RemoteOptions
from samplerkit.storage.remote.storage import RemoteStorage
from samplerkit.storage.tar.format.flaws import Flaw
from samplerkit.storage.tar.index.archive import INDEX_SUFFIX, Archive
from samplerkit.storage.tar.index.finding import Cache, find_index, kept, make_index
from samplerkit.storage.tar.index.index import Index, read_index
from samplerkit.storage.tar.read.shards import archive_names
from samplerkit.storage.threads import Progress, all_in_threads, silence
from samplerkit.storage.urls import beside, is_remote, shown

LENGTHS = "lengths.json"
"""What the lengths are called, unless said otherwise."""

THREADS = 4
"""Shards that are indexed at a time, unless said otherwise: as many fetched ones are on disk meanwhile."""


@dataclass(frozen=True)
class Indexed:
    """What was indexed.

    Args:
        num_shards: how many shards.
        num_samples: how many samples are in them.
        num_files: how many files.
        num_made: how many indexes were not there before.
        flaws: what is wrong with the shards, each reason and shard at most `MOST_PLACES` times.
        num_flaws: how many flaws there are in all.
        lengths: where the lengths were written.
    """

    num_shards: int
    num_samples: int
    num_files: int
    num_made: int
    flaws: tuple[Flaw, ...]
    num_flaws: int
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
) -> Indexed:
    """Writes the index of each shard, and the lengths of all; an index that is there and right stays.

    So a run that was stopped resumes where it was, on this machine or another one. Remote shards are fetched
    into the cache for it.

    Args:
        urls: as for a `TarDataset`.
        out: the folder for what is written; None for beside the shards.
        upload: whether it may be written beside remote shards.
        checksums: whether the indexes have a CRC-32 of each file.
        threads: shards at a time.
        lengths: the path, or with `upload` the URL, of the lengths; None for `lengths.json` in `out`, or in
            the folder that all shards share.
        remote: how remote shards are reached; None for the defaults.
        progress: receives how many are done.

    Raises:
        ArgumentTypeError: `urls` are no paths.
        ArgumentValueError: nothing may be written beside a shard, or two indexes would have one name, or the
            lengths that are there are of other shards.
        DatasetError: a shard cannot be read, or what is made cannot be written.
    """
    options = remote or RemoteOptions()
    names = archive_names(urls, options)
    targets = _targets(names, out, upload=upload)
    short = short_names(names)
    with closing(RemoteStorage(options)) as storage:
        goal = lengths or _beside_all(names[0], short[0], out)
        if is_remote(goal) and not upload:
            raise ArgumentValueError("--lengths", "is remote", shown(goal), hint="say --upload as well")
        before = _lengths_before(goal, set(short), storage)

        def work(number: int) -> tuple[Index, bool]:
            return _indexed(names[number], targets[number], storage, checksums=checksums)

        told = partial(progress, "indexing shard")
        found = all_in_threads(work, len(names), threads, "samplerkit-index", told)
        indexes = [index for index, _ in found]
        sizes = {name: index.num_samples for name, index in zip(short, indexes, strict=True)}
        write_small(goal, lengths_text({**before, **sizes}).encode(), options)
    return Indexed(
        len(names),
        sum(index.num_samples for index in indexes),
        sum(index.num_members for index in indexes),
        sum(is_new for _, is_new in found),
        tuple(flaw for index in indexes for flaw in index.skipped.places),
        sum(len(index.skipped) for index in indexes),
        shown(goal),
    )


def index_shard(
    url: str,
    *,
    out: Path | None = None,
    upload: bool = False,
    checksums: bool = False,
    remote: RemoteOptions | None = None,
) -> Index:
    """Writes the index of one shard, unless it is there and right: what an engine runs, and may run again.

    Args:
        url: path or URL of the shard.
        out: as for `index_shards`, and so are the others.
        upload: whether it may be written beside a remote shard.
        checksums: whether the index has a CRC-32 of each file.
        remote: how the shard is reached; None for the defaults.

    Raises:
        ArgumentValueError: nothing may be written beside the shard.
        DatasetError: the shard cannot be read, or what is made cannot be written.
    """
    (target,) = _targets([url], out, upload=upload)
    with closing(RemoteStorage(remote or RemoteOptions())) as storage:
        return _indexed(url, target, storage, checksums=checksums)[0]


def _targets(names: Sequence[str], out: Path | None, *, upload: bool) -> list[str]:
    """Returns where the index of each shard is written."""
    far = [name for name in names if is_remote(name)]
    if upload and out is not None:
        hint = "leave one of them out"
        raise ArgumentValueError("--upload", "does not go with --out", str(out), hint=hint)
    if upload and len(far) < len(names):
        near = next(name for name in names if not is_remote(name))
        raise ArgumentValueError(
            "--upload", "is for remote shards", near, hint="index shards on disk by themselves"
        )
    if far and not upload and out is None:
        problem = "is needed, for nothing is written beside a remote shard"
        hint = "say --out FOLDER and upload what is in it, or say --upload to have it put there"
        raise ArgumentValueError("--out", problem, shown(far[0]), hint=hint)
    if out is None:
        return [beside(name, INDEX_SUFFIX) for name in names]
    targets = [os.fspath(out / (shown(name).rpartition("/")[2] + INDEX_SUFFIX)) for name in names]
    twice = [path for path, count in Counter(targets).items() if count > 1]
    if twice:
        hint = "index each folder of shards by itself"
        value = twice[0].rpartition("/")[2]
        raise ArgumentValueError("--out", "would hold two indexes of one name", value, hint=hint)
    return targets


def _beside_all(name: str, short: str, out: Path | None) -> str:
    """Returns the place of the lengths in the folder that all shards share: where names are counted from."""
    if out is not None:
        return os.fspath(out / LENGTHS)
    first = shown(name) if is_remote(name) else os.fspath(Path(name).absolute())
    return first.removesuffix(short) + LENGTHS


def _lengths_before(goal: str, names: set[str], storage: RemoteStorage) -> Mapping[str, Any]:
    """Returns the lengths that are there, to which those of some shards are added.

    Raises:
        ArgumentValueError: they are of other shards.
    """
    data = read_small(goal, storage.read_small)
    if data is None:
        return {}
    before = lengths_in(data, shown(goal))
    if not (names <= before.keys() or before.keys() <= names):
        hint = "say --lengths FILE for those of these shards, a file of its own"
        raise ArgumentValueError("--lengths", "is there already, and of other shards", shown(goal), hint=hint)
    return before


def _indexed(name: str, target: str, storage: RemoteStorage, *, checksums: bool) -> tuple[Index, bool]:
    """Returns the index of a shard, and whether it was made now."""
    archive = Archive.found(name, storage)
    data = None if archive.size == UNKNOWN_SIZE else read_small(target, storage.read_small)
    if data is not None:
        with on_disk(data) as path:
            found = read_index(path, (archive,))
        # Of this very state of the shard.
        if found is not None and found.is_certain and found.serves(checksums):
            return found, False
    index = _made(name, archive, storage, checksums=checksums)
    with TemporaryDirectory(prefix="samplerkit-") as folder:
        path = Path(folder) / "index"
        index.write(path)
        write_small(target, path.read_bytes(), storage.options)
    return index, True


def _made(name: str, archive: Archive, storage: RemoteStorage, *, checksums: bool) -> Index:
    cache = Cache.of(None)
    if not is_remote(name):
        return make_index(archive, cache, checksums=checksums)
    # Of a size that is not known, none is found.
    known = find_index(archive, cache, checksums=checksums)
    if known is not None and known.is_certain:
        return known
    with storage.fetch(name) as copy:
        fetched = Archive.of(archive.url, copy.path, archive.tag)
        return kept(make_index(fetched, cache, checksums=checksums), cache)
