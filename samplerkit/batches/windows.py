"""The plan of an order in windows of consecutive positions, each cut into batches of its own."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, final

import numpy as np

from samplerkit.batches.cuts import Groups
from samplerkit.batches.measure import Measure
from samplerkit.batches.plan import BatchPlan, BatchSamples
from samplerkit.errors import ArgumentTypeError, ArgumentValueError
from samplerkit.order.algebra import groups
from samplerkit.order.intervals import numbers_in
from samplerkit.order.keys import Key
from samplerkit.order.once import once
from samplerkit.order.order import Located, Order
from samplerkit.order.typing import Ids

_KEPT_WINDOWS = 2


@final
@dataclass(frozen=True)
class WindowContext:
    """Where and when a window is cut.

    Args:
        epoch: the epoch, from 0.
        window: the number of the window, from 0.
        seed: of the sampler.
        abreast: batches in a group.
    """

    epoch: int
    window: int
    seed: int
    abreast: int

    def key(self, role: str) -> Key:
        """Gives the key for a role, at most 16 ASCII characters; its words are `words(count, window)`."""
        return Key(self.seed, self.epoch, 0, role)


Cut = Callable[[Ids, Ids, WindowContext], Sequence[Ids]]
"""Cuts the samples of a window into batches: a recipe's one method."""

Even = Callable[[list[Ids], Ids, Ids, int], list[Ids]]
"""Brings the batches of a window to a number, as `BatchRecipe.evened` does."""


@final
class _CutWindow:
    """A window as it was cut: places in the order of batches, where batches end, and how they come."""

    def __init__(self, ids: Ids, first: int, batches: list[Ids], groups: Groups) -> None:
        self.edges = np.append(0, np.cumsum([batch.size for batch in batches])).astype(np.int64)
        places = np.concatenate(batches) if batches else np.zeros(0, dtype=np.int64)
        self.ids = ids[places]
        self.positions = places + first
        self.groups = groups

    @property
    def count(self) -> int:
        return self.edges.size - 1


