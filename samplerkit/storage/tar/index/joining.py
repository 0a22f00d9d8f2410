"""The indexes of several archives joined to one."""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import final

import numpy as np

from samplerkit.order.layout import Layout
from samplerkit.storage.arrays import Array, Column, narrow, write_arrays
from samplerkit.storage.names import short_names
from samplerkit.storage.progress import Progress
from samplerkit.storage.tar.format.flaws import Skipped
from samplerkit.storage.tar.index.archive import Archive
from samplerkit.storage.tar.index.index import Index, read_index, reopened, split_between
from samplerkit.storage.tar.read.contents import Contents
from samplerkit.storage.tar.read.shards import ASKED_AT_A_TIME, FETCHED_AT_A_TIME, Shards
from samplerkit.storage.threads import in_threads

_LOGGER = logging.getLogger(__name__)


@final
@dataclass(frozen=True)
class Summary:
    """What is kept of the index of one archive, until all are joined; nothing is mapped for it.

    Args:
        first: the index of its first sample alone.
        last: likewise of the last one.
        num_samples: how many there are.
        digest: of what the samples are, but not of where they lie.
        load: maps the index again.
    """

    first: Index
    last: Index
    num_samples: int
    digest: bytes
    load: Callable[[], Index]

    @classmethod
    def of(cls, index: Index, *, checksums: bool) -> Summary:
        """Looks at an index; at its checksums only if asked to."""
        digest = hashlib.blake2b(json.dumps(index.fields).encode(), digest_size=16)
        for name in ("first", "signature", "key_end", "keys", "size", *(["crc"] if checksums else [])):
            digest.update(index.arrays[name].size.to_bytes(8, "little"))
            digest.update(np.ascontiguousarray(index.arrays[name]).data)
        end = index.num_samples
        first, last = (
            replace(index, arrays={name: np.array(array) for name, array in index.part(*cut).items()})
            for cut in ((0, min(1, end)), (max(0, end - 1), end))
        )
        # Only one that lies in no file is held.
        load = partial(reopened, index.path, index.archives) if index.path else lambda: index
        return cls(first, last, end, digest.digest(), load)


@final
@dataclass(frozen=True)
class Joint:
    """What some archives hold together.

    Args:
        cuts: of each, the number of the first sample that is kept, and of the one behind the last. A sample
            whose files are spread over two archives is cut off both.
        skipped: what is wrong with them.
        fingerprint: of what the samples are: an archive that is packed again, or gzipped, has the same ones.
    """

    cuts: tuple[tuple[int, int], ...]
    skipped: Skipped
    fingerprint: str

    @classmethod
    def of(cls, parts: Sequence[Summary]) -> Joint:
        """Looks at the archives side by side."""
        cuts = [[0, part.num_samples] for part in parts]
        split = []
        for number, (one, other) in enumerate(pairwise(parts)):
            flaw = split_between(one.last, other.first)
            if flaw is not None:
                split.append(flaw)
                cuts[number][1] = one.num_samples - 1
                cuts[number + 1][0] = 1
        # An archive whose only sample is split at both ends would stop before it starts.
        kept = tuple((start, max(start, stop)) for start, stop in cuts)
        skipped = Skipped.joined([*(part.first.skipped for part in parts), Skipped.of(split)])
        identity = hashlib.blake2b(digest_size=16, person=b"samplerkit")
        for part, cut in zip(parts, kept, strict=True):
            identity.update(part.digest + repr(cut).encode())
        return cls(kept, skipped, identity.hexdigest())


@final
@dataclass(frozen=True)
class _Columns:
    """The arrays of archives as they are joined.

    Each index is mapped again for each column, so that of any number of archives one is open at a time, and
    the memory is that of one column of one archive.

    Args:
        summaries: of the archives.
        cuts: as in `Joint`.
        numbers: of each archive, the numbers that its tuples of fields have among all.
    """

    summaries: Sequence[Summary]
    cuts: Sequence[tuple[int, int]]
    numbers: Sequence[Array]

    def parts(self) -> Iterator[dict[str, Array]]:
        """Returns the arrays of each archive."""
        return (one.load().part(*cut) for one, cut in zip(self.summaries, self.cuts, strict=True))

    def column(self, name: str) -> Iterator[Array]:
        """Returns a column of all archives, an array for each."""
        before = 0
        for part, renumbered in zip(self.parts(), self.numbers, strict=True):
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


def joined(parts: Sequence[Summary], *, checksums: bool) -> tuple[Index, dict[str, Column]]:
    """Joins the indexes of some archives.

    Returns:
        The index without its arrays, and these, which are put together when they are written.
    """
    joint, indexes = Joint.of(parts), [part.first for part in parts]
    # Tuples of fields are numbered again over all archives, in the order in which they are met.
    fields: dict[tuple[str, ...], int] = {}
    numbers = [
        np.array([fields.setdefault(names, len(fields)) for names in index.fields], dtype=np.int64)
        for index in indexes
    ]
    columns = _Columns(parts, joint.cuts, numbers)
    samples = members = keys = largest = 0
    for part in columns.parts():
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
    arrays = {name: Column(*kind, partial(columns.column, name)) for name, kind in kinds.items()}
    arrays["samples"] = Column.of(np.array([stop - start for start, stop in joint.cuts], dtype=np.int64))
    index = Index(
        tuple(index.archive for index in indexes),
        tuple(index.unpacked[0] for index in indexes),
        tuple(fields),
        joint.skipped,
        {},
        joint.fingerprint,
    )
    return index, arrays


def joint_contents(shards: Shards, progress: Progress) -> Index:
    """Finds the joint index of archives on disk in the cache; else it is made and kept.

    Raises:
        DatasetError: an archive cannot be read, or has a flaw and flaws are errors; or a file of the cache is
            none of ours.
    """
    archives, options = tuple(map(Archive.of, shards.names)), shards.options
    # The name is of the paths only, so that the index of changed archives takes the place of the old one.
    paths = [os.path.realpath(archive.url) for archive in archives]
    path = options.cache.joint_path(json.dumps([options.checksums, paths]))
    found = read_index(path, archives)
    if found is None:
        found, columns = joined(_summaries(shards, progress), checksums=options.checksums)
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
    parts = _summaries(shards, progress)
    joint = Joint.of(parts)
    _check_skipped(joint.skipped, shards)
    firsts, stops = np.array(joint.cuts, dtype=np.int64).T
    counts = np.array([part.num_samples for part in parts], dtype=np.int64)
    layout = Layout(stops - firsts, short_names(shards.urls))
    return Contents(layout, counts, firsts, joint.fingerprint, joint.skipped, is_told=False)


def _summaries(shards: Shards, progress: Progress) -> list[Summary]:
    """Looks at the index of each shard: beside it, in the cache, or made of the shard.

    Raises:
        DatasetError: a shard cannot be read, or has a flaw and flaws are errors.
    """
    number = len(shards.urls)
    checksums, found = shards.options.checksums, dict[int, Summary]()

    def find(shard: int) -> Summary | None:
        index = shards.known_index(shard)
        return None if index is None else Summary.of(index, checksums=checksums)

    def fetch(shard: int) -> Summary:
        return Summary.of(shards.open_shard(shard, refuses_stale=False)[0], checksums=checksums)

    progress("indexing archive", 0, number)
    for look, threads in ((find, ASKED_AT_A_TIME), (fetch, FETCHED_AT_A_TIME)):
        missing = [shard for shard in range(number) if shard not in found]
        for shard, part in in_threads(look, missing, threads, "samplerkit-index"):
            if part is not None:
                found[shard] = part
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
