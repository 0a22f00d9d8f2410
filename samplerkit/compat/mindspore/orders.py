"""The orders of MindSpore: GCC 9's `std::shuffle`, shuffled epochs, weighted draws, files and ConcatDatasets.

`std::shuffle` is computed without a loop over the elements. Every shuffle over the files of a MindDataset
uses `std::minstd_rand0` with the same seed: of all rows, of the files, or within each file or block.
"""

from bisect import bisect_left
from collections.abc import Callable, Hashable
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from samplerkit.compat.mindspore.generators import Engine, MinstdRand0, Mt19937, canonical, uniform_integers
from samplerkit.errors import NotSupportedError
from samplerkit.order import arguments
from samplerkit.order.intervals import numbers_in
from samplerkit.order.layout import Layout
from samplerkit.order.sequences import Table
from samplerkit.order.typing import Ids

_CHUNK = 1 << 16


def shuffle(size: int, generator: Engine) -> Ids:
    """Returns the result of `std::shuffle` of 0, 1, ..., size - 1.

    Args:
        size: the number of elements, at most `generator.span`.
        generator: the source of words; afterwards it is positioned after the last word used.

    Returns:
        An array of integers of shape (size,); shuffling any array v gives v[result].

    Raises:
        NotSupportedError: there are more elements than the generator has different words.

    Source: `bits/stl_algo.h` of libstdc++ 9.

    Example:
        >>> from samplerkit.compat.mindspore.generators import Mt19937
        >>> shuffle(5, Mt19937(1)).tolist()
        [1, 0, 2, 3, 4]
    """
    if size > generator.span:
        raise NotSupportedError(
            "num_samples", f"MindSpore cannot shuffle more than {generator.span} samples", size
        )
    return swapped(swap_targets(size, generator))


def swap_targets(size: int, generator: Engine) -> Ids:
    """Returns the element that each element i is swapped with, in sequence; it is at most i."""
    targets = np.zeros(size, dtype=np.int64)
    if size < 2:
        return targets
    if generator.span // size < size:
        for start in range(1, size, _CHUNK):
            part = targets[start : start + _CHUNK]
            part[:] = uniform_integers(generator, np.arange(start + 1, start + 1 + part.size))
        return targets
    # One word is used for two swaps: a number below a * (a + 1) gives one below a and one below a + 1.
    first = 1
    if size % 2 == 0:
        targets[1:2] = uniform_integers(generator, np.array([2]))
        first = 2
    smaller = np.arange(first + 1, size + 1, 2)
    pairs = uniform_integers(generator, smaller * (smaller + 1))
    targets[first::2], targets[first + 1 :: 2] = np.divmod(pairs, smaller + 1)
    return targets


def swapped(targets: Ids) -> Ids:
    """Applies the swaps (i, targets[i]), in the order of i, to 0, 1, 2, ...

    No swap before the i-th one touches element i. So the i-th swap moves the number i to its target, and the
    number at the target to place i: the number of the last earlier swap with the same target, or, if there
    was none, the number that the target's own swap moved there. These are links to earlier swaps. All are
    followed together, twice as far in each pass.

    Args:
        targets: int64 array of shape (n,), 0 <= targets[i] <= i; it is overwritten.

    Returns:
        An array of integers of shape (n,), of 32 bits if they suffice.

    Example:
        >>> swapped(np.array([0, 0, 2, 1])).tolist()
        [1, 3, 2, 0]
    """
    size = targets.size
    bits = size.bit_length()
    kind: Any = np.int32 if bits < 32 else np.int64
    # Sorted by target, then by swap.
    targets <<= bits
    targets |= np.arange(size, dtype=kind)
    targets.sort()
    swaps = np.bitwise_and(targets, (1 << bits) - 1, dtype=np.int64).astype(kind)
    targets >>= bits
    is_last = np.ones(size, dtype=bool)
    np.not_equal(targets[1:], targets[:-1], out=is_last[:-1])
    # The number that moves to a place: a number, or ~place for the number that moved to an earlier place.
    source: Ids = np.empty(size, dtype=kind)
    np.invert(targets, out=source, casting="same_kind")
    np.copyto(source[1:], swaps[:-1], where=~is_last[:-1])
    np.copyto(source, swaps, where=swaps == targets)
    moved: Ids = np.empty(size, dtype=kind)
    moved[swaps] = source
    del source
    numbers = swaps[is_last]
    del swaps
    places = targets[is_last]
    del targets, is_last
    unresolved = np.flatnonzero(moved < 0)
    while unresolved.size:
        values = moved[~moved[unresolved]]
        moved[unresolved] = values
        unresolved = unresolved[values < 0]
    moved[places] = numbers
    return moved


