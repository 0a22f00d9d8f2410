"""Samples read by requests for parts of shards: those of a batch at once, and the next batch ahead."""

from __future__ import annotations

import threading
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from samplerkit.order.typing import Ids
from samplerkit.storage.ahead.cache import ReadAheadCache
from samplerkit.storage.ahead.shelf import CacheLimits
from samplerkit.storage.ahead.stats import FileStats
from samplerkit.storage.ahead.uses import MOST_OVERTAKEN
from samplerkit.storage.remote.attempt import Span
from samplerkit.storage.remote.storage import RemoteStorage
from samplerkit.storage.tar.format.headers import BLOCK
from samplerkit.storage.tar.format.members import damaged_data
from samplerkit.storage.tar.format.samples import is_header_of
from samplerkit.storage.tar.index.one import Index
from samplerkit.storage.tar.read.costs import FetchCosts
from samplerkit.storage.threads import weakly

NEAR = 64 << 10
"""Bytes between two samples of a shard that are read along, for a request costs more."""

LONGEST = 8 << 20
"""Bytes after which a request takes in no further sample: two at the same time are faster."""

MOST_BYTES = 256 << 20
"""Bytes of a batch from which on none is read ahead."""

MOST_MISTAKES = 8
"""Batches in a row that were not expected, after which nothing is expected any more."""


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


@dataclass(frozen=True, eq=False)
class SampleBatch:
    """Samples that were read together.

    Args:
        samples: of the batch; None where they were too large to be read ahead.
        num_bytes: that were read for it.
        path: nothing: a batch has no name.
    """

    samples: list[Any] | None
    num_bytes: int
    path: str = ""


def read_ranges(parts: Sequence[WantedRows], storage: RemoteStorage, samples: list[Any]) -> FetchCosts:
    """Reads samples of remote shards, and puts each into its place.

    Each file is read with its header, which must be what the index says: so an index of another state of the
    shard is noticed, whatever its size.

    Raises:
        DatasetError: a part cannot be read, a shard was changed, its index is not its own, or a file fails
            its checksum.
    """
    spans: list[Span] = []
    jobs: list[tuple[WantedRows, int, Ids]] = []
    for part in parts:
        begins, ends = _extents(part)
        in_order = np.argsort(begins, kind="stable")
        for joined in near_groups(begins[in_order], ends[in_order]):
            chosen = in_order[joined]
            start, stop = int(begins[chosen[0]]), int(ends[chosen].max())
            spans.append(Span(part.url, start, stop - start))
            jobs.append((part, start, chosen))
    for (part, start, chosen), data in zip(jobs, storage.read(spans), strict=True):
        for number in chosen.tolist():
            samples[part.places[number]] = _sample(part.index, int(part.rows[number]), data, start)
    return FetchCosts(len(spans), sum(span.length for span in spans))


def _extents(part: WantedRows) -> tuple[Ids, Ids]:
    """Where each sample begins, the header of its first file included, and where its last file ends."""
    arrays = part.index.arrays
    first = arrays["first"][part.rows].astype(np.int64)
    last = arrays["first"][part.rows + 1].astype(np.int64) - 1
    return arrays["offset"][first] - BLOCK, arrays["offset"][last] + arrays["size"][last].astype(np.int64)


def near_groups(begins: Ids, ends: Ids) -> list[slice]:
    """Groups samples that are read by one request; both arrays are in the order of the shard."""
    groups = []
    head, reach = 0, int(ends[0])
    for number, (begin, end) in enumerate(zip(begins.tolist(), ends.tolist(), strict=True)):
        if number and (begin - reach > NEAR or (end > reach and end - int(begins[head]) > LONGEST)):
            groups.append(slice(head, number))
            head = number
        reach = max(reach, end) if number > head else end
    return [*groups, slice(head, len(begins))]


def _sample(index: Index, row: int, data: bytes, start: int) -> dict[str, Any]:
    """Takes a sample out of a part of its shard."""
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
        at = begin - start
        if not is_header_of(data[at - BLOCK : at], key, field, size):
            raise index.stale()
        content = data[at : at + size]
        if "crc" in arrays and zlib.crc32(content) != arrays["crc"][first + number]:
            raise damaged_data(index.archive.url, begin, field, sample["__key__"])
        sample[field] = content
    return sample


@final
class Batches:
    """The batches that come next: while one is worked on, the next one is read in a thread.

    Args:
        read: reads a batch; called from that thread, too.
        upcoming: the ids of each batch to come; iterated over a bounded way ahead.
    """

    def __init__(self, read: Callable[[Ids], SampleBatch], upcoming: Iterable[Any]) -> None:
        self._read_now = read
        self._turn = threading.Lock()
        self._expected: dict[int, Ids] = {}
        self._begun: set[int] = set()
        self._last = -1
        self._mistakes = 0
        self._num_bytes = 0
        # To the cache each batch is a file that is used once.
        limits = CacheLimits(max_files=3, max_bytes=None, read_ahead=1, threads=1, keeps_unneeded=False)
        self._cache = ReadAheadCache(weakly(self._read), 1, limits, FileStats())
        self._cache.expect(self._numbered(upcoming), lambda numbers: numbers)

    @property
    def is_right(self) -> bool:
        """Whether what is read is still what was expected."""
        return self._mistakes < MOST_MISTAKES

    def read(self, ids: Ids) -> list[Any]:
        """Gives the samples of a batch; one that was not expected is read now."""
        number = self._found(ids)
        if number is None:
            return self._now(ids)
        self._cache.begin(_as_file(number, ids))
        try:
            with self._cache.using(number) as batch:
                samples = batch.samples
        finally:
            self._cache.end()
            with self._turn:
                self._begun.discard(number)
                self._expected.pop(number, None)
        return self._now(ids) if samples is None else samples

    def stop(self) -> None:
        """Ends the thread when it has read what it reads now."""
        self._cache.stop()

    def close(self) -> None:
        """Ends the thread, and waits for it for a second at most."""
        self._cache.close()

    def _found(self, ids: Ids) -> int | None:
        """Gives the number of an expected batch: the next one, or one beside it where threads read."""
        # Of several threads that want the same batch, one gets what was read ahead.
        with self._turn:
            for number in range(self._last - MOST_OVERTAKEN, self._last + MOST_OVERTAKEN):
                expected = None if number in self._begun else self._expected.get(number)
                if expected is not None and np.array_equal(expected, ids):
                    self._begun.add(number)
                    self._last = max(self._last, number)
                    self._expected.pop(number - 2 * MOST_OVERTAKEN, None)
                    self._mistakes = 0
                    return number
            self._mistakes += 1
            return None

    def _now(self, ids: Ids) -> list[Any]:
        batch = self._read_now(ids)
        return [] if batch.samples is None else batch.samples

    def _read(self, number: int) -> SampleBatch:
        expected = self._expected.get(number)
        if expected is None or (number not in self._begun and self._num_bytes > MOST_BYTES):
            return SampleBatch(None, 0)
        batch = self._read_now(expected)
        self._num_bytes = batch.num_bytes
        return batch

    def _numbered(self, upcoming: Iterable[Any]) -> Iterator[Ids]:
        for number, ids in enumerate(upcoming):
            self._expected[number] = np.asarray(ids, dtype=np.int64)
            yield _as_file(number, self._expected[number])


def _as_file(number: int, ids: Ids) -> Ids:
    return np.full(max(1, ids.size), number)
