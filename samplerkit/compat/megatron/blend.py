"""Which source each position of a blend reads: always the one that lags furthest behind its weight.

That is a rule from position to position, and Python's loop over all of them takes minutes. But what a source
has got by some position is nearly its weight times the position, and the rule forgets within a few positions
from which counts it began. So some thousand stretches are run side by side from guessed counts, and a
stretch counts only where it began with exactly what the one before it left; else it is run again.

All is done in doubles, product and difference rounded each for itself: with a fused multiply-add, as some
compilers write it, more than a third of blends come out otherwise.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from samplerkit.order.typing import Ids

_Floats = npt.NDArray[np.float64]
_Sources = npt.NDArray[np.int16]

MOST_SOURCES = 32766
"""As many as a 16-bit number can number over there."""

_SHORTEST = 1024
_FEWEST = 8
_MOST_STRETCHES = 4096
_RUN_IN = 64
"""Positions in which a stretch forgets its guessed counts."""

_ROUNDS = 4
_FEW = 32
"""So many wrong stretches are run one by one at once."""


def blended(
    weights: _Floats, length: int, sizes: Ids | None = None, *, shortest: int = _SHORTEST
) -> _Sources:
    """Returns the source that each position reads.

    Args:
        weights: float64 array of shape (sources,), positive, that sums up to 1.
        length: the number of positions.
        sizes: how often each source can be read; None for any number of times.
        shortest: positions of a stretch, at least.

    Returns:
        int16 array of shape (length,).

    Example:
        >>> blended(np.array([0.5, 0.25, 0.25]), 8).tolist()
        [0, 1, 2, 0, 0, 1, 2, 0]
    """
    most = None if sizes is None else sizes.astype(np.float64)
    stretches = min(_MOST_STRETCHES, length // shortest)
    if stretches < _FEWEST:
        return _one_by_one(weights, np.zeros(weights.size), range(length), most)[0]
    steps = -(-length // stretches)
    stretches = -(-length // steps)
    begins = np.arange(stretches) * steps
    firsts = np.zeros((weights.size, stretches))
    guessed = _guessed(weights, begins[1:] - _RUN_IN, most)
    firsts[:, 1:] = _side_by_side(weights, begins[1:] - _RUN_IN, guessed, _RUN_IN, most)[1]
    read, ends = _side_by_side(weights, begins, firsts, steps, most)
    for _ in range(_ROUNDS):
        wrong = np.flatnonzero((firsts[:, 1:] != ends[:, :-1]).any(axis=0)) + 1
        if wrong.size <= _FEW:
            break
        firsts[:, wrong] = ends[:, wrong - 1]
        again = _side_by_side(weights, begins[wrong], firsts[:, wrong], steps, most)
        read[:, wrong], ends[:, wrong] = again
    left = ends[:, 0]
    for number in range(1, stretches):
        if (firsts[:, number] != left).any():
            positions = range(number * steps, min((number + 1) * steps, length))
            found, ends[:, number] = _one_by_one(weights, left, positions, most)
            read[: found.size, number] = found
        left = ends[:, number]
    return read.T.reshape(-1)[:length]


def turns(sources: _Sources) -> Ids:
    """Returns how often the source of each position was read before.

    Example:
        >>> turns(np.array([0, 1, 2, 0, 0], dtype=np.int16)).tolist()
        [0, 0, 0, 1, 2]
    """
    by_source = np.argsort(sources, kind="stable")  # of 16-bit integers: by radix
    counts = np.bincount(sources)
    numbers = np.arange(sources.size)
    numbers -= np.repeat(np.cumsum(counts) - counts, counts)
    found = np.empty_like(numbers)
    found[by_source] = numbers
    return found


def _one_by_one(
    weights: _Floats, counts: _Floats, positions: range, sizes: _Floats | None
) -> tuple[_Sources, _Floats]:
    """Runs positions one after another; gives their sources, and the counts behind them."""
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


def _side_by_side(
    weights: _Floats, begins: Ids, counts: _Floats, steps: int, sizes: _Floats | None
) -> tuple[_Sources, _Floats]:
    """Runs stretches of positions, all by one position at a time.

    Args:
        weights: of shape (sources,).
        begins: the first position of each stretch, of shape (stretches,).
        counts: how often each source was read before, of shape (sources, stretches), infinity for one that is
            out.
        steps: positions of a stretch.
        sizes: how often each source can be read, of shape (sources,).

    Returns:
        The sources, int16 of shape (steps, stretches), and the counts behind them.
    """
    # Of one layout, whatever the caller cut it from: what is written to `flat` must be in `counts`.
    counts = np.array(counts, order="C")
    read = np.empty((steps, begins.size), dtype=np.int16)
    factors, lags, column = begins.astype(np.float64), np.empty_like(counts), weights[:, None]
    largest, is_larger = np.empty(begins.size), np.empty(begins.size, dtype=bool)
    # Of numbers that ascend the last one is the largest: products and maxima take a fifth of masked copies.
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
        after = flat[chosen] + 1
        if sizes is not None:
            after[after >= sizes[source]] = np.inf
        flat[chosen] = after
        factors += 1
    return read, counts


def _guessed(weights: _Floats, positions: Ids, sizes: _Floats | None) -> _Floats:
    """Guesses how often each source was read before some positions; each column sums up to its position."""
    due: Any = weights[:, None] * positions
    counts: _Floats = np.floor(due)
    # What the floors leave goes to the largest remainders.
    missing = positions - counts.sum(axis=0)
    ranks = np.argsort(np.argsort(counts - due, axis=0, kind="stable"), axis=0)
    counts += ranks < missing
    if sizes is not None:
        counts[counts >= sizes[:, None]] = np.inf
    return counts
