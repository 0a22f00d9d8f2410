"""Reads samples at any ids: on disk by few, large reads, remote ones by requests for parts of shards."""

from __future__ import annotations

import os
import zlib
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, final

import numpy as np

from samplerkit.errors import DatasetError
from samplerkit.order.intervals import interval_of, numbers_in
from samplerkit.order.typing import Ids
from samplerkit.storage.arrays import Array
from samplerkit.storage.remote.attempt import Span
from samplerkit.storage.remote.spans import Requests
from samplerkit.storage.remote.storage import LocalFile, RemoteStorage
from samplerkit.storage.tar.fetch_costs import FetchCosts
from samplerkit.storage.tar.format.flaws import damaged_data
from samplerkit.storage.tar.format.headers import BLOCK
from samplerkit.storage.tar.format.samples import is_header_of
from samplerkit.storage.tar.index.archive import Cache, Handle, Handles, open_plain
from samplerkit.storage.tar.index.index import Catalogue, Index

TOGETHER = 64 << 10
"""Bytes of a sample up to which its files are read by one call, and neighbours along with it."""

NEAR = 4 << 10
"""Bytes between two neighbours that are read along rather than skipped."""

IN_ONE_READ = 64
"""Neighbours that one call reads at most."""


@final
class Reader:
    """Reads the samples of a catalogue."""

    def __init__(self, catalogue: Catalogue, cache: Cache, max_handles: int | None) -> None:
        self._catalogue = catalogue
        self._cache = cache
        self._handles = Handles(partial(_opened, catalogue, cache), max_handles)
        self._max_handles = max_handles
        self._prepare()

    def _prepare(self) -> None:
        arrays = self._catalogue.arrays
        self._starts: list[int] = self._catalogue.layout.starts.tolist()
        self._keys = np.ascontiguousarray(arrays["keys"])
        self._urls = [archive.url for archive in self._catalogue.archives]
        self._fields = self._catalogue.fields
        self._first, self._offset, self._size = arrays["first"], arrays["offset"], arrays["size"]
        self._signature, self._key_end, self._crc = arrays["signature"], arrays["key_end"], arrays.get("crc")

    def __reduce__(self) -> tuple[Any, ...]:
        return Reader, (self._catalogue, self._cache, self._max_handles)

    def read(self, ids: Ids) -> list[dict[str, Any]]:
        """Reads samples.

        Args:
            ids: of the samples, each inside the dataset; int64 of shape (n,).

        Returns:
            For each id a dict with `__key__`, `__url__` and the bytes of each of its files.

        Raises:
            DatasetError: an archive is gone, changed, too short, or fails its checksum.
        """
        if ids.size < 2:
            return [self.read_one(id) for id in ids.tolist()]
        plan = _Plan.of(self._catalogue, ids)
        samples = self._follow(plan)
        if self._crc is not None:
            self._verify(plan.members, [fields for _, _, fields in plan.described], samples, self._crc)
        ordered: list[Any] = [None] * len(samples)
        for place, sample in zip(plan.places, samples, strict=True):
            ordered[place] = sample
        return ordered

    def read_one(self, id: int) -> dict[str, Any]:
        """Reads one sample: what `read` gives for it, without a plan for many."""
        shard = bisect_right(self._starts, id) - 1
        first, stop = self._first[id : id + 2].tolist()
        begins = self._offset[first:stop].tolist()
        sizes = self._size[first:stop].tolist()
        key_begin, key_end = self._key_end[id : id + 2].tolist()
        fields = self._fields[self._signature[id]]
        handle = self._handles.get(shard)
        sample: dict[str, Any] = {
            "__key__": str(self._keys.data[key_begin:key_end], "utf-8", "surrogateescape"),
            "__url__": self._urls[shard],
        }
        start = begins[0]
        length = begins[-1] + sizes[-1] - start
        if length <= TOGETHER:
            data = self._exactly(handle, shard, start, length)
            for name, begin, size in zip(fields, begins, sizes, strict=True):
                sample[name] = data[begin - start : begin - start + size]
        else:
            for name, begin, size in zip(fields, begins, sizes, strict=True):
                sample[name] = self._exactly(handle, shard, begin, size)
        if self._crc is not None:
            self._verify(range(first, stop), [fields], [sample], self._crc)
        return sample

    def close(self) -> None:
        """Lets go of the open archives."""
        self._handles.close()

    def keys(self, ids: Ids) -> list[str]:
        """Returns the keys of samples."""
        ends, keys = self._catalogue.arrays["key_end"], self._keys.data
        return [
            str(keys[begin:end], "utf-8", "surrogateescape")
            for begin, end in zip(ends[ids].tolist(), ends[ids + 1].tolist(), strict=True)
        ]

    def lengths(self, ids: Ids) -> Ids:
        """Returns the bytes from the first file of each sample to its last, headers between them included."""
        arrays = self._catalogue.arrays
        last = arrays["first"][ids + 1].astype(np.int64) - 1
        lengths: Ids = arrays["offset"][last] + arrays["size"][last] - arrays["offset"][arrays["first"][ids]]
        return lengths

    def _follow(self, plan: _Plan) -> list[dict[str, Any]]:
        # The innermost loop of all reading: it is flat, because calls in it would cost as much as its work.
        # A view of its own: without a GIL, threads must not cut one view at the same moment.
        keys, pread = self._keys.data, os.pread
        described = iter(plan.described)
        extents = zip(plan.begins, plan.ends, strict=True)
        samples = []
        current, url = -1, ""
        handle: Any = None
        for shard, start, length, count in plan.reads:
            if shard != current:
                current, url, handle = shard, self._urls[shard], self._handles.get(shard)
            if length >= 0:
                data = pread(handle.descriptor, length, start)
                if len(data) != length:
                    raise self._short(shard, start, length, len(data))
            # Most reads of a shuffled order are of one sample.
            for key_begin, key_end, fields in (next(described),) if count == 1 else islice(described, count):
                sample: dict[str, Any] = {
                    "__key__": str(keys[key_begin:key_end], "utf-8", "surrogateescape"),
                    "__url__": url,
                }
                if length >= 0:
                    for name in fields:
                        begin, end = next(extents)
                        sample[name] = data[begin:end]
                else:
                    for name in fields:
                        begin, end = next(extents)
                        sample[name] = self._exactly(handle, shard, start + begin, end - begin)
                samples.append(sample)
        return samples

    def _exactly(self, handle: Handle, shard: int, start: int, length: int) -> bytes:
        data = os.pread(handle.descriptor, length, start)
        if len(data) == length:
            return data
        # Linux reads at most 2 GiB by one call.
        pieces = [data]
        have = len(data)
        while have < length and pieces[-1]:
            pieces.append(os.pread(handle.descriptor, length - have, start + have))
            have += len(pieces[-1])
        if have < length:
            raise self._short(shard, start, length, have)
        return b"".join(pieces)

    def _short(self, shard: int, start: int, length: int, have: int) -> DatasetError:
        problem = f"became shorter while in use: of {length} bytes at byte {start} it has {have}"
        return DatasetError(self._urls[shard], problem, hint="make the dataset again")

    def _verify(
        self,
        members: Iterable[int],
        fields: Sequence[tuple[str, ...]],
        samples: list[dict[str, Any]],
        crc: Array,
    ) -> None:
        numbers = iter(members)
        for names, sample in zip(fields, samples, strict=True):
            for name in names:
                number = next(numbers)
                if zlib.crc32(sample[name]) != crc[number]:
                    offset = int(self._catalogue.arrays["offset"][number])
                    raise damaged_data(sample["__url__"], offset, name, sample["__key__"])


