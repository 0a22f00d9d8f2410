"""Samples read by requests for parts of shards, those of a batch at once."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from samplerkit.order.typing import Ids
from samplerkit.storage.remote.attempt import Span
from samplerkit.storage.remote.storage import RemoteStorage
from samplerkit.storage.tar.format.headers import BLOCK
from samplerkit.storage.tar.format.members import damaged_data
from samplerkit.storage.tar.format.samples import is_header_of
from samplerkit.storage.tar.index.one import Index
from samplerkit.storage.tar.read.costs import FetchCosts

NEAR = 64 << 10
"""Bytes between two samples of a shard that are read along, for a request costs more."""

LONGEST = 8 << 20
"""Bytes after which a request takes in no further sample: two at the same time are faster."""


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
