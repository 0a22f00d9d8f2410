"""The indexes of several archives joined to one."""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from samplerkit.errors import DatasetError
from samplerkit.order.dataset_protocol import fingerprint_of
from samplerkit.storage.arrays import Array, Column, narrow, write_arrays
from samplerkit.storage.progress import Progress
from samplerkit.storage.tar.format.flaws import Reason
from samplerkit.storage.tar.index.archive import Archive, Cache
from samplerkit.storage.tar.index.checks import check_catalogue
from samplerkit.storage.tar.index.finding import found_or_made, read_index
from samplerkit.storage.tar.index.index import Catalogue, Edge, Index, split_between

_LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True)
class IndexPart:
    """What is kept of the index of one archive, until all are joined.

    Each index is read again for each column, so that of any number of archives one is open at a time, and
    the memory is that of one column of one archive.

    Args:
        load: reads the index again.
        bare: the index without its arrays.
        num_members: its files.
        key_bytes: bytes of its keys.
        largest: bytes of the largest file.
        digest: of what the samples are, but not of where they lie.
        first: key, fields and place of the first sample.
        last: likewise of the last one.
    """

    load: Callable[[], Index]
    bare: Index
    num_samples: int
    num_members: int
    key_bytes: int
    largest: int
    digest: bytes
    first: Edge
    last: Edge

    @classmethod
    def of(cls, index: Index, load: Callable[[], Index], *, checksums: bool) -> IndexPart:
        """Keeps of an index what is needed to join it with others; its checksums only if asked to."""
        arrays = index.arrays
        digest = hashlib.blake2b(json.dumps(index.fields).encode(), digest_size=16)
        for name in ("first", "signature", "key_end", "keys", "size", *(["crc"] if checksums else [])):
            digest.update(arrays[name].size.to_bytes(8, "little"))
            digest.update(np.ascontiguousarray(arrays[name]).data)
        return cls(
            load,
            replace(index, arrays={}, is_certain=True),
            index.num_samples,
            index.num_members,
            arrays["keys"].size,
            int(arrays["size"].max(initial=0)),
            digest.digest(),
            index.edge(0),
            index.edge(index.num_samples - 1),
        )


class _Span(NamedTuple):
    """What is kept of an archive: from which sample, file and byte of the keys to which."""

    samples: slice
    members: slice
    keys: slice

    @classmethod
    def of(cls, part: IndexPart, start: int, stop: int) -> _Span:
        """Returns the span of some samples; without a cut, no array is looked at."""
        if (start, stop) == (0, part.num_samples):
            return cls(slice(0, stop), slice(0, part.num_members), slice(0, part.key_bytes))
        arrays = part.load().arrays
        members, keys = (slice(*arrays[name][[start, stop]].tolist()) for name in ("first", "key_end"))
        return cls(slice(start, stop), members, keys)


def joined(parts: list[IndexPart], *, checksums: bool) -> tuple[dict[str, Any], dict[str, Column]]:
    """Joins the indexes of some archives.

    Returns:
        The meta values and the columns of a catalogue.
    """
    cuts, split = without_split_samples(parts)
    spans = [_Span.of(part, *cut) for part, cut in zip(parts, cuts, strict=True)]
    samples, members, keys = (sum(one.stop - one.start for one in each) for each in zip(*spans, strict=True))
    # Tuples of fields are numbered again over all archives, in the order in which they are met.
    fields: dict[tuple[str, ...], int] = {}
    numbers = [
        np.array([fields.setdefault(names, len(fields)) for names in part.bare.fields], dtype=np.int64)
        for part in parts
    ]
    kinds = {
        "first": (narrow(members), samples + 1),
        "signature": (narrow(len(fields)), samples),
        "key_end": (narrow(keys), samples + 1),
        "keys": (np.dtype(np.uint8), keys),
        "offset": (np.dtype("<i8"), members),
        "size": (narrow(max(part.largest for part in parts)), members),
    }
    if checksums:
        kinds["crc"] = (np.dtype("<u4"), members)
    columns = {
        name: Column(dtype, size, partial(_column, name, parts, spans, numbers))
        for name, (dtype, size) in kinds.items()
    }
    columns["samples"] = Column.of(np.array([stop - start for start, stop in cuts], dtype=np.int64))
    flaws = [
        (n, flaw.offset, flaw.reason, flaw.detail) for n, part in enumerate(parts) for flaw in part.bare.flaws
    ]
    counts = sum((Counter(part.bare.counts) for part in parts), Counter({"split sample": len(split)}))
    # Where samples lie is no part of it: an archive that is packed again, or gzipped, has the same samples.
    identity = hashlib.blake2b(digest_size=16, person=b"samplerkit")
    for part, cut in zip(parts, cuts, strict=True):
        identity.update(part.digest + repr(cut).encode())
    meta = {
        "fields": list(fields),
        "unpacked": [part.bare.unpacked_size for part in parts],
        "flaws": [*flaws, *split],
        "counts": dict(+counts),
        "ignored": sum(part.bare.ignored for part in parts),
        "fingerprint": identity.hexdigest(),
    }
    return meta, columns


