"""The plan of any order: windows of consecutive positions, each cut into batches separately."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from samplerkit.batches.cutting import Groups
from samplerkit.batches.plan import BatchPlan, BatchSamples
from samplerkit.batches.segments import Segments
from samplerkit.errors import ArgumentTypeError, ArgumentValueError
from samplerkit.order.arguments import LARGEST
from samplerkit.order.caching import Latest, cached_property
from samplerkit.order.intervals import edges_of, numbers_in
from samplerkit.order.intervals import groups as grouped
from samplerkit.order.keys import Key
from samplerkit.order.order import Located, Order
from samplerkit.order.sequences import Occurrences
from samplerkit.order.typing import Ids


@dataclass(frozen=True)
class WindowContext:
    """The window that a recipe cuts.

    Args:
        epoch: the epoch, from 0.
        window: the number of the window, from 0.
        seed: of the sampler.
        abreast: batches of a group.
    """

    epoch: int
    window: int
    seed: int
    abreast: int

    def key(self, role: str) -> Key:
        """Returns the key of this epoch for a role of at most 16 ASCII characters.

        Random words for this window are `key(role).words(count, window)`.
        """
        return Key(self.seed, self.epoch, 0, role)


CutFunction = Callable[[Ids, WindowContext, bool], BatchSamples]
"""Cuts the samples of a window into batches, the longest first; their positions are places in the window.

