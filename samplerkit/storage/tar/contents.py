"""How many samples lie in which shard: as the user tells, or as the index of each shard tells."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, final

import numpy as np

from samplerkit.order.layout import Layout
from samplerkit.order.typing import Ids
from samplerkit.storage.progress import Progress
from samplerkit.storage.tar.archive import Archive
from samplerkit.storage.tar.arrays import (
    Array,
    Column,
    UnreadableFileError,
    read_arrays,
    unsound,
    write_arrays,
)
from samplerkit.storage.tar.format.members import Flaw, Skipped
from samplerkit.storage.tar.index.one import Index
from samplerkit.storage.tar.joining import joined, part_of_index, without_split_samples
from samplerkit.storage.tar.names import short_names
from samplerkit.storage.tar.shards import Shards
from samplerkit.storage.tar.sound import check_joint_meta
from samplerkit.storage.threads import in_threads

THREADS = 16
"""Shards that are asked for at the same time,"""

FETCHING_THREADS = 2
"""and shards that are fetched, since a small cache has no room for many."""


@final
@dataclass(frozen=True, eq=False)
class Contents:
    """What lies in the shards of a dataset.

    Args:
        layout: how many samples of each shard there are.
        counts: how many samples the index of each shard must have, shape (shards,).
        firsts: the number that the first sample of each has in its index: 1 after a split sample that is
            skipped.
        fingerprint: changes with the samples.
        skipped: what is skipped, as far as it is known.
        is_told: whether the user told the lengths, and no index was looked at.
    """

    layout: Layout
    counts: Ids
    firsts: Ids
    fingerprint: str
    skipped: Skipped
    is_told: bool


def told_contents(urls: tuple[str, ...], lengths: list[int]) -> Contents:
    """Takes lengths from the user; the fingerprint is of them and of the names of the shards."""
    names = short_names(urls)
    described = json.dumps(["lengths", names, lengths]).encode()
    fingerprint = hashlib.blake2b(described, digest_size=16, person=b"samplerkit").hexdigest()
    layout = Layout(lengths, names)
    return Contents(
        layout, layout.sizes, np.zeros_like(layout.sizes), fingerprint, Skipped.of(()), is_told=True
    )


def indexed_contents(shards: Shards, progress: Progress) -> Contents:
    """Looks at the index of each shard: beside it, in the cache, or made of the shard.

    The fingerprint is that of the same shards on disk.

    Raises:
        DatasetError: a shard cannot be read, or has a flaw and flaws are errors.
    """
    archives = tuple(_looked_at(shards))
    path = shards.cache.catalogue_path(json.dumps(["remote", shards.checksums, shards.names]))
    identity = json.dumps([(archive.size, archive.version) for archive in archives])
    try:
        meta, arrays = read_arrays(path)
    except (OSError, UnreadableFileError):
        meta, arrays = {}, {}
    if meta.get("identity") == identity:
        check_joint_meta(str(path), meta, len(archives))
        _check_lengths(str(path), arrays, len(archives))
    else:
        meta, arrays = _joined(shards, progress)
        meta["identity"] = identity
        columns = {name: Column.of(array) for name, array in arrays.items()}
        with suppress(OSError):  # the cache cannot be written to
            write_arrays(path, meta, columns)
    flaws = (Flaw(shards.names[number], *flaw) for number, *flaw in meta["flaws"])
    skipped = Skipped.of(flaws, meta["counts"])
    if len(skipped) and not shards.skips:
        raise skipped.places[0].error()
    layout = Layout(arrays["samples"], short_names(shards.urls))
    counts, firsts = np.array(arrays["counts"]), np.array(arrays["firsts"])
    return Contents(layout, counts, firsts, meta["fingerprint"], skipped, is_told=False)


def _check_lengths(place: str, arrays: Mapping[str, Array], shards: int) -> None:
    """Looks at all numbers that are kept of some shards."""
    for name in ("samples", "counts", "firsts"):
        if name not in arrays or arrays[name].size != shards:
            raise unsound(place, f"{name} has another length than {shards}", arrays.get(name, ())[:9])
    samples, counts, firsts = (arrays[name] for name in ("samples", "counts", "firsts"))
    # A sample that is split may be missing at either end.
    most = np.iinfo(np.int64).max // max(1, shards)
    wrong = (samples < 0) | (firsts < 0) | (firsts > 1) | (counts > most) | (samples > counts - firsts)
    if wrong.any():
        shard = int(np.argmax(wrong))
        found = tuple(int(numbers[shard]) for numbers in (samples, counts, firsts))
        raise unsound(place, f"samples, counts and firsts of shard {shard} cannot be", found)


def _looked_at(shards: Shards) -> list[Archive]:
    """Asks for the size and version of each shard."""
    return [
        archive
        for _, archive in sorted(
            in_threads(shards.archive, range(len(shards.urls)), THREADS, "samplerkit-version"),
            key=lambda found: found[0],
        )
    ]


def _joined(shards: Shards, progress: Progress) -> tuple[dict[str, Any], dict[str, Ids]]:
    number = len(shards.urls)
    found: dict[int, Index] = {}

    def fetch(shard: int) -> Index:
        return shards.open(shard, refuses_stale=False).index

    progress("indexing archive", 0, number)
    for shard, known in in_threads(shards.known_index, range(number), THREADS, "samplerkit-index"):
        if known is not None:
            found[shard] = known
            progress("indexing archive", len(found), number)
    missing = [shard for shard in range(number) if shard not in found]
    for shard, made in in_threads(fetch, missing, FETCHING_THREADS, "samplerkit-index"):
        found[shard] = made
        progress("indexing archive", len(found), number)
    parts = [
        part_of_index(found[shard], partial(found.__getitem__, shard), checksums=shards.checksums)
        for shard in range(number)
    ]
    meta, columns = joined(parts, checksums=shards.checksums)
    cuts, _ = without_split_samples(parts)
    arrays = {
        "samples": np.concatenate([*columns["samples"].parts()]),
        "counts": np.array([part.num_samples for part in parts], dtype=np.int64),
        "firsts": np.array([start for start, _ in cuts], dtype=np.int64),
    }
    return {name: meta[name] for name in ("flaws", "counts", "fingerprint")}, arrays
