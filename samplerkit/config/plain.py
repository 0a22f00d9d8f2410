"""From any mapping to plain data: dicts with string keys, lists, numbers, strings, bools and None."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any

import numpy as np

from samplerkit.config.place import below
from samplerkit.config.private import public
from samplerkit.errors import ConfigError

DEEPEST = 256
"""How deep a config may be nested: a hundred samplers in LightningCLI's two levels each, and some."""

MOST_REPEATS = 10_000_000
"""How many values a config may hold because lists or mappings stand in it more than once."""

_BYTES_AND_STRINGS = (str, bytes, bytearray, memoryview, Enum, np.generic)
_AS_THEY_ARE = frozenset({int, float, str, bool, type(None), np.ndarray})


def plain(section: Mapping[Any, Any], place: str = "") -> dict[str, Any]:
    """Copies a mapping as plain data.

    Numpy numbers become Python's, members of an enum their values, paths strings; other sequences lists,
    other mappings dicts. Numpy arrays stay.

    Args:
        section: a dict, or what is like one, for instance OmegaConf's.
        place: the path of the mapping.

    Raises:
        ConfigError: a key is no string, or the data contains itself, is nested too deeply, or is a few
            lists that repeat one another into something huge.

    Example:
        >>> plain({"indices": (np.int64(3), 4), "shuffle": {}})
        {'indices': [3, 4], 'shuffle': {}}
    """
    copied: dict[str, Any] = _Copy().of(section, place)
    return copied


class _Copy:
    """One copying of a tree of mappings and sequences."""

    def __init__(self) -> None:
        self._open: set[int] = set()
        self._size = 0
        self._repeats = 0
        # What was copied is kept here, so that its id is not given to something else meanwhile.
        self._done: dict[int, tuple[Any, Any, int]] = {}

    def of(self, value: Any, place: str) -> Any:
        """Copies one value."""
        self._size += 1
        if type(value) in _AS_THEY_ARE:
            return value
        if isinstance(value, Mapping | Sequence) and not isinstance(value, _BYTES_AND_STRINGS):
            return self._container(value, place)
        if isinstance(value, Enum):
            return value.value
        if isinstance(value, np.generic):
            return value.item()
        return os.fspath(value) if isinstance(value, os.PathLike) else value

    def _container(self, value: Any, place: str) -> Any:
        if id(value) in self._open:
            raise ConfigError(place, "contains itself", mend="write it out where it is needed again")
        if id(value) in self._done:
            _, copied, size = self._done[id(value)]
            self._repeats += size
            if self._repeats > MOST_REPEATS:
                raise ConfigError(
                    place, f"repeats more than {MOST_REPEATS} values", mend="keep long lists in .npy files"
                )
            self._size += size
            return copied
        if len(self._open) == DEEPEST:
            raise ConfigError(place[:100], f"is nested more than {DEEPEST} levels deep")
        before = self._size
        self._open.add(id(value))
        copied = self._mapping(value, place) if isinstance(value, Mapping) else self._list(value, place)
        self._open.remove(id(value))
        self._done[id(value)] = (value, copied, self._size - before)
        return copied

    def _mapping(self, mapping: Mapping[Any, Any], place: str) -> dict[str, Any]:
        copied = {}
        for key, value in mapping.items():
            if not isinstance(key, str):
                raise ConfigError(
                    place or "config", "has a key that is no string", public("", key), mend="quote the key"
                )
            copied[str(key)] = self.of(value, below(place, key))
        return copied

    def _list(self, entries: Sequence[Any], place: str) -> list[Any]:
        self._size += len(entries)
        return [
            entry if type(entry) in _AS_THEY_ARE else self.of(entry, below(place, number))
            for number, entry in enumerate(entries)
        ]
