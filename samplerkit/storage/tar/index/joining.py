"""Joining of the indexes of several archives into one."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Sequence

import numpy as np

from samplerkit.order.layout import Layout
from samplerkit.storage.arrays import Array, narrow
from samplerkit.storage.files.stored import Stored, stored_files
from samplerkit.storage.tar.format.flaws import Flaw, Skipped
from samplerkit.storage.tar.format.samples import ends_of
from samplerkit.storage.tar.index.index import Index, cached, read_index, split_between
from samplerkit.storage.tar.read.contents import Contents
from samplerkit.storage.tar.read.shards import PARALLEL_FETCHES, PARALLEL_REQUESTS, Shards
from samplerkit.storage.threads import Progress, in_threads

_LOGGER = logging.getLogger(__name__)


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
    return Contents(
        layout, np.array(counts), firsts, identity.hexdigest(), Skipped((*skipped, *split)), is_given=False
    )


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


def joint_contents(shards: Shards, progress: Progress) -> Index:
    """Finds the joint index of archives on disk in the cache; otherwise builds it and caches it.

    Raises:
        DatasetError: an archive cannot be read, or has a flaw and flaws are errors.
    """
    archives, options = stored_files(shards.urls, None), shards.options
    # The name depends on the paths only, so that the index of changed archives replaces the old one.
    paths = [archive.identity for archive in archives]
    path = options.cache.joint_path(json.dumps([options.checksums, paths]))
    index = read_index(path, archives)
    if index is None:
        loads = _indexes(shards, progress)
        index = cached(joined(loads, shards.short_names, checksums=options.checksums), path)
        if index.path is None:
            folder = options.cache.folder
            _LOGGER.warning("the index stays in memory: %s cannot be written to", folder)
    _check_skipped(index.skipped, shards)
    return index


def indexed_contents(shards: Shards, progress: Progress) -> Contents:
    """Summarizes the index of each shard. The fingerprint is the same as for these shards on disk.

    Raises:
        DatasetError: a shard cannot be read, or has a flaw and flaws are errors.
    """
    checksums = shards.options.checksums
    contents = summarized(_indexes(shards, progress), shards.short_names, checksums=checksums)
    _check_skipped(contents.skipped, shards)
    return contents


def _indexes(shards: Shards, progress: Progress) -> list[Load]:
    """Finds the index of each shard next to it or in the cache, or builds it from the shard.

    Raises:
        DatasetError: a shard cannot be read, or has a flaw and flaws are errors.
    """
    num_shards, loads = len(shards.urls), dict[int, Load]()

    def fetch(shard: int) -> Index:
        return shards.open_shard(shard, refuses_stale=False)[0]

    progress("indexing archive", 0, num_shards)
    for find, threads in ((shards.lookup_index, PARALLEL_REQUESTS), (fetch, PARALLEL_FETCHES)):
        missing = [shard for shard in range(num_shards) if shard not in loads]
        for shard, index in in_threads(find, missing, threads, "samplerkit-index"):
            if index is not None:
                loads[shard] = index.load
                progress("indexing archive", len(loads), num_shards)
    return [loads[shard] for shard in range(num_shards)]


def _check_skipped(skipped: Skipped, shards: Shards) -> None:
    """Logs the flaws that are skipped; raises the first one if flaws are errors."""
    if not len(skipped):
        return
    if not shards.options.skips:
        raise skipped.places[0].error()
    counts = ", ".join(f"{count} {reason}" for reason, count in skipped.counts.items())
    _LOGGER.warning("skipped in %s and the other archives: %s", shards.names[0], counts)