Floats = np.ndarray[Any, np.dtype[np.float64]]


def weighted_draws(weights: Floats, count: int, generator: Engine) -> Ids:
    """Draws ids with replacement, as `std::discrete_distribution` does.

    Args:
        weights: float64 array of shape (n,), none negative, not all zero.
        count: the number of draws.
        generator: the source of words; two for each draw, none if there is only one weight.

    Returns:
        int64 array of shape (count,).

    Source: `bits/random.tcc` of libstdc++ 9.
    """
    drawn = np.zeros(count, dtype=np.int64)
    if weights.size == 1:
        return drawn
    # Not `sum`, which adds pairwise: the last bit of each number matters here.
    borders = np.cumsum(weights)
    np.divide(weights, borders[-1], out=borders)
    np.cumsum(borders, out=borders)
    borders[-1] = 1.0
    for start in range(0, count, _CHUNK):
        numbers = canonical(generator, min(_CHUNK, count - start))
        # In ascending order, neighbours are compared with the same borders, which are then in the CPU cache.
        ascending = np.argsort(numbers)
        drawn[start + ascending] = np.searchsorted(borders, numbers[ascending], side="left")
    return drawn


def weighted_distinct(weights: Floats, count: int, generator: Engine) -> Ids:
    """Draws distinct ids: those with the shortest exponential waiting times, whose rates are the weights.

    Args:
        weights: float64 array of shape (n,), none negative.
        count: the number of ids, at most n.
        generator: the source of words, two for each weight.

    Returns:
        int64 array of shape (count,), by waiting time.

    Source: Efraimidis and Spirakis, "Weighted random sampling with a reservoir" (2006).
    """
    waiting = np.empty(weights.size)
    for start in range(0, weights.size, _CHUNK):
        part = waiting[start : start + _CHUNK]
        np.log(1.0 - canonical(generator, part.size), out=part)
    np.negative(waiting, out=waiting)
    with np.errstate(divide="ignore"):
        waiting /= weights
    return np.argsort(waiting, kind="stable")[:count]


# No lock: a child forked while it is held would wait forever. So two threads may compute the same ids.
_tables: WeakValueDictionary[tuple[Hashable, int], Table] = WeakValueDictionary()


def rearranged(name: Hashable, epoch: int, arrange: Callable[[int, int], Ids]) -> Table:
    """Returns the ids of an epoch, where each epoch rearranges the ids of the epoch before.

    The computation starts at the latest earlier epoch that is still referenced elsewhere, or else at epoch 0,
    so that epoch e takes e + 1 arrangements. Only weak references are kept here.

    Args:
        name: identifies this sequence of epochs.
        epoch: the epoch, from 0.
        arrange: receives the epoch, and the number of ids in the epoch before (0 for epoch 0), and returns
            the new order of those ids.

    Returns:
        The ids of the epoch.
    """
    # Read-only arrays are kept without a copy.
    start, table = _latest_cached(name, epoch) or (0, Table(arguments.read_only(arrange(0, 0))))
    for number in range(start + 1, epoch + 1):
        table = Table(arguments.read_only(table.ids_at(arrange(number, len(table)))))
    _tables[name, epoch] = table
    return table


def _latest_cached(name: Hashable, epoch: int) -> tuple[int, Table] | None:
    for number in range(epoch, -1, -1):
        table = _tables.get((name, number))
        if table is not None:
            return number, table
    return None


def global_order(size: int, seed: int) -> Ids:
    """Shuffles all rows."""
    return shuffle(size, MinstdRand0(seed % 2**32))


def files_order(layout: Layout, seed: int) -> Ids:
    """Shuffles the files; the rows in each file stay in order."""
    files = global_order(layout.num_files, seed)
    return numbers_in(layout.starts[files], layout.sizes[files])


def infile_order(layout: Layout, seed: int) -> Ids:
    """Shuffles the rows of each file; files of the same size are shuffled in the same way."""
    rows = np.arange(len(layout))
    by_size = {size: global_order(size, seed) for size in np.unique(layout.sizes).tolist()}
    for start, size in zip(layout.starts.tolist(), layout.sizes.tolist(), strict=False):
        rows[start : start + size] = by_size[size]
        rows[start : start + size] += start
    return rows


