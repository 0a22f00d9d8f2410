"""The history of a run: all samples that it has read, in the order in which they were read, as an order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, final

import numpy as np

from samplerkit.errors import ArgumentTypeError, InverseTooLargeError, OutOfDatasetError, StateError
from samplerkit.loading.run.run import Run
from samplerkit.loading.state.state import EpochsRead, Past, State
from samplerkit.order import arguments
from samplerkit.order.caching import Latest, cached_property
from samplerkit.order.intervals import edges_of, groups, interval_of
from samplerkit.order.layout import Layout
from samplerkit.order.order import Located, Order
from samplerkit.order.sequences import Table
from samplerkit.order.typing import Ids

MAX_MARKED = 1 << 30
"""The largest dataset of which `unread` marks each sample, in a byte."""

_ORDERS_CACHED = 4


@final
@dataclass(frozen=True, eq=False, repr=False)
class History(Order):
    """All samples that a run has read up to a state, as an order: position i is the id that was read i-th.

    It has indexing, slices, `positions_of` and `count`. Nothing was logged: a state says which parts of which
    epochs all ranks together have read, and the orders of these epochs give the ids. The samples of one step
    are in the order of the epoch, not rank by rank. Pads, and samples that `tail="drop"` left out, are not in
    it; samples that `bad_samples="skip"` left out are.

    With `batches`, a batch is found by counting the samples of all batches before it, once.

    Args:
        run: by which the samples were read, with all its edits.
        past: which stretches of which epochs were read.
        num_samples: how many samples of these, from the first; None for all.

    Example:
        >>> import samplerkit as sk
        >>> loader = sk.Loader(range(10), sk.RandomSampler(seed=7), batch_size=4)
        >>> batches = [batch.tolist() for epoch in range(2) for batch in loader]
        >>> history = loader.history()
        >>> len(history), history[:8].tolist() == batches[0] + batches[1]
        (20, True)
        >>> history.count([3, 9]).tolist(), history.positions_of(batches[3][0])
        ([2, 2], array([ 4, 10]))
    """

    run: Run
    past: Past
    num_samples: int | None = None
    _orders: Latest[Order] = field(default_factory=partial(Latest, _ORDERS_CACHED), init=False)

    @staticmethod
    def of(source: Any, state: Mapping[str, Any]) -> History:
        """Returns the history up to a saved state.

        Args:
            source: a `Config` with a dataset, or a loader of the run; it stays as it is.
            state: from its `state_dict`, on any number of ranks.

        Raises:
            ArgumentTypeError: `source` is none of these.
            StateError: the state is damaged, or of another run.
        """
        loader = source.make_loader(source.dataset) if hasattr(source, "make_loader") else source
        if not hasattr(loader, "history"):
            raise ArgumentTypeError("source", "must be a Config with a dataset, or a loader", source)
        history: History = loader.history(state)
        return history

    @property
    def is_complete(self) -> bool:
        """Whether the state has all parts of epochs that were read, and not only a number of some.

        If not, lengths and counts are lower bounds: `past.older` epochs, or parts of one, came before.
        """
        return not self.past.older

    @property
    def recipe(self) -> tuple[object, ...]:
        return (*self.run.described, self.run.sampler, self.run.unit.recipe, self.past, self.num_samples)

    @cached_property
    def parts(self) -> list[tuple[int, int, int]]:
        """Of each epoch, or part of one, in the order of reading: the epoch, and the units from and to.

        Units are samples, or batches of a recipe, by their positions in the epoch.
        """
        return list(_parts_of(self.run, self.past))

    @cached_property
    def _edges(self) -> Ids:
        """How many samples were read before each part, and in all."""
        sizes = [end - begin for _, begin, end in self.parts]
        if self.run.unit.recipe is not None:
            sizes = [len(self._samples(number)) for number in range(len(sizes))]
        return edges_of(np.array(sizes, dtype=np.int64))

    def _samples(self, number: int) -> Order:
        epoch, begin, end = self.parts[number]
        return self._orders.get(number, lambda: self.run.epoch(epoch).in_sequence(begin, end))

    def __len__(self) -> int:
        return int(self._edges[-1]) if self.num_samples is None else self.num_samples

    def ids_at(self, positions: Ids) -> Ids:
        ids = np.empty_like(positions)
        for number, at in groups(interval_of(self._edges, positions)):
            ids[at] = self._samples(number).ids_at(positions[at] - self._edges[number])
        return ids

    def passes_at(self, positions: Ids) -> Ids:
        """Returns which of the parts of the history each position is in: in two, an id may come again."""
        return interval_of(self._edges, positions)

    def epochs_of(self, positions: Any) -> Ids:
        """Returns in which epoch each position was read: int64, of the shape of the positions."""
        epochs = np.array([epoch for epoch, _, _ in self.parts], dtype=np.int64)
        return epochs[self.passes_at(self._checked(arguments.integers("positions", positions)))]

    def locate(self, ids: Ids) -> Located:
        located = [(np.zeros(0, dtype=np.int64),) * 2]
        for number in range(len(self.parts)):
            indices, positions = self._samples(number).locate(ids)
            located.append((indices, positions + self._edges[number]))
        indices, positions = (np.concatenate(arrays) for arrays in zip(*located, strict=True))
        is_inside = positions < len(self)
        return indices[is_inside], positions[is_inside]

    def up_to(self, num_samples: int) -> History:
        """Returns the history up to so many samples.

        Raises:
            ArgumentTypeError: no integer.
            OutOfDatasetError: there are not as many.
        """
        count = arguments.integer("num_samples", num_samples)
        if not 0 <= count <= len(self):
            raise OutOfDatasetError("num_samples", f"must be in [0, {len(self)}]", count)
        return replace(self, num_samples=count)

    def since(self, state: Mapping[str, Any]) -> History:
        """Returns the samples read after an earlier state of this run; `up_to` has no effect on it.

        Raises:
            StateError: the state is damaged, of another run, or not in the past of this one.
        """
        run, saved = self.run.replaced(tail=State.from_dict(state).tail).restored(state)
        past = Past.of(saved)
        # What this history has forgotten is the oldest of the earlier ones.
        forgotten = self.past.older - past.older
        parts = list(_parts_of(run, past))
        earlier = parts[max(0, forgotten) :]
        *complete, (epoch, begin, end) = earlier or [(0, 0, 0)]
        *same, (own_epoch, own_begin, own_end) = self.parts[: len(earlier)] or [(0, 0, 0)]
        if forgotten < 0 or (same, own_epoch, own_begin) != (complete, epoch, begin) or own_end < end:
            raise StateError("read", "is not in the past of this history", saved.place)
        rest = [(epoch, end, own_end)] * (end < own_end) + self.parts[len(earlier) :]
        later = tuple(EpochsRead(epoch, 1, begin, end) for epoch, begin, end in rest)
        return History(self.run, Past(later, max(0, forgotten - len(parts))))

    def by_source(self) -> dict[str, int]:
        """Returns how many samples of each part of a tree of datasets were read, by evaluating all ids.

        For any other dataset, the one part is called `all`.
        """
        layout = Layout.of(self.run.dataset)
        if not layout.parts:
            return {"all": len(self)}
        counts = np.zeros(len(layout.parts), dtype=np.int64)
        for ids in self.chunks():
            counts += np.bincount(interval_of(layout.part_starts, ids), minlength=counts.size)
        return dict(zip(layout.parts, counts.tolist(), strict=True))

    def unread(self) -> Order:
        """Returns the samples of the dataset that were never read, ascending: another run can read these.

        It evaluates all ids that were read, and takes a byte of memory for each sample of the dataset.

        Raises:
            InverseTooLargeError: the dataset has more than 2^30 samples.
            StateError: the state does not have all epochs that were read.

        Example:
            >>> import samplerkit as sk
            >>> loader = sk.Loader(range(10), sk.RandomSampler(seed=7), batch_size=4)
            >>> first = next(iter(loader))
            >>> rest = sk.SubsetRandomSampler(loader.history().unread(), seed=8)
            >>> sorted([*first.tolist(), *rest.order(10)])
            [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
        """
        size = Layout.of(self.run.dataset).num_samples
        if size > MAX_MARKED:
            raise InverseTooLargeError("dataset", f"has more than {MAX_MARKED} samples", size)
        if not self.is_complete:
            raise StateError("state", "does not have all epochs that were read", self.past.older)
        is_read = np.zeros(size, dtype=bool)
        for ids in self.chunks():
            is_read[ids] = True
        return Table(np.flatnonzero(~is_read))


def _parts_of(run: Run, past: Past) -> Iterator[tuple[int, int, int]]:
    """Iterates over the epochs, or parts of one: the epoch and the units from and to."""
    # Only plans of batches, and the user's code make epochs of different lengths.
    differ = run.unit.recipe is not None or any(link.is_foreign for link in run.sampler._tree())
    total: int | None = None
    for stretch in past.stretches:
        for epoch in range(stretch.epoch, stretch.epoch + stretch.epochs):
            if stretch.end < 0 if differ else total is None:
                counted = run.epoch(epoch).total
                total = counted if isinstance(counted, int) else len(counted)
            end = stretch.end_in(total or 0)
            if end < stretch.begin or (total is not None and not differ and end > total):
                raise StateError("read", "has a stretch that no run reads", list(stretch))
            yield epoch, stretch.begin, end
