"""The indexes of several archives joined to one."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from samplerkit.storage.tar.format.members import Reason
from samplerkit.storage.tar.index.arrays import Array, Column, narrow
from samplerkit.storage.tar.index.one import Edge, Index, split_between


@dataclass(frozen=True)
class IndexPart:
    """What is kept of the index of one archive, until all are joined.

    Args:
        index: reads the index again, so that few files are open at a time.
        num_samples: its samples.
        num_members: their files.
        key_bytes: bytes of their keys.
        largest: bytes of the largest file.
        digest: of what the samples are, but not of where they lie.
        first: key, fields and place of the first sample.
        last: likewise of the last one.
        meta: the index without its arrays.
    """

    index: Callable[[], Index]
    num_samples: int
    num_members: int
    key_bytes: int
    largest: int
    digest: bytes
    first: Edge
    last: Edge
    meta: Index


def part_of_index(index: Index, load: Callable[[], Index], *, checksums: bool) -> IndexPart:
    """Keeps of an index what is needed to join it with others.

    Args:
        index: of one archive.
        load: gives it again.
        checksums: whether its checksums count.
    """
    digest = hashlib.blake2b(json.dumps(index.fields).encode(), digest_size=16)
    for name in ("first", "signature", "key_end", "keys", "size", *(["crc"] if checksums else [])):
        digest.update(index.arrays[name].size.to_bytes(8, "little"))
        digest.update(np.ascontiguousarray(index.arrays[name]).data)
    return IndexPart(
        load,
        index.num_samples,
        index.num_members,
        index.arrays["keys"].size,
        int(index.arrays["size"].max(initial=0)),
        digest.digest(),
        index.edge(0),
        index.edge(index.num_samples - 1),
        Index(index.archive, index.unpacked_size, index.fields, index.flaws, index.counts, index.ignored, {}),
    )


def joined(parts: list[IndexPart], *, checksums: bool) -> tuple[dict[str, Any], dict[str, Column]]:
    """Joins the indexes of some archives.

    Returns:
        The meta values and the columns of a catalogue.
    """
    cuts, split = without_split_samples(parts)
    fields: dict[tuple[str, ...], int] = {}
    renumbered = [
        np.array([fields.setdefault(names, len(fields)) for names in part.meta.fields], dtype=np.int64)
        for part in parts
    ]
    spans = _Spans(parts, cuts)
    total = spans.totals()
    kinds = {
        "first": narrow(total["members"]),
        "signature": narrow(len(fields)),
        "key_end": narrow(total["key_bytes"]),
        "keys": np.dtype(np.uint8),
        "offset": np.dtype("<i8"),
        "size": narrow(max(part.largest for part in parts)),
    }
    if checksums:
        kinds["crc"] = np.dtype("<u4")
    columns = {}
    for name, dtype in kinds.items():
        size = {"first": total["samples"] + 1, "key_end": total["samples"] + 1}.get(
            name, total[{"signature": "samples", "keys": "key_bytes"}.get(name, "members")]
        )
        columns[name] = Column(dtype, size, spans.parts(name, renumbered))
    columns["samples"] = Column.of(np.array([stop - start for start, stop in cuts], dtype=np.int64))
    flaws = [
        (n, flaw.offset, flaw.reason, flaw.detail) for n, part in enumerate(parts) for flaw in part.meta.flaws
    ]
    counts = sum((Counter(part.meta.counts) for part in parts), Counter({"split sample": len(split)}))
    identity = hashlib.blake2b(digest_size=16, person=b"samplerkit")
    for part, cut in zip(parts, cuts, strict=True):
        identity.update(part.digest + repr(cut).encode())
    meta = {
        "fields": list(fields),
        "unpacked": [part.meta.unpacked_size for part in parts],
        "flaws": [*flaws, *split],
        "counts": dict(+counts),
        "ignored": sum(part.meta.ignored for part in parts),
        "fingerprint": identity.hexdigest(),
    }
    return meta, columns


class _Spans:
    """The samples of each archive that are kept, and the columns made of them."""

    def __init__(self, parts: list[IndexPart], cuts: list[tuple[int, int]]) -> None:
        self._parts = parts
        self._cuts = cuts
        self._bounds = [self._bound(part, cut) for part, cut in zip(parts, cuts, strict=True)]

    def totals(self) -> dict[str, int]:
        """How many samples, members and bytes of keys there are."""
        names = ("samples", "members", "key_bytes")
        spans = [(cut, *bound) for cut, bound in zip(self._cuts, self._bounds, strict=True)]
        return {name: sum(span[at][1] - span[at][0] for span in spans) for at, name in enumerate(names)}

    def parts(self, name: str, renumbered: list[Array]) -> Callable[[], Iterator[Array]]:
        """Gives a column of all archives, an array for each."""

        def each() -> Iterator[Array]:
            before = 0
            for number, part in enumerate(self._parts):
                (start, stop), (members, keys) = self._cuts[number], self._bounds[number]
                array = part.index().arrays[name]
                if name == "signature":
                    yield renumbered[number][array[start:stop]]
                elif name == "keys":
                    yield array[keys[0] : keys[1]]
                elif name in {"first", "key_end"}:
                    # Each archive gives where its samples begin; the last one also where the last one ends.
                    low, high = members if name == "first" else keys
                    yield array[start:stop].astype(np.int64) + (before - low)
                    before += high - low
                else:
                    yield array[members[0] : members[1]]
            if name in {"first", "key_end"}:
                yield np.array([before])

        return each

    @staticmethod
    def _bound(part: IndexPart, cut: tuple[int, int]) -> tuple[tuple[int, int], tuple[int, int]]:
        if cut == (0, part.num_samples):
            return (0, part.num_members), (0, part.key_bytes)
        arrays = part.index().arrays
        first, key_end = (arrays[name][list(cut)].tolist() for name in ("first", "key_end"))
        return (first[0], first[1]), (key_end[0], key_end[1])


def without_split_samples(
    parts: list[IndexPart],
) -> tuple[list[tuple[int, int]], list[tuple[int, int, Reason, str]]]:
    """Finds samples whose files are spread over two archives, and cuts them off both."""
    cuts = [[0, part.num_samples] for part in parts]
    split = []
    for number, (one, other) in enumerate(pairwise(parts)):
        flaw = split_between(one.last, other.first, one.meta.archive.url)
        if flaw is not None:
            split.append((number + 1, *flaw))
            cuts[number][1] = one.num_samples - 1
            cuts[number + 1][0] = 1
    return [(start, max(start, stop)) for start, stop in cuts], split
