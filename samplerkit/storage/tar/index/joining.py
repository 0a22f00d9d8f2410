"""The indexes of several archives joined to one."""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import final

import numpy as np

from samplerkit.order.layout import Layout
from samplerkit.storage.arrays import Array, Column, narrow, write_arrays
from samplerkit.storage.names import short_names
from samplerkit.storage.tar.format.flaws import Flaw, Skipped
from samplerkit.storage.tar.index.archive import Archive
from samplerkit.storage.tar.index.index import Index, read_index, reopened, split_between
from samplerkit.storage.tar.read.contents import Contents
from samplerkit.storage.tar.read.shards import ASKED_AT_A_TIME, FETCHED_AT_A_TIME, Shards
from samplerkit.storage.threads import Progress, in_threads

_LOGGER = logging.getLogger(__name__)


Load = Callable[[], Index]
"""Maps the index of an archive again: so of any number of archives two are open at a time."""


@final
@dataclass(frozen=True)
class Joint:
    """What some archives hold together.

    Args:
        counts: how many samples the index of each has.
        cuts: of each, the number of the first sample that is kept, and of the one behind the last. A sample
            whose files are spread over two archives is cut off both.
        skipped: what is wrong with them.
        fingerprint: of what the samples are: an archive that is packed again, or gzipped, has the same ones.
    """

    counts: tuple[int, ...]
    cuts: tuple[tuple[int, int], ...]
    skipped: Skipped
    fingerprint: str

    @classmethod
    def of(cls, loads: Sequence[Load], *, checksums: bool) -> Joint:
        """Looks at the archives side by side; at their checksums only if asked to."""
        counts, cuts, skipped, digests = [], list[list[int]](), [], []
        split, before = list[Flaw](), None
        for load in loads:
            index = load()
            counts.append(index.num_samples)
            cuts.append([0, index.num_samples])
            skipped.append(index.skipped)
            digests.append(_digest(index, checksums=checksums))
            if before is not None and (flaw := split_between(before, index)) is not None:
                split.append(flaw)
                cuts[-2][1] -= 1
                cuts[-1][0] = 1
            before = index
        # An archive whose only sample is split at both ends would stop before it starts.
        kept = tuple((start, max(start, stop)) for start, stop in cuts)
        identity = hashlib.blake2b(digest_size=16, person=b"samplerkit")
        for digest, cut in zip(digests, kept, strict=True):
            identity.update(digest + repr(cut).encode())
        all_skipped = Skipped.joined([*skipped, Skipped.of(split)])
        return cls(tuple(counts), kept, all_skipped, identity.hexdigest())


def _digest(index: Index, *, checksums: bool) -> bytes:
    """Returns the digest of what the samples of an archive are, but not of where they lie."""
    digest = hashlib.blake2b(json.dumps(index.fields).encode(), digest_size=16)
    for name in ("first", "signature", "key_end", "keys", "size", *(["crc"] if checksums else [])):
        digest.update(index.arrays[name].size.to_bytes(8, "little"))
        digest.update(np.ascontiguousarray(index.arrays[name]).data)
    return digest.digest()


