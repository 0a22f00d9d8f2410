"""From sorted places to batches: where they begin and end, in which order they are read, how they are split.

The samples of a window are at places, sorted by length, the longest first. `Cuts` cuts places into batches by
arithmetic, `spread` into batches of any sizes, with repeats of a sample in different ones. Both number
batches from the longest samples to the shortest. `Groups` permutes groups of batches that cost alike.
`halved` and `cut_again` make more batches of the same samples.
"""

import heapq
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from samplerkit.order.intervals import interval_of
from samplerkit.order.keys import Key, scaled
from samplerkit.order.sequences import Permuted
from samplerkit.order.typing import Ids

Short = Literal["merge", "keep", "drop"]
"""How the last batch of a bucket is handled if the bucket does not fill it."""

SHORTS = get_args(Short)


class Cuts:
    """The batches of consecutive buckets, by arithmetic: all that begin in one bucket have the same size.

    Args:
        starts: the first place of each bucket and the number of places at the end; shape (buckets + 1,).
        sizes: samples in a batch that begins in the bucket; shape (buckets,), each positive.
        short: `merge` completes the last batch of a bucket from the next one, `keep` leaves it short, `drop`
            leaves it out.

    Attributes:
        count: the number of batches.
        placed: the number of places that are in a batch.

    Example:
        >>> cuts = Cuts(np.array([0, 3, 10]), np.array([2, 4]))  # the second batch is of both buckets
        >>> [edge.tolist() for edge in cuts.edges(np.arange(cuts.count))]
        [[0, 2, 4, 8], [2, 4, 8, 10]]
        >>> cuts.batch_of(np.array([3, 4, 9])).tolist()
        [1, 2, 3]
    """

    def __init__(self, starts: Ids, sizes: Ids, short: Short = "merge") -> None:
        self._sizes = np.append(sizes, 1)
        end = int(starts[-1])
        places, numbers, ends = [], [0], []
        place = 0
        for bucket_end, size in zip(starts[1:].tolist(), sizes.tolist(), strict=True):
            remaining = max(0, bucket_end - place)
            count = remaining // size if short == "drop" else -(-remaining // size)
            places.append(place)
            numbers.append(numbers[-1] + count)
            cut = place + count * size
            ends.append(min(cut, end if short == "merge" else bucket_end))
            place = max(bucket_end, ends[-1])
        self._places = np.array([*places, end], dtype=np.int64)
        self._numbers = np.array(numbers, dtype=np.int64)
        self._ends = np.array([*ends, end], dtype=np.int64)
        self.count = numbers[-1]
        self.placed = int((self._ends[:-1] - self._places[:-1])[np.diff(self._numbers) > 0].sum())

    def edges(self, batches: Ids) -> tuple[Ids, Ids]:
        """Returns (begins, ends): batch i has the places in [begins[i], ends[i])."""
        bucket = interval_of(self._numbers, batches)
        size = self._sizes[bucket]
        begin = self._places[bucket] + (batches - self._numbers[bucket]) * size
        return begin, np.minimum(begin + size, self._ends[bucket])

    def batch_of(self, places: Ids) -> Ids:
        """Returns the batch in which each place is, -1 for one in a short batch that was dropped."""
        # A bucket that was used up by the last batch of the one before has no batches, and the next bucket
        # begins at the same place. So this is the last bucket that begins at or before the place.
        bucket = np.searchsorted(self._places[:-1], places, side="right") - 1
        batch = self._numbers[bucket] + (places - self._places[bucket]) // self._sizes[bucket]
        return np.where(places < self._ends[bucket], batch, -1)