@final
@dataclass(frozen=True, eq=False)
class OpenShard:
    """A shard on a disk of this machine, ready to be read; a copy is not evicted while anybody holds this."""

    path: str
    num_bytes: int
    index: Index
    reader: Reader
    copy: LocalFile | None


@dataclass(frozen=True)
class _Plan:
    """What is to be read for some ids, in the order in which it lies on disk.

    Args:
        places: where each sample stands among the ids.
        described: of each sample, where its key stands, and its fields.
        members: the numbers of its files, one after another.
        begins: where the data of each begin, counted from where their read begins.
        ends: where they end.
        reads: of each read the archive, the place, the length, and for how many samples it is; the length
            is -1 where the files of one large sample are read one by one.
    """

    places: list[int]
    described: list[tuple[int, int, tuple[str, ...]]]
    members: list[int]
    begins: list[int]
    ends: list[int]
    reads: list[tuple[int, int, int, int]]

    @classmethod
    def of(cls, catalogue: Catalogue, ids: Ids) -> _Plan:
        """Makes the plan: an archive is opened once, and neighbours are read together."""
        arrays = catalogue.arrays
        # Samples are numbered as they lie.
        places = np.argsort(ids, kind="stable")
        ids = ids[places]
        shards = interval_of(catalogue.layout.starts, ids)
        first = arrays["first"][ids].astype(np.int64)
        counts = arrays["first"][ids + 1] - first
        stops = np.cumsum(counts)
        members = numbers_in(first, counts)
        begins = arrays["offset"][members]
        ends = begins + arrays["size"][members]
        begin, end = begins[stops - counts], ends[stops - 1]
        is_small = end - begin <= TOGETHER
        gap = begin[1:] - end[:-1]
        is_joined = (shards[1:] == shards[:-1]) & (gap >= 0) & (gap <= NEAR) & is_small[1:] & is_small[:-1]
        is_joined &= np.arange(1, ids.size) % IN_ONE_READ != 0
        heads = np.concatenate([[0], np.flatnonzero(~is_joined) + 1])
        per_read = np.diff(heads, append=ids.size)
        start = begin[heads]
        length = np.where(is_small[heads], end[heads + per_read - 1] - start, -1)
        base = np.repeat(np.repeat(start, per_read), counts)
        fields = catalogue.fields
        key_end = arrays["key_end"]
        return cls(
            places.tolist(),
            list(
                zip(
                    key_end[ids].tolist(),
                    key_end[ids + 1].tolist(),
                    [fields[number] for number in arrays["signature"][ids].tolist()],
                    strict=True,
                )
            ),
            members.tolist(),
            (begins - base).tolist(),
            (ends - base).tolist(),
            list(
                zip(shards[heads].tolist(), start.tolist(), length.tolist(), per_read.tolist(), strict=True)
            ),
        )