If the last argument is true, the number of batches is a multiple of `abreast`.
"""


_GROUPS_IN_A_WINDOW, _LARGEST_WINDOW = 16, 1 << 20


def window_size(abreast: int, samples: int, batches: int, smallest: int) -> int:
    """Returns the size of a window with samples for 16 groups: a power of two, of at most 2^20.

    Args:
        abreast: batches of a group.
        samples: the number of samples; or that times any number.
        batches: the number of batches that they fill, times the same number.
        smallest: the smallest size.
    """
    size = _GROUPS_IN_A_WINDOW * abreast * samples // max(1, batches)
    return min(max(1 << size.bit_length(), smallest), _LARGEST_WINDOW)


def checked_cut(batches: Any, size: int) -> list[Ids]:
    """Returns the batches that a recipe cut as int64 arrays, after checking them.

    Args:
        batches: what `cut` returned: a sequence of arrays of places in the window.
        size: samples in the window.

    Raises:
        ArgumentTypeError: this is not a sequence of flat arrays of integers.
        ArgumentValueError: a place is outside of the window or occurs twice, or a batch is empty.
    """
    if not isinstance(batches, Sequence):
        raise ArgumentTypeError("cut", "must give a list of arrays, one a batch", batches)
    arrays = []
    for number, batch in enumerate(batches):
        try:
            array = np.asarray(batch)
        except (TypeError, ValueError, RuntimeError):  # rows of different lengths, a tensor on a device
            array = np.asarray(None)
        if array.ndim != 1 or (array.dtype.kind not in "iu"):
            raise ArgumentTypeError(f"cut: batch {number}", "must be a flat array of integers", batch)
        if not array.size:
            raise ArgumentValueError(f"cut: batch {number}", "must not be empty", array)
        arrays.append(array)
    if not arrays:
        return []
    places = np.concatenate(arrays)
    if places.min() < 0 or places.max() >= size:
        outside = places[(places < 0) | (places >= size)]
        problem, hint = f"gives a place outside of a window of {size}", "give places, not ids"
        raise ArgumentValueError("cut", problem, int(outside[0]), hint=hint)
    repeated = np.flatnonzero(np.bincount(places, minlength=size) > 1)
    if repeated.size:
        raise ArgumentValueError("cut", "gives a place twice", int(repeated[0]), hint="give each place once")
    return [batch.astype(np.int64, copy=False) for batch in arrays]


@dataclass(eq=False, repr=False)
class WindowPlan(BatchPlan):
    """Batches of any order, window after window. To compute a batch, its window is cut.

    The number of batches before a window is known once all windows before it were cut. With `known`, a plan
    that begins in the middle of an epoch does not cut those again.

    Args:
        num_batches: the most batches; None for all.
        order: of the epoch.
        size: samples in a window.
        cut: cuts the samples of a window into batches.
        context: of the epoch; its number of the window is replaced.
        key: of the order of groups; None leaves the batches in the order in which they were cut.
        known: a window, and the number of batches before it.
    """

    num_batches: int | None
    order: Order
    size: int
    cut: CutFunction
    context: WindowContext
    key: Key | None
    known: tuple[int, int] = (0, 0)

    def __post_init__(self) -> None:
        self._windows = -(-len(self.order) // self.size)
        self._first, before = self.known
        # The number of batches before each window, from the known window to the one after the last that was
        # cut. Two threads may add to it at the same time: both add the same values.
        self._counts_before = {self._first: before}
        # The batches of a window as they were cut, and the order in which they are read.
        self._cached = Latest[tuple[BatchSamples, Groups]](2)

    @property
    def window(self) -> int:
        return self.size

    def __len__(self) -> int:
        while self._grow():
            if self.num_batches is not None and self._last()[1] >= self.num_batches:
                break
        return self._limited(self._last()[1])

    @cached_property
    def dropped(self) -> int:
        placed = sum(np.unique(self._window(window)[0].positions).size for window in range(self._windows))
        return len(self.order) - placed

    @property
    def num_draws(self) -> int:
        return len(self.order)

    def passes_at(self, draws: Ids) -> Ids:
        return self.order.passes_at(draws)

    def epochs_at(self, epoch: int, draws: Ids) -> Ids:
        return self.order.epochs_at(epoch, draws)

    def has(self, number: int) -> bool:
        return 0 <= number < self._limited(number + 1) and self._window_of(number) is not None

    def window_of(self, number: int) -> tuple[int, int]:
        """Returns the window of a batch and the number of batches before it.

        After the last batch, these are the number of windows and the number of batches. For the first batch
        it is the first window, unseen, which may hold no batch.
        """
        if not number:
            return 0, 0
        window = self._window_of(number)
        if window is None:
            return self._windows, self._last()[1]
        return window, self._count_before(window)

    def learn(self, other: WindowPlan, end: int) -> None:
        """Copies how many batches are before the windows of another plan, up to a position.

        Args:
            other: a plan with the same samples up to that position.
            end: the position.
        """
        # From a copy, since a reading thread may add windows meanwhile.
        items = other._counts_before.copy().items()
        self._counts_before.update({window: count for window, count in items if window * self.size <= end})

    def samples(self, numbers: Ids) -> BatchSamples:
        if not numbers.size:
            return BatchSamples(numbers, numbers, edges_of(numbers))
        sizes, row = np.empty_like(numbers), np.empty_like(numbers)
        pieces = []
        before = 0
        for window, local in grouped(self._windows_at(numbers)):
            cut, groups = self._window(window)
            batches = groups.forward(numbers[local] - self._count_before(window))
            count = cut.edges[batches + 1] - cut.edges[batches]
            # Where the samples of each batch begin among those of all batches, taken window by window.
            row[local] = before + np.cumsum(count) - count
            sizes[local] = count
            pieces.append((cut, numbers_in(cut.edges[batches], count)))
            before += int(count.sum())
        at = numbers_in(row, sizes)
        ids = np.concatenate([cut.ids[places] for cut, places in pieces])[at]
        positions = np.concatenate([cut.positions[places] for cut, places in pieces])[at]
        parts = [cut.segments.at(places) for cut, places in pieces if cut.segments is not None]
        segments = Segments.joined(parts).at(at) if parts else None
        return BatchSamples(ids, positions, edges_of(sizes), segments)

    def locate(self, ids: Ids) -> Located:
        which, positions = self.order.locate(ids)
        matches, numbers = [np.zeros(0, dtype=np.int64)], [np.zeros(0, dtype=np.int64)]
        for window in np.unique(positions // self.size).tolist():
            cut, groups = self._window(window)
            local = np.flatnonzero(positions // self.size == window)
            # A sample may be in no batch, if it was dropped, or its parts in several.
            placed, at = Occurrences(cut.positions).locate(positions[local])
            batch = np.searchsorted(cut.edges, at, side="right") - 1
            matches.append(which[local[placed]])
            numbers.append(self._count_before(window) + groups.backward(batch))
        # Two parts of a sample may be in one batch, and so may two repeats if there are few batches.
        places, batches = np.unique([np.concatenate(matches), np.concatenate(numbers)], axis=1)
        exists = batches < self._limited(LARGEST)
        return places[exists], batches[exists]

    def _limited(self, count: int) -> int:
        return count if self.num_batches is None else min(count, self.num_batches)

    @cached_property
    def _from_start(self) -> WindowPlan:
        """The same plan without `known`, for batches before that window."""
        return replace(self, known=(0, 0))

    def _last(self) -> tuple[int, int]:
        """Returns the last window before which the number of batches is known, and that number."""
        window = self._first + len(self._counts_before) - 1
        return window, self._counts_before[window]

    def _grow(self) -> bool:
        """Cuts one window more, and counts its batches; returns False if there is none."""
        window, count = self._last()
        if window >= self._windows:
            return False
        self._counts_before.setdefault(window + 1, count + self._window(window)[0].edges.size - 1)
        return True

    def _window_of(self, number: int) -> int | None:
        """Returns the window of a batch; None after the last batch."""
        if number < self._counts_before[self._first]:
            return self._from_start._window_of(number)
        while self._last()[1] <= number:
            if not self._grow():
                return None
        windows = range(self._first, self._last()[0] + 1)
        return self._first + bisect_right(windows, number, key=self._counts_before.__getitem__) - 1

    def _windows_at(self, numbers: Ids) -> Ids:
        """Returns the windows of batches that are known to exist."""
        first, last = self._window_of(int(numbers.min())), self._window_of(int(numbers.max()))
        assert first is not None and last is not None  # noqa: S101, PT018  # the caller asked `has`
        before = np.array([self._count_before(window) for window in range(first, last + 1)])
        return first + np.searchsorted(before, numbers, side="right") - 1

    def _count_before(self, window: int) -> int:
        if window < self._first:
            return self._from_start._count_before(window)
        while window not in self._counts_before:
            self._grow()
        return self._counts_before[window]

    def _window(self, window: int) -> tuple[BatchSamples, Groups]:
        return self._cached.get(window, lambda: self._compute(window))

    def _compute(self, window: int) -> tuple[BatchSamples, Groups]:
        first = window * self.size
        ids = self.order[first : first + self.size]
        context = replace(self.context, window=window)
        # Groups run on from window to window, so all but the last window have whole groups.
        in_whole_groups = self.key is not None and window < self._windows - 1
        cut = self.cut(ids, context, in_whole_groups)
        groups = Groups(cut.edges.size - 1, self.abreast, self.key, window)
        return replace(cut, positions=cut.positions + first), groups
