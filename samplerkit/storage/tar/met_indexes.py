"""The indexes that a process has met, each held against what was told of its shard."""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from typing import final

from samplerkit.errors import DatasetError
from samplerkit.storage.tar.contents import Contents
from samplerkit.storage.tar.flaws import Flaw, Skipped
from samplerkit.storage.tar.index import Index
from samplerkit.storage.tar.joining import edge, split_between

MOST_INDEXES = 4096
"""Indexes that a process has at hand; they are mapped, so they take memory as far as they are used."""


@final
class MetIndexes:
    """The indexes of shards, by number; the least recently used ones are let go.

    It can be used by several threads.

    Args:
        names: of the shards.
        contents: what lies in them, as it was told or indexed.
    """

    def __init__(self, names: tuple[str, ...], contents: Contents) -> None:
        self._names = names
        self._contents = contents
        self._lock = threading.Lock()
        self._indexes: OrderedDict[int, Index] = OrderedDict()
        self._versions: dict[int, tuple[int, int | str]] = {}

    @property
    def skipped(self) -> Skipped:
        """What is left out in the shards whose indexes are here."""
        with self._lock:
            met = list(self._indexes.values())
        flaws: list[Flaw] = [flaw for index in met for flaw in index.flaws]
        return Skipped.of(flaws, sum((Counter(index.counts) for index in met), Counter[str]()))

    def get(self, number: int) -> Index | None:
        """Gives the index of a shard, if it is here."""
        with self._lock:
            found = self._indexes.get(number)
            if found is not None:
                self._indexes.move_to_end(number)
            return found

    def add(self, number: int, index: Index) -> Index:
        """Takes an index, and gives it back.

        Raises:
            DatasetError: the shard has another version than before, or another number of samples than it
                must; or one of its samples goes on in the next shard.
        """
        name, told = self._names[number], int(self._contents.counts[number])
        version = (index.archive.size, index.archive.version)
        if self._versions.setdefault(number, version) != version:
            raise index.archive.changed()
        if index.num_samples != told and not self._contents.is_told:
            raise index.archive.changed()
        if index.num_samples != told:
            mend = "correct lengths, or leave them out to have the shards indexed"
            raise DatasetError(name, f"has {index.num_samples} samples, but {told} were told", mend=mend)
        with self._lock:
            self._indexes[number] = index
            self._indexes.move_to_end(number)
            if len(self._indexes) > MOST_INDEXES:
                self._indexes.popitem(last=False)
        if self._contents.is_told:
            self._check_neighbours(number)
        return index

    def _check_neighbours(self, number: int) -> None:
        """Looks for a sample that is split over a shard and one beside it, if their indexes are here."""
        for at in (number - 1, number):
            with self._lock:
                one, other = self._indexes.get(at), self._indexes.get(at + 1)
            if one is not None and other is not None:
                split = split_between(edge(one, one.num_samples - 1), edge(other, 0), self._names[at])
                if split is not None:
                    raise Flaw(self._names[at + 1], *split).error()