class Groups:
    """The order in which batches are read: groups of `abreast` batches, permuted, a short group last.

    Neighbouring batches cost alike, so those of a group and of a step do. If `abreast` does not divide their
    number, some batches are left for a short group. They are taken out at a random place: if they were always
    those of the shortest samples, a tail that is dropped would always lose the same lengths.

    Args:
        count: the number of batches.
        abreast: batches in a group.
        key: where the randomness comes from; None leaves the batches in their order.
        index: which stream of the key, such as the number of the window.

    Example:
        >>> groups = Groups(7, 2, Key(seed=1, epoch=0, depth=0, role="batch groups"))
        >>> batches = groups.forward(np.arange(7))
        >>> sorted(batches.tolist()), groups.backward(batches).tolist()
        ([0, 1, 2, 3, 4, 5, 6], [0, 1, 2, 3, 4, 5, 6])
    """

    def __init__(self, count: int, abreast: int, key: Key | None, index: int = 0) -> None:
        self._abreast = abreast
        full, self._short = divmod(count, abreast)
        self._num_full = full * abreast
        self._groups = None if key is None else Permuted(full, key, index)
        self._short_at = self._num_full
        if key is not None and self._short:
            self._short_at = abreast * int(scaled(key.words(1, index, 1), full + 1)[0])

    def forward(self, numbers: Ids) -> Ids:
        """Returns the batch that is read at each number, int64 of shape (b,)."""
        if self._groups is None:
            return numbers
        group, within = np.divmod(numbers, self._abreast)
        is_full = numbers < self._num_full
        group[is_full] = self._groups.permuted(group[is_full])
        batches = group * self._abreast + within
        batches += np.where(batches >= self._short_at, self._short, 0)
        return np.where(is_full, batches, self._short_at + numbers - self._num_full)

    def backward(self, batches: Ids) -> Ids:
        """Returns the number at which each batch is read: the inverse of `forward`."""
        if self._groups is None:
            return batches
        within_short = batches - self._short_at
        is_full = (within_short < 0) | (within_short >= self._short)
        group, within = np.divmod(batches - np.where(within_short >= 0, self._short, 0), self._abreast)
        group[is_full] = self._groups.permuted(group[is_full], inverse=True)
        return np.where(is_full, group * self._abreast + within, self._num_full + within_short)


_MAX_AT_ONCE = 64


@dataclass(frozen=True, eq=False)
class Repeats:
    """Which places of a window have the same sample.

    Args:
        firsts: the first place with the sample of each place; int64 of shape (m,).
        counts: the number of places with that sample, int64 of shape (m,); None if no sample repeats.
    """

    firsts: Ids
    counts: Ids | None


def has_repeats(ids: Ids) -> bool:
    """Returns whether a sample is in a window more than once."""
    ascending = np.sort(ids)
    return bool((ascending[1:] == ascending[:-1]).any())


def repeats_in(ids: Ids) -> Repeats:
    """Finds the repeats in a window.

    Example:
        >>> repeats_in(np.array([4, 2, 4])).counts, repeats_in(np.array([4, 2])).counts
        (array([2, 1, 2]), None)
    """
    if not has_repeats(ids):
        return Repeats(np.arange(ids.size), None)
    _, first, inverse, counts = np.unique(ids, return_index=True, return_inverse=True, return_counts=True)
    return Repeats(first[inverse], counts[inverse])


def longest_first(lengths: Ids) -> Ids:
    """Returns the places sorted by length, the longest first; those of one length keep their order."""
    gaps = lengths.max(initial=0) - lengths
    # numpy sorts 16-bit integers by radix, which is several times as fast.
    return np.argsort(gaps.astype(np.uint16) if gaps.max(initial=0) < 1 << 16 else gaps, kind="stable")


def spread(places: Ids, sizes: Ids, repeats: Repeats) -> list[Ids]:
    """Cuts places that are sorted by length, the longest first, into batches.

    If a sample is at n places, n batches are cut together, and their places are dealt to them like cards. So
    its repeats, which are neighbours, are in different batches.

    Args:
        places: of the samples, repeats of a sample next to one another; int64 of shape (m,).
        sizes: how many samples fit into a batch that begins at each; int64 of shape (m,).
        repeats: of the window.

    Example:
        >>> repeats = repeats_in(np.array([7, 7, 8, 9]))
        >>> [batch.tolist() for batch in spread(np.arange(4), np.full(4, 2), repeats)]
        [[0, 2], [1, 3]]
    """
    batches: list[Ids] = []
    counts = None if repeats.counts is None else repeats.counts[places]
    at = 0
    while at < places.size:
        dealt = 1
        end = at + sizes.item(at)
        # More batches have more places, some perhaps of a sample with more repeats.
        while counts is not None and dealt < _MAX_AT_ONCE:
            largest = min(int(counts[at:end].max()), _MAX_AT_ONCE)
            if largest <= dealt:
                break
            dealt = largest
            end = at + dealt * sizes.item(at)
        block = places[at:end]
        # Some repeats may be in the block before, so that this one has fewer places than batches.
        dealt = min(dealt, block.size)
        batches += [block[first::dealt] for first in range(dealt)] if dealt > 1 else [block]
        at = end
    return batches


