"""GCC 9's `std::shuffle` without a loop over the elements, shuffled epochs, and weighted draws."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from samplerkit.compat.mindspore.generators import Engine, canonical, uniform_integers
from samplerkit.errors import NotSupportedError
from samplerkit.order.sequences import Table
from samplerkit.order.typing import Ids

_AT_ONCE = 1 << 16


def shuffle(size: int, generator: Engine) -> Ids:
    """Returns what `std::shuffle` makes of 0, 1, ..., size - 1.

    Args:
        size: how many elements, at most `generator.span`.
        generator: where the words come from; it is left behind the last word used.

    Returns:
        An array of integers of shape (size,); shuffling any array v gives v[result].

    Raises:
        NotSupportedError: there are more elements than the generator has words.

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
    """Returns the element with which each one is swapped, in turn; each target is at most i."""
    targets = np.zeros(size, dtype=np.int64)
    if size < 2:
        return targets
    if generator.span // size < size:
        for start in range(1, size, _AT_ONCE):
            part = targets[start : start + _AT_ONCE]
            part[:] = uniform_integers(generator, np.arange(start + 1, start + 1 + part.size))
        return targets
    # One word serves two swaps: a number below a * (a + 1) is one below a and one below a + 1.
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

    No swap before the i-th touches element i. So the i-th swap brings the number i to its target, and brings
    to place i what stood there: the number of the last swap before that had the same target, or, if there
    was none, what the target's own swap brought to it. These are links to earlier swaps, which are followed
    all at once, twice as far in each pass.

    Args:
        targets: int64 array of shape (n,), 0 <= targets[i] <= i; it is used up.

    Returns:
        An array of integers of shape (n,), of 32 bits where they suffice.

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
    # What comes to a place: a number, or ~place for what came to an earlier place.
    source: Ids = np.empty(size, dtype=kind)
    np.invert(targets, out=source, casting="same_kind")
    np.copyto(source[1:], swaps[:-1], where=~is_last[:-1])
    np.copyto(source, swaps, where=swaps == targets)
    brought: Ids = np.empty(size, dtype=kind)
    brought[swaps] = source
    del source
    numbers = swaps[is_last]
    del swaps
    places = targets[is_last]
    del targets, is_last
    unknown = np.flatnonzero(brought < 0)
    while unknown.size:
        found = brought[~brought[unknown]]
        brought[unknown] = found
        unknown = unknown[found < 0]
    brought[places] = numbers
    return brought


Weights = np.ndarray[Any, np.dtype[np.float64]]


def weighted_draws(weights: Weights, count: int, generator: Engine) -> Ids:
    """Draws ids with replacement, as `std::discrete_distribution` does.

    Args:
        weights: float64 array of shape (n,), none negative, not all zero.
        count: how many draws.
        generator: where the words come from; two for each draw, none if there is one weight only.

    Returns:
        int64 array of shape (count,).

    Source: `bits/random.tcc` of libstdc++ 9.
    """
    drawn = np.zeros(count, dtype=np.int64)
    if weights.size == 1:
        return drawn
    # Not `sum`, which adds pairs of pairs: the last bit of each number counts here.
    borders = np.cumsum(weights)
    np.divide(weights, borders[-1], out=borders)
    np.cumsum(borders, out=borders)
    borders[-1] = 1.0
    for start in range(0, count, _AT_ONCE):
        numbers = canonical(generator, min(_AT_ONCE, count - start))
        # In ascending order, neighbours look at the same borders, which are in the processor's cache then.
        ascending = np.argsort(numbers)
        drawn[start + ascending] = np.searchsorted(borders, numbers[ascending], side="left")
    return drawn


def weighted_distinct(weights: Weights, count: int, generator: Engine) -> Ids:
    """Draws distinct ids: those whose exponential waiting times, by rate, are the shortest.

    Args:
        weights: float64 array of shape (n,), none negative.
        count: how many ids, at most n.
        generator: where the words come from, two for each weight.

    Returns:
        int64 array of shape (count,), by waiting time.

    Source: Efraimidis and Spirakis, "Weighted random sampling with a reservoir" (2006).
    """
    waiting = np.empty(weights.size)
    for start in range(0, weights.size, _AT_ONCE):
        part = waiting[start : start + _AT_ONCE]
        np.log(1.0 - canonical(generator, part.size), out=part)
    np.negative(waiting, out=waiting)
    with np.errstate(divide="ignore"):
        waiting /= weights
    return np.argsort(waiting, kind="stable")[:count]


# Without a lock, which a child forked while it is held would wait for: two threads may arrange the same ids.
_tables: WeakValueDictionary[tuple[Hashable, int], Table] = WeakValueDictionary()


def carried(name: Hashable, epoch: int, arrange: Callable[[int, int], Ids]) -> Table:
    """Returns the ids of an epoch, each epoch arranged out of the ids of the one before.

    The work starts at the latest earlier epoch that is still referenced; without one it starts at
    epoch 0, so that epoch e costs e + 1 arrangements. Nothing is kept here.

    Args:
        name: distinguishes this sequence of epochs from all others.
        epoch: the epoch, from 0.
        arrange: given the epoch, and how many ids there were in the one before (0 for epoch 0), gives which
            of those comes when.

    Returns:
        The ids of the epoch.
    """
    start, table = _latest_held(name, epoch) or (0, _table(arrange(0, 0)))
    for number in range(start + 1, epoch + 1):
        table = _table(table.ids_at(arrange(number, len(table))))
    _tables[name, epoch] = table
    return table


def _latest_held(name: Hashable, epoch: int) -> tuple[int, Table] | None:
    for number in range(epoch, -1, -1):
        table = _tables.get((name, number))
        if table is not None:
            return number, table
    return None


def _table(ids: Ids) -> Table:
    # A read-only array is kept as it is, and not copied.
    ids.flags.writeable = False
    return Table(ids)
