"""Computes the source of each position of a blend: always the source that lags furthest behind its weight.

Each position depends on the one before, and a Python loop over all of them takes minutes. But the count of a
source at a position is nearly its weight times the position, and within a few positions the rule no longer
depends on the counts that it began with. So some thousand stretches are computed in parallel from guessed
counts. A stretch is kept only if it began with exactly the counts at which the one before it ended; otherwise
it is computed again, position by position.

All arithmetic is in doubles, and product and difference are rounded separately: with a fused multiply-add, as
some compilers generate it, more than a third of blends are different.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from samplerkit.order.intervals import groups
from samplerkit.order.typing import Ids

_Floats = npt.NDArray[np.float64]
_Sources = npt.NDArray[np.int16]

MAX_SOURCES = 32766
"""The largest number of sources, which Megatron numbers in 16 bits."""

_SHORTEST = 1024
"""The smallest number of positions of a stretch."""

_FEWEST = 8
_MAX_STRETCHES = 4096
_WARM_UP = 64
"""The number of positions after which a stretch no longer depends on its guessed counts."""


def blended(weights: _Floats, length: int, sizes: Ids | None = None) -> _Sources:
    """Returns the source that each position reads.

    Args:
        weights: positive float64 array of shape (sources,) with sum 1.
        length: the number of positions.
        sizes: how often each source can be read; None for no limit.

    Returns:
        int16 array of shape (length,).

    Example:
        >>> blended(np.array([0.5, 0.25, 0.25]), 8).tolist()
        [0, 1, 2, 0, 0, 1, 2, 0]
    """
    most = None if sizes is None else sizes.astype(np.float64)
    stretches = min(_MAX_STRETCHES, length // _SHORTEST)
    if stretches < _FEWEST:
        return _sequential(weights, np.zeros(weights.size), range(length), most)[0]
    steps = -(-length // stretches)
    stretches = -(-length // steps)
    begins = np.arange(stretches) * steps
    firsts = np.zeros((weights.size, stretches))
    guessed = _guess_counts(weights, begins[1:] - _WARM_UP, most)
    firsts[:, 1:] = _parallel(weights, begins[1:] - _WARM_UP, guessed, _WARM_UP, most)[1]
    read, ends = _parallel(weights, begins, firsts, steps, most)
    counts = ends[:, 0]
    for number in range(1, stretches):
        if (firsts[:, number] != counts).any():
            positions = range(number * steps, min((number + 1) * steps, length))
            sources, ends[:, number] = _sequential(weights, counts, positions, most)
            read[: sources.size, number] = sources
        counts = ends[:, number]
    return read.T.reshape(-1)[:length]


def read_counts(sources: _Sources) -> Ids:
    """Returns how often the source of each position was read before.

    Example:
        >>> read_counts(np.array([0, 1, 2, 0, 0], dtype=np.int16)).tolist()
        [0, 0, 0, 1, 2]
    """
    read_before = np.empty(sources.size, dtype=np.int64)
    for _, at in groups(sources.astype(np.int64)):
        read_before[at] = np.arange(at.size)
    return read_before


def _sequential(
    weights: _Floats, counts: _Floats, positions: range, sizes: _Floats | None
) -> tuple[_Sources, _Floats]:
    """Computes positions one after another; returns their sources and the counts after them."""
    shares, read = weights.tolist(), counts.tolist()
    most = [np.inf] * weights.size if sizes is None else sizes.tolist()
    sources = np.empty(len(positions), dtype=np.int16)
    for place, position in enumerate(positions):
        factor = float(max(position, 1))
        lags = [share * factor - count for share, count in zip(shares, read, strict=True)]
        source = lags.index(max(lags))
        sources[place] = source
        read[source] += 1
        if read[source] >= most[source]:
            read[source] = np.inf
    return sources, np.array(read)


def _parallel(
    weights: _Floats, begins: Ids, counts: _Floats, steps: int, sizes: _Floats | None
) -> tuple[_Sources, _Floats]:
    """Computes stretches in parallel, one position of all of them at a time.

    Args:
        weights: the weights, shape (sources,).
        begins: the first position of each stretch, shape (stretches,).
        counts: how often each source was read before, shape (sources, stretches), infinity if it is used up.
        steps: the number of positions of a stretch.
        sizes: how often each source can be read, shape (sources,).

    Returns:
        The sources, int16 of shape (steps, stretches), and the counts after them.
    """
    # A contiguous copy, so that `flat` is a view of `counts`.
    counts = np.array(counts, order="C")
    read = np.empty((steps, begins.size), dtype=np.int16)
    factors, lags, column = begins.astype(np.float64), np.empty_like(counts), weights[:, None]
    largest, is_larger = np.empty(begins.size), np.empty(begins.size, dtype=bool)
    # The source is the last number at which `largest` grew. Numbers ascend, so a maximum finds it, in a fifth
    # of the time of masked copies.
    kind = np.dtype(np.uint8 if weights.size <= 1 << 8 else np.int16)
    source, larger_number = np.empty((2, begins.size), dtype=kind)
    flat, columns = counts.reshape(-1), np.arange(begins.size)
    for step in range(steps):
        np.multiply(column, np.maximum(factors, 1), out=lags)
        np.subtract(lags, counts, out=lags)
        source[:] = 0
        largest[:] = lags[0]
        for number in range(1, weights.size):
            np.greater(lags[number], largest, out=is_larger)
            np.multiply(is_larger.view(np.uint8), kind.type(number), out=larger_number)
            np.maximum(source, larger_number, out=source)
            np.maximum(lags[number], largest, out=largest)
        read[step] = source
        chosen = source.astype(np.int64) * begins.size + columns
        new_counts = flat[chosen] + 1
        if sizes is not None:
            new_counts[new_counts >= sizes[source]] = np.inf
        flat[chosen] = new_counts
        factors += 1
    return read, counts


def _guess_counts(weights: _Floats, positions: Ids, sizes: _Floats | None) -> _Floats:
    """Guesses how often each source was read before some positions; each column sums to its position."""
    expected: Any = weights[:, None] * positions
    counts: _Floats = np.floor(expected)
    # The counts that rounding down leaves over go to the largest remainders.
    missing = positions - counts.sum(axis=0)
    ranks = np.argsort(np.argsort(counts - expected, axis=0, kind="stable"), axis=0)
    counts += ranks < missing
    if sizes is not None:
        counts[counts >= sizes[:, None]] = np.inf
    return counts