@final
class WindowPlan(BatchPlan):
    """Batches of any order, window after window: a batch costs the evaluation of one window.

    How many batches come before a window follows from the lengths in all windows before it; `known` spares a
    plan that begins in the middle of an epoch the pass over them.

    Args:
        order: of the epoch.
        size: samples in a window.
        cut: cuts the samples of a window into batches, from the longest to the shortest.
        even: brings them to a number.
        context: of the epoch; the window is filled in.
        key: of the order of groups; None leaves the batches as they were cut.
        measure: how long samples are.
        num_batches: how many batches, from the first; None for all.
        known: a window, and how many batches come before it.
    """

    def __init__(
        self,
        order: Order,
        size: int,
        cut: Cut,
        even: Even,
        context: WindowContext,
        key: Key | None,
        measure: Measure,
        num_batches: int | None,
        known: tuple[int, int] = (0, 0),
    ) -> None:
        super().__init__(measure, context.abreast)
        self.order: Final = order
        self._size = size
        self._cut = cut
        self._even = even
        self._context = context
        self._key = key
        self._num_batches = num_batches
        self._windows = -(-len(order) // size)
        self._first, before = known
        # How many batches come before each window, from the first known one on, as far as one has looked.
        # Two threads may look at the same moment: an entry is set once, and by both to the same.
        self._before = {self._first: before}
        self._from_start = {0: 0} if self._first else self._before
        self._kept: dict[int, _CutWindow] = {}

    @property
    def window(self) -> int:
        return self._size

    def __len__(self) -> int:
        while self._grow(self._before):
            if self._num_batches is not None and self._last(self._before)[1] >= self._num_batches:
                break
        return self._limited(self._last(self._before)[1])

    @once
    def dropped(self) -> int:
        placed = sum(int(self._window(window).edges[-1]) for window in range(self._windows))
        return len(self.order) - placed

    @property
    def num_draws(self) -> int:
        return len(self.order)

    def passes_at(self, draws: Ids) -> Ids:
        return self.order.passes_at(draws)

    def has(self, number: int) -> bool:
        if number < 0 or number >= self._limited(number + 1):
            return False
        return self._window_of(number) is not None

    def window_of(self, number: int) -> tuple[int, int]:
        """Gives the window of a batch and how many batches come before it; at the end, all of both."""
        window = self._window_of(number)
        if window is None:
            return self._windows, self._last(self._before)[1]
        return window, self._before_of(window)

    def samples(self, numbers: Ids) -> BatchSamples:
        windows = self._windows_at(numbers)
        sizes = np.zeros(numbers.size, dtype=np.int64)
        taken = []
        for window, mine in groups(windows):
            cut = self._window(window)
            batches = cut.groups.forward(numbers[mine] - self._before_of(window))
            sizes[mine] = cut.edges[batches + 1] - cut.edges[batches]
            taken.append((cut, mine, cut.edges[batches]))
        edges = np.append(0, np.cumsum(sizes))
        ids = np.empty(int(edges[-1]), dtype=np.int64)
        positions = np.empty_like(ids)
        for cut, mine, begins in taken:
            # The samples of the batch at one place of `numbers` and those of the next one follow one another.
            count = sizes[mine]
            target, source = numbers_in(edges[mine], count), numbers_in(begins, count)
            ids[target], positions[target] = cut.ids[source], cut.positions[source]
        return BatchSamples(ids, positions, edges)

    def locate(self, ids: Ids) -> Located:
        which, positions = self.order.locate(ids)
        numbers = np.full(positions.size, -1, dtype=np.int64)
        for window in np.unique(positions // self._size).tolist():
            cut = self._window(window)
            mine = np.flatnonzero(positions // self._size == window)
            sorted_at = np.argsort(cut.positions)
            at = np.searchsorted(cut.positions[sorted_at], positions[mine])
            at = np.minimum(at, max(0, cut.positions.size - 1))
            is_there = cut.positions[sorted_at[at]] == positions[mine] if at.size and cut.count else at < 0
            batch = np.searchsorted(cut.edges, sorted_at[at[is_there]], side="right") - 1
            numbers[mine[is_there]] = self._before_of(window) + cut.groups.backward(batch)
        is_there = numbers >= 0
        if self._num_batches is not None:
            is_there &= numbers < self._num_batches
        return which[is_there], numbers[is_there]

    def _limited(self, count: int) -> int:
        return count if self._num_batches is None else min(count, self._num_batches)

    def _last(self, before: dict[int, int]) -> tuple[int, int]:
        """Gives the last window at whose beginning one has been, and how many batches come before it."""
        window = (self._first if before is self._before else 0) + len(before) - 1
        return window, before[window]

    def _grow(self, before: dict[int, int]) -> bool:
        """Looks at one window more; False if there is none."""
        window, count = self._last(before)
        if window >= self._windows:
            return False
        before.setdefault(window + 1, count + self._window(window).count)
        return True

    def _window_of(self, number: int) -> int | None:
        """Finds the window of a batch, None for one behind the last."""
        first = self._first if number >= self._before[self._first] else 0
        before = self._before if first else self._from_start
        while self._last(before)[1] <= number:
            if not self._grow(before):
                return None
        known = range(first, self._last(before)[0] + 1)
        return first + bisect_right(known, number, key=before.__getitem__) - 1

    def _windows_at(self, numbers: Ids) -> Ids:
        """Gives the windows of batches that are known to be there."""
        if not numbers.size:
            return numbers
        first, last = self._window_of(int(numbers.min())), self._window_of(int(numbers.max()))
        assert first is not None and last is not None  # noqa: S101, PT018  # the caller asked `has`
        before = np.array([self._before_of(window) for window in range(first, last + 1)])
        return first + np.searchsorted(before, numbers, side="right") - 1

    def _before_of(self, window: int) -> int:
        before = self._before if window >= self._first else self._from_start
        while window not in before:
            self._grow(before)
        return before[window]

    def _window(self, window: int) -> _CutWindow:
        kept = self._kept.get(window)
        if kept is None:
            kept = self._made(window)
            for oldest in list(self._kept)[: 1 - _KEPT_WINDOWS]:
                self._kept.pop(oldest, None)
            self._kept[window] = kept
        return kept

    def _made(self, window: int) -> _CutWindow:
        first = window * self._size
        ids = self.order[first : first + self._size]
        context = WindowContext(self._context.epoch, window, self._context.seed, self._context.abreast)
        lengths = self.measure.counted(ids)
        cut = checked_cut(self._cut(ids, lengths, context), ids.size)
        if self._key is not None and window < self._windows - 1:
            # Else all groups behind this window would be out of step; behind the last one there are none.
            cut = self._even(cut, ids, lengths, -(-len(cut) // self.abreast) * self.abreast)
        return _CutWindow(ids, first, cut, Groups(len(cut), self.abreast, self._key, window))


def checked_cut(batches: Any, size: int) -> list[Ids]:
    """Checks what a recipe cut: places in the window, none twice, and no empty batch.

    Raises:
        ArgumentTypeError: no arrays of integers.
        ArgumentValueError: a place outside of the window, twice, or a batch without samples.
    """
    if not isinstance(batches, Sequence):
        raise ArgumentTypeError("cut", "must give a list of arrays, one a batch", batches)
    arrays = [np.asarray(batch) for batch in batches]
    for number, batch in enumerate(arrays):
        if batch.ndim != 1 or (batch.dtype.kind not in "iu"):
            raise ArgumentTypeError(f"cut: batch {number}", "must be a flat array of integers", batch)
        if not batch.size:
            raise ArgumentValueError(f"cut: batch {number}", "must not be empty", batch)
    if not arrays:
        return []
    places = np.concatenate(arrays)
    if places.min() < 0 or places.max() >= size:
        outside = places[(places < 0) | (places >= size)]
        raise ArgumentValueError(
            "cut",
            f"gives a place outside of a window of {size}",
            int(outside[0]),
            mend="give places, not ids",
        )
    twice = np.flatnonzero(np.bincount(places, minlength=size) > 1)
    if twice.size:
        raise ArgumentValueError("cut", "gives a place twice", int(twice[0]), mend="give each place once")
    return [batch.astype(np.int64, copy=False) for batch in arrays]