def blocks_order(num_rows: int, block_size: int, seed: int) -> Ids:
    """Shuffles the rows within consecutive blocks, all in the same way; the last block may be shorter."""
    size = max(1, min(block_size, num_rows))
    blocks = np.arange(0, num_rows - size + 1, size)[:, None] + global_order(size, seed)
    rest = np.arange(blocks.size, num_rows)
    return np.append(blocks, rest[global_order(rest.size, seed)])


def partial_order(
    layout: Layout, seed: int, block_size: int, num_shards: int, num_samples: int | None
) -> Ids:
    """Shuffles the files, deals the rows to shards, and shuffles within blocks of each shard's rows.

    Args:
        layout: the files.
        seed: the seed of all shuffles.
        block_size: the number of rows in a block.
        num_shards: the number of shards; each has ceil(n / num_shards) rows, the last ones repeat the first.
        num_samples: how many rows of a shard are kept, before they are shuffled; None for all.

    Returns:
        The rows of all shards, interleaved: one row of each shard in turn.
    """
    rows = -(-len(layout) // num_shards)
    rows = min(num_samples or rows, rows)
    dealt = blocks_order(rows, block_size, seed)
    if num_shards > 1:
        # One row of the table is one row of each shard.
        dealt = np.arange(rows * num_shards).reshape(rows, num_shards)[dealt].reshape(-1)
    if dealt.size > len(layout):
        dealt %= len(layout)
    return np.take(files_order(layout, seed), dealt, out=dealt, mode="clip")


def contiguous_blocks(size: int, num_shards: int, offset: int) -> Ids:
    """Returns rows that give each shard a contiguous block if dealt in turn from shard `offset` on."""
    position = np.arange(size)
    shard = (position + offset) % num_shards
    lengths = np.bincount(shard, minlength=num_shards)
    return (np.cumsum(lengths) - lengths)[shard] + position // num_shards


_TIE = 1e-12


def random_concat(sizes: Ids, seed: int, epoch: int) -> Ids:
    """Draws, for each position, the part to read next, in proportion to the remaining samples of each part.

    The samples of a part are read in order. One generator is used for all epochs; in each epoch it draws once
    more than there are samples.

    Args:
        sizes: the number of samples in each part, int64 of shape (parts,).
        seed: the seed of the generator.
        epoch: the epoch, from 0.

    Returns:
        The sample ids, int64 of shape (sum of sizes,). Time: proportional to samples times parts.
    """
    total = int(sizes.sum())
    if sizes.size < 2:
        return np.arange(total)
    generator = Mt19937(seed)
    generator.skip(2 * (total + 1) * epoch)
    parts = np.empty(total, dtype=np.int32)
    remaining = sizes.tolist()
    for start in range(0, total, _CHUNK):
        numbers = canonical(generator, min(_CHUNK, total - start))
        parts[start : start + numbers.size] = _parts(remaining, total - start, numbers)
    ids = np.empty(total, dtype=np.int64)
    ids[np.argsort(parts, kind="stable")] = np.arange(total)
    return ids


def _parts(remaining: list[int], total: int, numbers: Floats) -> list[int]:
    """Draws parts; updates `remaining`, the remaining samples of each part, which are `total` together."""
    # The end of each part but the last one, which is known.
    ends = np.cumsum(remaining[:-1]).tolist()
    last = len(ends)
    totals = np.arange(total, total - numbers.size, -1)
    targets = numbers * totals
    rounded = np.ceil(targets).astype(np.int64)
    # All ends are integers: rounding matters only if a number is close to an integer.
    rounded[np.abs(targets - np.rint(targets)) < _TIE * total] = -1
    parts: list[int] = []
    for number in rounded.tolist():
        part = bisect_left(ends, number)
        if number < 0:
            place = len(parts)
            part = _draw_in_doubles([*ends, int(totals[place])], float(numbers[place]))
        parts.append(part)
        for later in range(part, last):
            ends[later] -= 1
    remaining[:] = np.diff([*ends, total - numbers.size], prepend=0).tolist()
    return parts


def _draw_in_doubles(ends: list[int], number: float) -> int:
    """Draws one part with the same rounding as `std::discrete_distribution`, which matters near borders."""
    remaining = np.diff(np.array(ends, dtype=np.float64), prepend=0.0)
    borders = np.cumsum(remaining / ends[-1])
    borders[-1] = 1.0
    part = int(np.searchsorted(borders, number, side="left"))
    # MindSpore never reads an exhausted part; only the number 0 could select one.
    while not remaining[part]:
        part += 1
    return part
