"""Samplers as plain data that a line of JSON keeps, and back."""

from __future__ import annotations

import os
from collections.abc import Mapping
from enum import Enum
from typing import Any

import numpy as np

from samplerkit import names
from samplerkit.errors import ArgumentValueError, NotSupportedError
from samplerkit.samplers.base import Sampler

_CLASS, _CHILD = "class", "child"


def plain(sampler: Sampler, place: str) -> dict[str, Any]:
    """Gives the class and the arguments of each link of a chain, and of its branches.

    Args:
        sampler: the outermost link.
        place: for errors.

    Raises:
        NotSupportedError: an argument is an object that JSON does not know.

    Example:
        >>> import samplerkit as sk
        >>> kept = plain(sk.SequentialSampler(start_index=3), "source")
        >>> kept
        {'class': 'SequentialSampler', 'start_index': 3, 'num_samples': None}
        >>> sampler_of(kept)
        SequentialSampler(start_index=3, num_samples=None)
    """
    told: dict[str, Any] = {}
    for link in reversed(sampler._links()):
        of_link = {name: _plain(value, f"{place}.{name}") for name, value in link.arguments().items()}
        told = {_CLASS: _named(type(link)), **of_link, **({_CHILD: told} if told else {})}
    return told


def sampler_of(told: Mapping[str, Any]) -> Sampler:
    """Makes the chain of which `plain` tells.

    Raises:
        ArgumentValueError: it is of a class that is not samplerkit's own. Nothing is imported by name.
    """
    links = [told]
    while _CHILD in links[-1]:
        links.append(links[-1][_CHILD])
    made: Sampler | None = None
    for link in reversed(links):
        named = link.get(_CLASS)
        found = names.PUBLIC.get(named) if isinstance(named, str) else None
        if named is None or found is None or not found.startswith("samplers."):
            mend = "give the edits from Python, or in a config"
            raise ArgumentValueError(_CLASS, "is no sampler of samplerkit's own", named, mend=mend)
        given = {name: _given(value) for name, value in link.items() if name not in (_CLASS, _CHILD)}
        sampler: Sampler = names.found(found, named)(**given)
        sampler.add_child(made)
        made = sampler
    assert made is not None  # noqa: S101  # there is a first link
    return made


def _named(kind: type[Sampler]) -> str:
    is_ours = names.PUBLIC.get(kind.__name__) == kind.__module__.removeprefix("samplerkit.")
    return kind.__name__ if is_ours else f"{kind.__module__}.{kind.__qualname__}"


def _plain(value: Any, place: str) -> Any:
    if isinstance(value, Sampler):
        return plain(value, place)
    if isinstance(value, Mapping):
        return {str(name): _plain(one, f"{place}.{name}") for name, one in value.items()}
    if isinstance(value, np.ndarray | list | tuple | range):
        return [_plain(one, place) for one in (value.tolist() if isinstance(value, np.ndarray) else value)]
    value = value.value if isinstance(value, Enum) else value
    value = os.fspath(value) if isinstance(value, os.PathLike) else value
    if value is None or isinstance(value, str | int | float):
        return value
    problem = "is an object of which no edit can keep what it says"
    raise NotSupportedError(place, problem, value, mend="give a sampler whose arguments are plain values")


def _given(value: Any) -> Any:
    if isinstance(value, dict):
        is_chain = _CLASS in value
        return sampler_of(value) if is_chain else {name: _given(one) for name, one in value.items()}
    return value
