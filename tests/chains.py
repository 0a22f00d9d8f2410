"""Samplers below others."""

from typing import Any, TypeVar

import samplerkit as sk

S = TypeVar("S", bound=sk.Sampler)


def under(parent: S, child: Any) -> S:
    """Adds a child to a sampler, and returns the sampler."""
    parent.add_child(child)
    return parent