def joined(loads: Sequence[Load], *, checksums: bool) -> tuple[Index, dict[str, Column]]:
    """Joins the indexes of some archives.

    Each index is mapped again for each column, so the memory is that of one column of one archive.

    Returns:
        The index without its arrays, and these, which are put together when they are written.
    """
    joint = Joint.of(loads, checksums=checksums)
    # Tuples of fields are numbered again over all archives, in the order in which they are met.
    fields: dict[tuple[str, ...], int] = {}
    archives: list[Archive] = []
    unpacked: list[int | None] = []
    numbers: list[Array] = []
    samples = members = keys = largest = 0

    def parts() -> Iterator[tuple[Index, dict[str, Array]]]:
        for load, cut in zip(loads, joint.cuts, strict=True):
            index = load()
            yield index, index.part(*cut)

    def column(name: str) -> Iterator[Array]:
        before = 0
        for (_, part), renumbered in zip(parts(), numbers, strict=True):
            array = part[name]
            if name == "signature":
                yield renumbered[array]
            elif name in {"first", "key_end"}:
                yield array[:-1] + before
                before += int(array[-1])
            else:
                yield array
        if name in {"first", "key_end"}:
            # What ends one sample begins the next: the last one of all needs its end said.
            yield np.array([before])

    for index, part in parts():
        archives += index.archives
        unpacked += index.unpacked
        numbers.append(np.array([fields.setdefault(each, len(fields)) for each in index.fields], np.int64))
        samples, members = samples + part["signature"].size, members + part["offset"].size
        keys, largest = keys + part["keys"].size, max(largest, int(part["size"].max(initial=0)))
    kinds = {
        "first": (narrow(members), samples + 1),
        "signature": (narrow(len(fields)), samples),
        "key_end": (narrow(keys), samples + 1),
        "keys": (np.dtype(np.uint8), keys),
        "offset": (np.dtype("<i8"), members),
        "size": (narrow(largest), members),
        **({"crc": (np.dtype("<u4"), members)} if checksums else {}),
    }
    arrays = {name: Column(*kind, partial(column, name)) for name, kind in kinds.items()}
    arrays["samples"] = Column.of(np.array([stop - start for start, stop in joint.cuts], dtype=np.int64))
    found = Index(tuple(archives), tuple(unpacked), tuple(fields), joint.skipped, {}, joint.fingerprint)
    return found, arrays


def joint_contents(shards: Shards, progress: Progress) -> Index:
    """Finds the joint index of archives on disk in the cache; else it is made and kept.

    Raises:
        DatasetError: an archive cannot be read, or has a flaw and flaws are errors.
    """
    archives, options = tuple(map(Archive.of, shards.names)), shards.options
    # The name is of the paths only, so that the index of changed archives takes the place of the old one.
    paths = [os.path.realpath(archive.url) for archive in archives]
    path = options.cache.joint_path(json.dumps([options.checksums, paths]))
    found = read_index(path, archives)
    if found is None:
        found, columns = joined(_indexes(shards, progress), checksums=options.checksums)
        try:
            write_arrays(path, found.meta, columns)
            found = reopened(path, found.archives)
        except OSError as error:
            folder = options.cache.folder
            _LOGGER.warning("the index stays in memory: %s cannot be written to (%s)", folder, error)
            arrays = {name: np.concatenate([*column.parts()]) for name, column in columns.items()}
            found = replace(found, arrays=arrays)
    _check_skipped(found.skipped, shards)
    return found


def indexed_contents(shards: Shards, progress: Progress) -> Contents:
    """Looks at the index of each shard. The fingerprint is that of the same shards on disk.

    Raises:
        DatasetError: a shard cannot be read, or has a flaw and flaws are errors.
    """
    joint = Joint.of(_indexes(shards, progress), checksums=shards.options.checksums)
    _check_skipped(joint.skipped, shards)
    firsts, stops = np.array(joint.cuts, dtype=np.int64).T
    layout = Layout(stops - firsts, short_names(shards.urls))
    return Contents(layout, np.array(joint.counts), firsts, joint.fingerprint, joint.skipped, is_told=False)


def _indexes(shards: Shards, progress: Progress) -> list[Load]:
    """Finds the index of each shard: beside it, in the cache, or made of the shard.

    Raises:
        DatasetError: a shard cannot be read, or has a flaw and flaws are errors.
    """
    number, found = len(shards.urls), dict[int, Load]()

    def fetch(shard: int) -> Index:
        return shards.open_shard(shard, refuses_stale=False)[0]

    progress("indexing archive", 0, number)
    for look, threads in ((shards.known_index, ASKED_AT_A_TIME), (fetch, FETCHED_AT_A_TIME)):
        missing = [shard for shard in range(number) if shard not in found]
        for shard, index in in_threads(look, missing, threads, "samplerkit-index"):
            if index is not None:
                found[shard] = index.load
                progress("indexing archive", len(found), number)
    return [found[shard] for shard in range(number)]


def _check_skipped(skipped: Skipped, shards: Shards) -> None:
    """Logs what is skipped of shards; where flaws are errors, the first one is raised."""
    if not len(skipped):
        return
    if not shards.options.skips:
        raise skipped.places[0].error()
    counts = ", ".join(f"{count} {reason}" for reason, count in skipped.counts.items())
    _LOGGER.warning("skipped in %s and the other archives: %s", shards.names[0], counts)
