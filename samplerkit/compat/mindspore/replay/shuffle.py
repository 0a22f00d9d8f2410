"""GCC 9's `std::shuffle`, as a permutation that is made without a loop over the elements."""

from __future__ import annotations

from typing import Any

import numpy as np

from samplerkit.compat.mindspore.replay.distributions import uniform_integers
from samplerkit.compat.mindspore.replay.generators import Engine
from samplerkit.errors import NotSupportedError
from samplerkit.order.typing import Ids

_AT_ONCE = 1 << 16


def shuffle(size: int, generator: Engine) -> Ids:
    """Gives what `std::shuffle` makes of 0, 1, ..., size - 1.

    Args:
        size: how many elements, at most `generator.span`.
        generator: where the words come from; it is left behind the last word used.

    Returns:
        An array of integers of shape (size,); shuffling any array v gives v[result].

    Raises:
        NotSupportedError: there are more elements than the generator has words.

    Source: `bits/stl_algo.h` of libstdc++ 9.

    Example:
        >>> from samplerkit.compat.mindspore.replay.generators import Mt19937
        >>> shuffle(5, Mt19937(1)).tolist()
        [1, 0, 2, 3, 4]
    """
    if size > generator.span:
        raise NotSupportedError(
            "num_samples", f"MindSpore cannot shuffle more than {generator.span} samples", size
        )
    return swapped(swap_targets(size, generator))


def swap_targets(size: int, generator: Engine) -> Ids:
    """Gives with which element each one is swapped, from the first to the last; each target is at most i."""
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