def _opened(catalogue: Catalogue, cache: Cache, number: int) -> Handle:
    """Opens an archive of a catalogue; no method, for what is open would hold its reader."""
    return open_plain(catalogue.archives[number], catalogue.meta["unpacked"][number], cache)


@dataclass(frozen=True, eq=False)
class WantedRows:
    """What is wanted of one shard.

    Args:
        number: of the shard.
        url: of the shard.
        index: of the shard.
        rows: the numbers of the samples in it, shape (n,).
        places: where each sample stands in the batch, shape (n,).
    """

    number: int
    url: str
    index: Index
    rows: Ids
    places: Ids


def read_ranges(parts: Sequence[WantedRows], storage: RemoteStorage, samples: list[Any]) -> FetchCosts:
    """Reads samples of remote shards, and puts each into its place.

    Each file is read with its header, which must be what the index says: so an index of another state of the
    shard is noticed, whatever its size.

    Raises:
        DatasetError: a part cannot be read, a shard was changed, its index is not its own, or a file fails
            its checksum.
    """
    spans: list[Span] = []
    for part in parts:
        begins, ends = _extents(part)
        lengths = (ends - begins).tolist()
        spans += [Span(part.url, *extent) for extent in zip(begins.tolist(), lengths, strict=True)]
    data = iter(storage.read(spans))
    for part in parts:
        for row, place in zip(part.rows.tolist(), part.places.tolist(), strict=True):
            samples[place] = _sample(part.index, row, next(data))
    requests = Requests.of(spans).spans
    return FetchCosts(len(requests), sum(span.length for span in requests))


def _extents(part: WantedRows) -> tuple[Ids, Ids]:
    """Where each sample begins, the header of its first file included, and where its last file ends."""
    arrays = part.index.arrays
    first = arrays["first"][part.rows].astype(np.int64)
    last = arrays["first"][part.rows + 1].astype(np.int64) - 1
    return arrays["offset"][first] - BLOCK, arrays["offset"][last] + arrays["size"][last].astype(np.int64)


def _sample(index: Index, row: int, data: bytes) -> dict[str, Any]:
    """Takes a sample out of its part of a shard, from the header of its first file on."""
    arrays = index.arrays
    first, stop = arrays["first"][row : row + 2].tolist()
    begins, sizes = arrays["offset"][first:stop].tolist(), arrays["size"][first:stop].tolist()
    key = index.key(row)
    sample: dict[str, Any] = {
        "__key__": key.decode("utf-8", "surrogateescape"),
        "__url__": index.archive.url,
    }
    fields = index.fields[int(arrays["signature"][row])]
    for number, (field, begin, size) in enumerate(zip(fields, begins, sizes, strict=True)):
        at = begin - begins[0] + BLOCK
        if not is_header_of(data[at - BLOCK : at], key, field, size):
            raise index.stale()
        content = data[at : at + size]
        if "crc" in arrays and zlib.crc32(content) != arrays["crc"][first + number]:
            raise damaged_data(index.archive.url, begin, field, sample["__key__"])
        sample[field] = content
    return sample
