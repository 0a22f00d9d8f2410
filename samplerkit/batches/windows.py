"""The plan of an order in windows of consecutive positions, each cut into batches of its own."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import Final, final

import numpy as np

from samplerkit.batches.cuts import Groups
from samplerkit.batches.measure import Measure
from samplerkit.batches.plan import BatchPlan, BatchSamples
from samplerkit.batches.segments import Segments
from samplerkit.batches.window_cut import CutFunction, CutSegments, Even, WindowContext, checked_cut
from samplerkit.order.algebra import groups as grouped
from samplerkit.order.arguments import LARGEST
from samplerkit.order.intervals import edges_of, numbers_in
from samplerkit.order.keys import Key
from samplerkit.order.located import Located
from samplerkit.order.once import once
from samplerkit.order.order import Order
from samplerkit.order.typing import Ids

_KEPT_WINDOWS = 2


@final
@dataclass(frozen=True, eq=False)
class _CutWindow:
    """A window as it was cut: its samples in the order of batches, where batches end, and how they come."""

    ids: Ids
    positions: Ids
    edges: Ids
    segments: Segments | None
    groups: Groups

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
        cut: CutFunction,
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
        placed = sum(np.unique(self._window(window).positions).size for window in range(self._windows))
        return len(self.order) - placed

    @property
    def num_draws(self) -> int:
        return len(self.order)

    def passes_at(self, draws: Ids) -> Ids:
        return self.order.passes_at(draws)

    def epochs_at(self, epoch: int, draws: Ids) -> Ids:
        return self.order.epochs_at(epoch, draws)

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

    def learn(self, other: WindowPlan, end: int) -> None:
        """Takes over what another plan has found out of windows up to a position, where both are alike."""
        for mine, found in ((self._before, other._before), (self._from_start, other._from_start)):
            # Of a copy: a thread that reads may look further meanwhile.
            known = found.copy().items()
            mine.update({window: count for window, count in known if window * self._size <= end})

    def samples(self, numbers: Ids) -> BatchSamples:
        windows = self._windows_at(numbers)
        sizes = np.zeros(numbers.size, dtype=np.int64)
        taken = []
        for window, mine in grouped(windows):
            cut = self._window(window)
            batches = cut.groups.forward(numbers[mine] - self._before_of(window))
            sizes[mine] = cut.edges[batches + 1] - cut.edges[batches]
            taken.append((cut, mine, cut.edges[batches]))
        edges = edges_of(sizes)
        ids = np.empty(int(edges[-1]), dtype=np.int64)
        positions, places = np.empty_like(ids), np.empty_like(ids)
        segments: list[Segments] = []
        before = 0
        for cut, mine, begins in taken:
            # The samples of the batch at one place of `numbers` and those of the next one follow one another.
            count = sizes[mine]
            target, source = numbers_in(edges[mine], count), numbers_in(begins, count)
            ids[target], positions[target] = cut.ids[source], cut.positions[source]
            if cut.segments is not None:
                segments.append(cut.segments.at(source))
                places[target] = np.arange(before, before + source.size)
                before += source.size
        found = Segments.joined(segments).at(places) if segments else None
        return BatchSamples(ids, positions, edges, found)

    def locate(self, ids: Ids) -> Located:
        which, positions = self.order.locate(ids)
        found, numbers = [np.zeros(0, dtype=np.int64)], [np.zeros(0, dtype=np.int64)]
        for window in np.unique(positions // self._size).tolist():
            cut = self._window(window)
            mine = np.flatnonzero(positions // self._size == window)
            sorted_at = np.argsort(cut.positions, kind="stable")
            ascending = cut.positions[sorted_at]
            low = np.searchsorted(ascending, positions[mine])
            # One that was dropped stands nowhere, and one that was cut into parts in several batches.
            times = np.searchsorted(ascending, positions[mine], side="right") - low
            batch = np.searchsorted(cut.edges, sorted_at[numbers_in(low, times)], side="right") - 1
            found.append(np.repeat(which[mine], times))
            numbers.append(self._before_of(window) + cut.groups.backward(batch))
        places, batches = np.concatenate(found), np.concatenate(numbers)
        if self.measure.pack is not None:
            # Two parts of a sample may stand in one batch.
            places, batches = np.unique(np.stack([places, batches]), axis=1)
        is_there = batches < self._limited(LARGEST)
        return places[is_there], batches[is_there]

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
        cut = self._cut(ids, lengths, context)
        segments = None
        if isinstance(cut, CutSegments):
            # All packs cost alike in tokens, so there is nothing to be brought to whole groups.
            places, edges, segments = cut.places, cut.edges, cut.segments
        else:
            batches = checked_cut(cut, ids.size)
            if self._key is not None and window < self._windows - 1:
                # Else all groups behind this window would be out of step; behind the last one are none.
                count = -(-len(batches) // self.abreast) * self.abreast
                batches = self._even(batches, ids, lengths, count)
            edges = edges_of(np.array([batch.size for batch in batches], dtype=np.int64))
            places = np.concatenate(batches) if batches else np.zeros(0, dtype=np.int64)
        groups = Groups(edges.size - 1, self.abreast, self._key, window)
        return _CutWindow(ids[places], places + first, edges, segments, groups)