_GROUPS_RECUT = 2
"""Groups at the end that `cut_again` cuts again."""

_PART_UNIT = 1 << 12
"""The denominator of the fraction by which it makes batches smaller."""


def halved(batches: Sequence[Ids], count: int, multiple: int = 1) -> list[Ids]:
    """Halves the largest batch, again and again, until there are `count` or each has one sample.

    Of several largest batches the last one is halved. The halves take its place. A half costs no more than
    the batch, and so stays within every limit.

    Args:
        batches: int64 arrays, none empty.
        count: the number of batches to make.
        multiple: the first half is rounded up to a multiple of it, if the batch is larger than that.

    Returns:
        The batches; the given ones if there are already `count`.

    Example:
        >>> [batch.tolist() for batch in halved([np.arange(2), np.arange(5)], 4)]
        [[0, 1], [0, 1], [2], [3, 4]]
    """
    # Among parts of equal size those of the last batch come first, so that parts of similar batches are
    # neighbours; and of one batch, the first part.
    heap = [(-batch.size, -number, 0) for number, batch in enumerate(batches)]
    heapq.heapify(heap)
    for _ in range(count - len(batches)):
        if not heap or heap[0][0] >= -1:
            break
        negative, number, begin = heap[0]
        size = -negative
        half = (size + 1) // 2
        rounded = half + -half % multiple
        half = rounded if rounded < size else half
        heapq.heapreplace(heap, (-half, number, begin))
        heapq.heappush(heap, (half - size, number, begin + half))
    parts = sorted((-number, begin, begin - negative) for negative, number, begin in heap)
    return [batches[number][begin:end] for number, begin, end in parts]


def cut_again(
    batches: Sequence[Ids], sizes_at: Callable[[Ids], Ids], count: int, abreast: int, multiple: int = 1
) -> list[Ids]:
    """Makes `count` batches by cutting the last two groups again, into batches that are a little smaller.

    If batches were halved instead, a step would have whole batches and halves, and ranks would wait for those
    with a whole one. The last groups are taken since their samples are the shortest, so that many are in a
    batch.

    Args:
        batches: int64 arrays of places, the longest samples first, in each and from one to the next.
        sizes_at: returns how many samples fit into a batch that begins at each of some places. If these
            numbers ever fall, since the places are not sorted, batches are halved.
        count: the number of batches to make: a multiple of `abreast`, and fewer than `abreast` more than
            there are.
        abreast: batches in a group.
        multiple: the size of a batch is a multiple of it, if that many samples fit.

    Example:
        >>> batches = [np.arange(4), np.arange(4, 12)]
        >>> recut = cut_again(batches, lambda places: 4 + places // 4 * 2, count=4, abreast=4)
        >>> [batch.tolist() for batch in recut]
        [[0, 1], [2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
    """
    start = max(0, count - _GROUPS_RECUT * abreast)
    places = np.concatenate(batches[start:])
    sizes = sizes_at(places)
    if (np.diff(sizes) < 0).any():
        return halved(batches, count, multiple)
    parts, limit = range(1, _PART_UNIT + 1), count - start
    part = parts[bisect_left(parts[:-1], True, key=lambda part: len(_edges(sizes, part, multiple)) <= limit)]
    recut = np.split(places, _edges(sizes, part, multiple)[1:])
    return halved([*batches[:start], *recut], count, multiple)


def _edges(sizes: Ids, part: int, multiple: int) -> list[int]:
    """Returns the places at which batches begin that have `part` / `_PART_UNIT` of the given sizes."""
    edges = []
    at = 0
    while at < sizes.size:
        edges.append(at)
        size = max(1, sizes.item(at) * part // _PART_UNIT)
        at += size - size % multiple if size >= multiple else size
    return edges
