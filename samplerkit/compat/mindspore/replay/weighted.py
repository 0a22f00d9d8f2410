"""Draws by weight, as MindSpore makes them of doubles."""

from __future__ import annotations

from typing import Any

import numpy as np

from samplerkit.compat.mindspore.replay.distributions import canonical
from samplerkit.compat.mindspore.replay.generators import Engine
from samplerkit.order.typing import Ids

_AT_ONCE = 1 << 16

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
