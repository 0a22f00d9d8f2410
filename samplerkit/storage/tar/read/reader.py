"""`Reader`: reads samples at any ids from archives on disk, with few and large reads."""

import os
import zlib
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import islice
from typing import Any

import numpy as np

from samplerkit.errors import DatasetError
from samplerkit.order.intervals import interval_of, numbers_in
from samplerkit.order.typing import Ids
from samplerkit.storage.file_stats import FileStats
from samplerkit.storage.open_files import Handle, Handles, file_error, read_part
from samplerkit.storage.tar.index.find_or_make import Cache, open_plain
from samplerkit.storage.tar.index.index import Index

TOGETHER = 64 << 10
"""The most bytes of a sample for which its files are read by one call, possibly with neighbours."""

NEAR = 4 << 10
"""The largest gap in bytes between two neighbours that are read by one call."""

BYTES_AT_ONCE = 4 << 20
"""The most bytes of several samples that are read together."""

IN_ONE_READ = 64
"""The most neighbours that one call reads."""

_Reads = Iterator[tuple[int, int, int, int]]
_Entries = Iterator[tuple[int, int, tuple[str, ...]]]


class Reader:
    """Reads the samples of an index from archives on disk.

    Args:
        index: the index of the archives.
        cache: the cache for decompressed archives.
        max_handles: the most open archives.

    Attributes:
        skipped: the skipped flaws of the archives.
        stats: the counters of fetched files, which stay zero.
    """

    stats = FileStats()

    def __init__(self, index: Index, cache: Cache, max_handles: int | None) -> None:
        self.skipped = index.skipped
        self._index = index
        # Not a method of this reader, which would make a reference cycle.
        self._handles = Handles(partial(open_plain, index, cache), max_handles)
        arrays = index.arrays
        self._starts: list[int] = index.layout.starts.tolist()
        self._keys = np.ascontiguousarray(arrays["keys"])
        self._urls = [archive.name for archive in index.archives]
        self._first, self._offset, self._size = arrays["first"], arrays["offset"], arrays["size"]
        self._signature, self._key_end = arrays["signature"], arrays["key_end"]
        self._has_crc = "crc" in arrays

    def read(self, ids: Ids) -> list[dict[str, Any]]:
        """Reads samples.

        Args:
            ids: the ids of the samples, all in range; int64 of shape (n,).

        Returns:
            For each id a dict with `__key__`, `__url__` and the bytes of each of its files.

        Raises:
            DatasetError: an archive is missing, was changed, is too short, or fails its checksum.
        """
        if ids.size < 2:
            return [self.read_one(id) for id in ids.tolist()]
        # Ids are in storage order.
        places = np.argsort(ids, kind="stable")
        samples: list[Any] = [None] * ids.size
        for place, sample in zip(places.tolist(), self._follow(*self._plan(ids[places])), strict=True):
            samples[place] = sample
        if self._has_crc:
            for id, sample in zip(ids.tolist(), samples, strict=True):
                verify(self._index, id, sample)
        return samples

    def read_one(self, id: int) -> dict[str, Any]:
        """Reads one sample like `read`, without the cost of a plan for many."""
        shard = bisect_right(self._starts, id) - 1
        first, stop = self._first[id : id + 2].tolist()
        begins = self._offset[first:stop].tolist()
        sizes = self._size[first:stop].tolist()
        key_begin, key_end = self._key_end[id : id + 2].tolist()
        fields = self._index.fields[self._signature[id]]
        handle = self._handles.get(shard)
        sample: dict[str, Any] = {
            "__key__": str(self._keys.data[key_begin:key_end], "utf-8", "surrogateescape"),
            "__url__": self._urls[shard],
        }
        start = begins[0]
        length = begins[-1] + sizes[-1] - start
        if length <= TOGETHER:
            data = self._read_exactly(handle, shard, start, length)
            for name, begin, size in zip(fields, begins, sizes, strict=True):
                sample[name] = data[begin - start : begin - start + size]
        else:
            for name, begin, size in zip(fields, begins, sizes, strict=True):
                sample[name] = self._read_exactly(handle, shard, begin, size)
        if self._has_crc:
            verify(self._index, id, sample)
        return sample

    def expect(self, upcoming: Iterable[Ids]) -> None:
        """Does nothing, since the operating system reads ahead."""

    def keys(self, ids: Ids) -> list[str]:
        """Returns the keys of samples."""
        return self._index.keys(ids)

    def is_large(self, ids: Ids) -> bool:
        """Returns whether samples are large; these are faster one at a time, in the cache of the CPU."""
        begins, ends = self._index.extents(ids)
        return bool((ends - begins).sum() > BYTES_AT_ONCE)

    def close(self, *, waits: bool = True) -> None:
        """Closes the open archives."""
        self._handles.close()

    def _plan(self, ids: Ids) -> tuple[_Reads, _Entries, Iterator[tuple[int, int]]]:
        """Plans the reading of samples in storage order, in which neighbours are read together.

        Returns:
            For each read, the archive, the offset, the length and the number of samples; the length is -1 if
            the files of a large sample are read one by one. For each sample, the start and end of its key,
            and its fields. For each file, the start and end of its data relative to its read.
        """
        shards = interval_of(self._index.layout.starts, ids)
        first = self._first[ids].astype(np.int64)
        counts = self._first[ids + 1] - first
        stops = np.cumsum(counts)
        members = numbers_in(first, counts)
        begins = self._offset[members]
        ends = begins + self._size[members]
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
        fields = map(self._index.fields.__getitem__, self._signature[ids].tolist())
        return (
            zip(shards[heads].tolist(), start.tolist(), length.tolist(), per_read.tolist(), strict=True),
            zip(self._key_end[ids].tolist(), self._key_end[ids + 1].tolist(), fields, strict=True),
            zip((begins - base).tolist(), (ends - base).tolist(), strict=True),
        )

    def _follow(
        self, reads: _Reads, entries: _Entries, extents: Iterator[tuple[int, int]]
    ) -> list[dict[str, Any]]:
        # The innermost loop of reading has no helper functions, since calls would cost as much as its work.
        # A separate view: without a GIL, threads must not slice one view at the same time.
        keys, pread = self._keys.data, os.pread
        samples = []
        current, url = -1, ""
        handle: Any = None
        for shard, start, length, count in reads:
            if shard != current:
                current, url, handle = shard, self._urls[shard], self._handles.get(shard)
            if length >= 0:
                try:
                    data = pread(handle.descriptor, length, start)
                except OSError as error:
                    raise file_error(url, "cannot be read", error) from error
                if len(data) != length:
                    raise self._truncated(shard, start, length, len(data))
            # In a shuffled order, most reads are for one sample.
            for key_begin, key_end, fields in (next(entries),) if count == 1 else islice(entries, count):
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
                        sample[name] = self._read_exactly(handle, shard, start + begin, end - begin)
                samples.append(sample)
        return samples

    def _read_exactly(self, handle: Handle, shard: int, start: int, length: int) -> bytes:
        try:
            data = read_part(handle.descriptor, start, length)
        except OSError as error:
            raise file_error(self._urls[shard], "cannot be read", error) from error
        if len(data) < length:
            raise self._truncated(shard, start, length, len(data))
        return data

    def _truncated(self, shard: int, start: int, length: int, actual: int) -> DatasetError:
        problem = f"became shorter while in use: of {length} bytes at byte {start} it has {actual}"
        return DatasetError(self._urls[shard], problem, hint="make the dataset again")


def verify(index: Index, number: int, sample: dict[str, Any]) -> None:
    """Checks the CRC-32 of each file of a sample, whose first two entries are `__key__` and `__url__`."""
    first = int(index.arrays["first"][number])
    for member, name in enumerate(islice(sample, 2, None), first):
        if zlib.crc32(sample[name]) != index.arrays["crc"][member]:
            offset, key = int(index.arrays["offset"][member]), sample["__key__"]
            problem = f"damaged data at byte {offset}: {name!r} of {key!r} has another checksum"
            raise DatasetError(sample["__url__"], problem, hint="fetch or make the archive again")
