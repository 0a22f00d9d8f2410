"""Where batches begin and end, and in which order they come: arithmetic on the places of a window.

The samples of a window stand in places, longest bucket first. Cuts turn places into batches, numbered from
the longest to the shortest; groups of batches that cost alike are then permuted. Both invert.
"""

from __future__ import annotations

from typing import Literal, final, get_args

import numpy as np

from samplerkit.order.blocks import Block, KeptBlocks
from samplerkit.order.intervals import interval_of
from samplerkit.order.keys import Key, scaled
from samplerkit.order.typing import Ids

Short = Literal["merge", "keep", "drop"]
"""What becomes of the last batch of a bucket, which the bucket does not fill."""

SHORTS = get_args(Short)


@final
class Cuts:
    """The batches of a window whose buckets stand one after another, one arithmetic piece a bucket.

    Args:
        starts: the first place of each bucket and the number of places at the end; shape (buckets + 1,).
        sizes: samples in a batch that begins in the bucket; shape (buckets,), each positive.
        short: `merge` completes the last batch of a bucket from the next one, `keep` leaves it short, `drop`
            leaves it out.

    Example:
        >>> cuts = Cuts(np.array([0, 3, 10]), np.array([2, 4]))
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
            left = max(0, bucket_end - place)
            count = left // size if short == "drop" else -(-left // size)
            places.append(place)
            numbers.append(numbers[-1] + count)
            cut = place + count * size
            ends.append(min(cut, end if short == "merge" else bucket_end))
            place = max(bucket_end, cut) if short == "merge" else bucket_end
        self._places = np.array([*places, end], dtype=np.int64)
        self._numbers = np.array(numbers, dtype=np.int64)
        self._ends = np.array([*ends, end], dtype=np.int64)
        self.count = numbers[-1]
        self.placed = int((self._ends[:-1] - self._places[:-1])[np.diff(self._numbers) > 0].sum())

    def bucket_of(self, batches: Ids) -> Ids:
        """Gives the bucket in which each batch begins."""
        return interval_of(self._numbers, batches)

    def edges(self, batches: Ids) -> tuple[Ids, Ids]:
        """Gives the first place of each batch, and the place behind its last."""
        bucket = self.bucket_of(batches)
        size = self._sizes[bucket]
        begin = self._places[bucket] + (batches - self._numbers[bucket]) * size
        return begin, np.minimum(begin + size, self._ends[bucket])

    def batch_of(self, places: Ids) -> Ids:
        """Gives the batch in which each place stands, -1 for one in a short batch that was dropped."""
        # Where a bucket was used up by the batch before, its piece is empty: the last piece that begins here.
        piece = np.searchsorted(self._places[:-1], places, side="right") - 1
        batch = self._numbers[piece] + (places - self._places[piece]) // self._sizes[piece]
        return np.where(places < self._ends[piece], batch, -1)


@final
class Groups:
    """The order in which batches come: groups of `abreast`, whole ones permuted, the short one last.

    Batches of one group cost alike, and so those of a step do. The short group is cut out at a
    keyed place: were it always the last, dropping it would always lose the same lengths.

    Args:
        count: the number of batches, from the longest to the shortest.
        abreast: batches in a group.
        key: where the randomness comes from; None leaves the batches as they are.
        index: names the window.

    Example:
        >>> groups = Groups(7, 2, Key(seed=1, epoch=0, depth=0, role="batch groups"))
        >>> batches = groups.forward(np.arange(7))
        >>> sorted(batches.tolist()), groups.backward(batches).tolist()
        ([0, 1, 2, 3, 4, 5, 6], [0, 1, 2, 3, 4, 5, 6])
    """

    def __init__(self, count: int, abreast: int, key: Key | None, index: int = 0) -> None:
        self._abreast = abreast
        whole, self._short = divmod(count, abreast)
        self._whole = whole * abreast
        self._blocks = None if key is None else KeptBlocks(key)
        self._group = Block(index, 0, whole)
        self._cut_out = self._whole
        if key is not None and self._short:
            self._cut_out = abreast * int(scaled(key.words(1, index, 1), whole + 1)[0])

    def forward(self, numbers: Ids) -> Ids:
        """Gives which batch, counted from the longest, comes as the number so and so."""
        if self._blocks is None:
            return numbers
        group, within = np.divmod(numbers, self._abreast)
        is_whole = numbers < self._whole
        group[is_whole] = self._blocks.permuted(self._group, group[is_whole])
        batches = group * self._abreast + within
        batches += np.where(batches >= self._cut_out, self._short, 0)
        return np.where(is_whole, batches, self._cut_out + numbers - self._whole)

    def backward(self, batches: Ids) -> Ids:
        """Gives when batches, counted from the longest, come: the inverse of `forward`."""
        if self._blocks is None:
            return batches
        within_short = batches - self._cut_out
        is_whole = (within_short < 0) | (within_short >= self._short)
        group, within = np.divmod(batches - np.where(within_short >= 0, self._short, 0), self._abreast)
        group[is_whole] = self._blocks.permuted(self._group, group[is_whole], inverse=True)
        return np.where(is_whole, group * self._abreast + within, self._whole + within_short)