def _column(name: str, parts: list[IndexPart], spans: list[_Span], numbers: list[Array]) -> Iterator[Array]:
    """Returns a column of all archives, an array for each."""
    before = 0
    for part, span, renumbered in zip(parts, spans, numbers, strict=True):
        array = part.load().arrays[name]
        if name == "signature":
            yield renumbered[array[span.samples]]
        elif name in {"first", "key_end"}:
            # Where samples begin is counted from the begin of their archive; here from that of the first one,
            # without what was cut off in front.
            inside = span.members if name == "first" else span.keys
            yield array[span.samples].astype(np.int64) + (before - inside.start)
            before += inside.stop - inside.start
        else:
            yield array[span.keys if name == "keys" else span.members]
    if name in {"first", "key_end"}:
        # What ends one sample begins the next: the last one of all needs its end said.
        yield np.array([before])


def without_split_samples(
    parts: list[IndexPart],
) -> tuple[list[tuple[int, int]], list[tuple[int, int, Reason, str]]]:
    """Finds samples whose files are spread over two archives, and cuts them off both."""
    cuts = [[0, part.num_samples] for part in parts]
    split = []
    for number, (one, other) in enumerate(pairwise(parts)):
        flaw = split_between(one.last, other.first, one.bare.archive.url)
        if flaw is not None:
            split.append((number + 1, *flaw))
            cuts[number][1] = one.num_samples - 1
            cuts[number + 1][0] = 1
    # An archive whose only sample is split at both ends would stop before it starts.
    return [(start, max(start, stop)) for start, stop in cuts], split


def open_catalogue(
    archives: tuple[Archive, ...], cache: Cache, *, checksums: bool, progress: Progress
) -> Catalogue:
    """Returns the catalogue of some archives, from the cache if it is there; else it is made and kept.

    Raises:
        DatasetError: an archive cannot be read, or a file of the cache is none of ours.
    """
    # The name is of the paths only, so that a catalogue of changed archives takes the place of the old one.
    paths = [os.path.realpath(archive.url) for archive in archives]
    path = cache.catalogue_path(json.dumps([checksums, paths]))
    identity = _identity(archives)
    found = Catalogue.read(archives, path, verify=True)
    if found is not None and found.meta.get("identity") == identity:
        check_catalogue(str(path), archives, found.meta, found.arrays)
        return found
    parts = []
    for done, archive in enumerate(archives):
        progress("indexing archive", done, len(archives))
        parts.append(_part(archive, cache, checksums=checksums))
    progress("indexing archive", len(archives), len(archives))
    meta, columns = joined(parts, checksums=checksums)
    meta["identity"] = identity
    try:
        write_arrays(path, meta, columns)
    except OSError as error:
        _LOGGER.warning("the index stays in memory: %s cannot be written to (%s)", cache.folder, error)
        arrays = {name: np.concatenate([*column.parts()]) for name, column in columns.items()}
        return Catalogue(archives, meta, arrays, None)
    made = Catalogue.read(archives, path, verify=False)
    if made is None:
        raise DatasetError("cache", "was changed while it was in use", str(path))
    return made


def _identity(archives: tuple[Archive, ...]) -> str:
    """Changes when an archive is written, or another one has its place."""
    return fingerprint_of(*((os.path.realpath(one.url), one.size, one.mtime_ns) for one in archives))


def _part(archive: Archive, cache: Cache, *, checksums: bool) -> IndexPart:
    index, path = found_or_made(archive, cache, checksums=checksums)
    # Only one that lies in no file is held.
    load = (lambda: index) if path is None else partial(_again, archive, path)
    return IndexPart.of(index, load, checksums=checksums)


def _again(archive: Archive, path: Path) -> Index:
    """Reads an index that was there, and found right, a moment ago."""
    index = read_index(path, archive, verify=False)
    if index is None:
        raise DatasetError("cache", "was changed while it was in use", str(path))
    return index
