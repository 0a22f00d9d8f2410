"""Whether two chains say the same, so that orders which they make anew are equal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from samplerkit.order.layout import Layout
from samplerkit.samplers.links import Linked


def read_alike(one: Any, dataset: Any, other: Any, others_dataset: Any) -> bool:
    """Tells whether two samplers, or None for both, are known to read two datasets in the same order."""
    if dataset is not others_dataset:
        if Layout.of(dataset) != Layout.of(others_dataset):
            return False
        looked, others = (
            [] if root is None else [link.looks_at(of) for link in root._links()]
            for root, of in ((one, dataset), (other, others_dataset))
        )
        if not say_the_same(looked, others):
            return False
    return say_the_same(one, other)


def say_the_same(one: Any, other: Any) -> bool:
    """Tells whether two chains, or values in them, are known to say the same.

    The class of a user's may hold what its arguments do not say, so that it is like itself alone.

    Example:
        >>> import samplerkit as sk
        >>> say_the_same(sk.RandomSampler(seed=1), sk.RandomSampler(seed=1))
        True
        >>> say_the_same(sk.RandomSampler(seed=1), sk.RandomSampler(seed=2))
        False
    """
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    if isinstance(one, Linked):
        mine, others = one._links(), other._links()
        return len(mine) == len(others) and all(map(_link_says_the_same, mine, others))
    if isinstance(one, Mapping):
        return [*one] == [*other] and all(map(say_the_same, one.values(), other.values()))
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(say_the_same, one, other))
    return np.array_equal(one, other) if isinstance(one, np.ndarray) else bool(one == other)


def _link_says_the_same(one: Linked, other: Linked) -> bool:
    if one is other:
        return True
    is_ours = type(one).__module__.startswith("samplerkit.")
    return is_ours and type(one) is type(other) and say_the_same(one.arguments(), other.arguments())
