"""The number of samples in each shard, as given or indexed, and its check against loaded indexes."""

import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

import numpy as np

from samplerkit.errors import DatasetError
from samplerkit.order.dataset_protocol import fingerprint_of
from samplerkit.order.layout import Layout
from samplerkit.order.typing import Ids
from samplerkit.storage.files.stored import Stored
from samplerkit.storage.ids import by_file
from samplerkit.storage.open_files import AbsentError, open_at_most
from samplerkit.storage.tar.format.flaws import HINTS, Flaw, Skipped
from samplerkit.storage.tar.index.index import Index, split_between

MAX_INDEXES = 4096
"""Indexes that a process keeps mapped, if the system allows as many open files: Python keeps the file of each
map open. Only used pages take memory."""


@dataclass(frozen=True, eq=False)
class Contents:
    """The samples in the shards of a dataset.

    Args:
        layout: the number of samples in each shard.
        counts: the number of samples that the index of each shard must have, shape (shards,).
        firsts: the first sample of each shard in its index, shape (shards,): 1 after a split sample that is
            skipped, otherwise 0.
        fingerprint: a string that changes with the samples.
        skipped: the skipped flaws that are known.
        is_given: whether the lengths were given, and indexes were not read.
    """

    layout: Layout
    counts: Ids
    firsts: Ids
    fingerprint: str
    skipped: Skipped
    is_given: bool = False

    def split(self, ids: Ids) -> dict[int, tuple[Ids, Ids]]:
        """Groups ids by shard: returns for each the rows in its index, and their positions among the ids."""
        parts = by_file(self.layout, ids).items()
        return {number: (rows + self.firsts[number], places) for number, (rows, places) in parts}


def contents_of_lengths(names: tuple[str, ...], lengths: list[int]) -> Contents:
    """Returns the contents for given lengths; the fingerprint depends on lengths and names of shards."""
    fingerprint = fingerprint_of("lengths", names, lengths)
    layout = Layout(lengths, names)
    firsts = np.zeros_like(layout.sizes)
    return Contents(layout, layout.sizes, firsts, fingerprint, Skipped(()), is_given=True)


class LoadedIndexes:
    """The loaded indexes of shards by number; the least recently used ones are dropped.

    It is thread-safe. If flaws are skipped, a shard may have fewer samples than its given length: its samples
    then count as the first ones, and the others are missing.
    """

    def __init__(self, names: tuple[str, ...], contents: Contents, *, skips: bool) -> None:
        self._names = names
        self._contents = contents
        self._skips = skips
        self._lock = threading.Lock()
        self._max_indexes = open_at_most(MAX_INDEXES, 0.4)
        self._indexes: OrderedDict[int, Index] = OrderedDict()
        self._archives: dict[int, Stored] = {}
        # For each shard, ranges of missing rows: by the first row, the end and the error.
        self._missing: dict[int, dict[int, tuple[int, AbsentError]]] = {}
        self._split_flaws: dict[int, Flaw] = {}

    @property
    def skipped(self) -> Skipped:
        """The skipped flaws of the shards whose indexes are loaded."""
        with self._lock:
            flaws = (flaw for index in self._indexes.values() for flaw in index.skipped.places)
            return Skipped((*flaws, *self._split_flaws.values()))

    def get(self, number: int) -> Index | None:
        """Returns the index of a shard, or None if it is not loaded."""
        with self._lock:
            index = self._indexes.get(number)
            if index is not None:
                self._indexes.move_to_end(number)
            return index

    def add(self, number: int, index: Index) -> Index:
        """Adds an index, and returns it.

        Raises:
            DatasetError: the shard has another version than before, or a wrong number of samples.
        """
        expected = int(self._contents.counts[number])
        if not index.is_missing:
            self._check(number, index, expected)
        with self._lock:
            self._indexes[number] = index
            self._indexes.move_to_end(number)
            if index.num_samples < expected:
                error = _missing_error(self._names[number], index, expected)
                self._missing.setdefault(number, {})[index.num_samples] = expected, error
            if len(self._indexes) > self._max_indexes:
                self._indexes.popitem(last=False)
        if self._contents.is_given:
            self._check_neighbours(number)
        return index

    def present(self, number: int, rows: Ids, places: Ids, samples: Any) -> tuple[Ids, Ids]:
        """Puts errors in the positions of missing samples, and returns the remaining rows and positions.

        Args:
            number: the number of a shard whose index was added.
            rows: the rows of samples in the shard.
            places: the position of each in `samples`.
            samples: a list or dict that receives the errors.

        Raises:
            AbsentError: a sample is split over two shards, and flaws are not skipped.
        """
        with self._lock:
            missing = dict(self._missing.get(number, {}))
        if not missing:
            return rows, places
        is_present = np.ones(rows.size, dtype=bool)
        for begin, (stop, error) in missing.items():
            for at in np.flatnonzero((rows >= begin) & (rows < stop)).tolist():
                if not self._skips:
                    raise error.with_traceback(None)
                samples[int(places[at])], is_present[at] = error, False
        return rows[is_present], places[is_present]

    def _check(self, number: int, index: Index, expected: int) -> None:
        is_changed = self._archives.setdefault(number, index.archive) != index.archive
        if is_changed or (index.num_samples != expected and not self._contents.is_given):
            raise index.archive.changed()
        if index.num_samples > expected or (index.num_samples < expected and not self._skips):
            hint = "correct lengths, or leave them out to have the shards indexed"
            problem = f"has {index.num_samples} samples, but {expected} were given"
            raise DatasetError(self._names[number], problem, hint=hint)

    def _check_neighbours(self, number: int) -> None:
        """Looks for samples that are split over a shard and its neighbours, if their indexes are loaded."""
        for at in (number - 1, number):
            with self._lock:
                index, later = self._indexes.get(at), self._indexes.get(at + 1)
            if index is None or later is None or (flaw := split_between(index, later)) is None:
                continue
            with self._lock:
                if self._skips:
                    self._split_flaws[at] = flaw
                for shard, row in ((at, index.num_samples - 1), (at + 1, 0)):
                    error = AbsentError(self._names[shard], flaw.problem, hint=HINTS[flaw.reason])
                    self._missing.setdefault(shard, {}).setdefault(row, (row + 1, error))


def _missing_error(name: str, index: Index, expected: int) -> AbsentError:
    """Returns the error for the samples that a shard lacks, with the reason."""
    num_missing = expected - index.num_samples
    amount = f"all {expected}" if num_missing == expected else f"{num_missing} of the {expected}"
    # Without flaws, the lengths may be of other shards.
    reason = "it has no others"
    hint = "correct lengths, or leave them out to have the shards indexed"
    if index.skipped.places:
        flaw = index.skipped.places[0]
        reason, hint = flaw.problem, HINTS.get(flaw.reason, "fetch or make the archive again")
    return AbsentError(name, f"lacks {amount} samples that were given ({reason})", hint=hint)
