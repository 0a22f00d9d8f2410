"""Algorithms: by which rules a chain of samplers is evaluated, found by their ids."""

from __future__ import annotations

from functools import cache
from typing import Any, cast

from samplerkit import names
from samplerkit.errors import ArgumentValueError
from samplerkit.order import arguments
from samplerkit.samplers.chain import Chain, Link


@cache
def chain_type(algorithm: str) -> type[Chain]:
    """Gives the class that evaluates the chains of an algorithm; it is imported when first asked for."""
    return cast("type[Chain]", names.found(*names.ALGORITHMS[algorithm]))


def checked_algorithm(value: Any, sampler: Link) -> str:
    """Takes the id of an algorithm for a sampler whose other arguments are set.

    Raises:
        ArgumentTypeError: no string.
        ArgumentValueError: not known; or an argument of the sampler is not one that the algorithm knows.
    """
    if arguments.text("algorithm", value) not in names.ALGORITHMS:
        known = ", ".join(names.ALGORITHMS)
        raise ArgumentValueError("algorithm", "is not known", value, mend=f"known: {known}")
    chain_type(value).check(sampler)
    return str(value)
