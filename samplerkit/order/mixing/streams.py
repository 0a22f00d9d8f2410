"""Streams: endless orders with random access, such as passes over a source; an epoch is a part of one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np

from samplerkit.errors import DatasetError, InverseTooLargeError, NotSupportedError
from samplerkit.order.arguments import LARGEST
from samplerkit.order.caching import Latest, cached_property
from samplerkit.order.intervals import groups, interval_of
from samplerkit.order.mixing.removed_positions import WithoutIds, no_positions
from samplerkit.order.order import EqualByRecipe, Located, Order
from samplerkit.order.sequences import Permuted, permuted_each
from samplerkit.order.typing import Ids

MAX_PASSES = 1 << 16
"""The most passes over a source in which `Passes.locate` searches for ids, one after another."""

_CACHED_PASSES = 64
_FEW = 1024
"""Pieces with fewer positions are evaluated together."""


class Piece(NamedTuple):
    """The requested positions of a stream that are in one pass over one source.

    Args:
        at: the indices of these positions among the requested ones, int64 of shape (k,).
        order: of the pass.
        places: the positions in that order, int64 of shape (k,).
        shift: what is added to its ids: the ids are order.ids_at(places) + shift.
        number: of the pass, from 0.
    """

    at: Ids
    order: Order
    places: Ids
    shift: int
    number: int


class Stream(EqualByRecipe, ABC):
    """An endless order with random access. Row k of lane l is position k * lanes + l."""

    lanes: int = 1

    @abstractmethod
    def pieces(self, positions: Ids) -> Iterator[Piece]:
        """Divides positions by source and pass.

        Args:
            positions: int64 array of shape (m,), each in [0, 2^62).

        Returns:
            Pieces, in which each index of `positions` is once.
        """

    @abstractmethod
    def locate(self, ids: Ids, begin: int, end: int) -> Located:
        """Finds all positions of ids in [begin, end), as `Order.locate`.

        Raises:
            InverseTooLargeError: [begin, end) has more than `MAX_PASSES` passes over a source.
        """

    def ids_at(self, positions: Ids) -> Ids:
        """Returns the ids at positions, int64 of shape (m,); arguments as for `pieces`."""
        ids = np.empty_like(positions)
        together: list[tuple[Piece, Permuted]] = []
        for piece in self.pieces(positions):
            order = piece.order
            if isinstance(order, Permuted) and piece.at.size < _FEW and order.is_narrow:
                together.append((piece, order))
            else:
                ids[piece.at] = order.ids_at(piece.places) + piece.shift
        if together:
            # Of many sources, each has few of the positions: one call for all is far faster.
            pieces = [piece for piece, _ in together]
            which = np.repeat(np.arange(len(pieces)), [piece.at.size for piece in pieces])
            places = np.concatenate([piece.places for piece in pieces])
            values = permuted_each([order for _, order in together], which, places)
            values += np.array([piece.shift for piece in pieces])[which]
            ids[np.concatenate([piece.at for piece in pieces])] = values
        return ids

    def passes_at(self, positions: Ids) -> Ids:
        """Returns in which pass over its source each position is, from 0; arguments as for `pieces`."""
        passes = np.empty_like(positions)
        for piece in self.pieces(positions):
            passes[piece.at] = piece.number * piece.order.num_passes + piece.order.passes_at(piece.places)
        return passes

    def epochs_at(self, positions: Ids) -> Ids:
        """Returns in which epoch of its source each position is, as `Order.epochs_at`."""
        epochs = np.empty_like(positions)
        for piece in self.pieces(positions):
            epochs[piece.at] = piece.order.epochs_at(piece.number, piece.places)
        return epochs

    @abstractmethod
    def num_passes(self, end: int) -> int:
        """Returns a number above the passes of all positions before `end`."""


class DrawnPositions(NamedTuple):
    """Which positions of a stream were drawn before an edit.

    Args:
        low: all positions before it were drawn.
        high: none from it on was drawn.
        has: returns for positions, int64 of shape (m,), whether each was drawn; bool of shape (m,).
    """

    low: int
    high: int
    has: Callable[[Ids], np.ndarray[Any, np.dtype[np.bool_]]]

    @classmethod
    def of_lanes(cls, rows: Ids) -> DrawnPositions:
        """Makes it from the number of rows that each lane has drawn, int64 of shape (lanes,).

        Example:
            >>> drawn = DrawnPositions.of_lanes(np.array([2, 1, 1]))  # 0, 1, 2 and 3
            >>> drawn.low, drawn.high, drawn.has(np.arange(6)).tolist()
            (4, 4, [True, True, True, True, False, False])
        """
        lanes = rows.size
        low, high = (rows * lanes + np.arange(lanes)).min(), ((rows - 1) * lanes + np.arange(lanes)).max() + 1
        return cls(int(low), int(high), lambda positions: positions // lanes < rows[positions % lanes])


class PassSpan(NamedTuple):
    """Consecutive passes over a source without the same ids.

    Args:
        first: the number of the first of these passes.
        begin: the position of the stream at which that pass begins.
        length: of each pass: its number of samples without these ids.
        ids: that are left out.
    """

    first: int
    begin: int
    length: int
    ids: Ids


@dataclass(eq=False)
class Passes(Stream):
    """One pass over a source after another; from a pass on, ids may be left out.

    Args:
        orders: returns the order of pass t, with all ids; an object with the attribute `woven` if these
            orders are woven into another number of lanes than the stream.
        lanes: into how many lanes the stream is woven.
        name: of the source, for errors.
        spans: ascending; empty if no ids are left out.
        removed: the positions that are no longer read, in passes that had begun when ids were removed.

    Raises:
        DatasetError: when a pass is made: its length is not that of its span.

    Example:
        >>> from samplerkit.order.sequences import Range
        >>> passes = Passes(lambda number: Range(0, 4), lanes=1)
        >>> passes.ids_at(np.arange(7)), passes.passes_at(np.arange(7))
        (array([0, 1, 2, 3, 0, 1, 2]), array([0, 0, 0, 0, 1, 1, 1]))
        >>> edited = passes.without(np.array([3]), DrawnPositions.of_lanes(np.array([6])))  # in pass 1
        >>> edited.removed, edited.ids_at(np.arange(8, 14))
        (array([7]), array([0, 1, 2, 0, 1, 2]))
    """

    orders: Callable[[int], Order]
    lanes: int
    name: str = "source"
    spans: tuple[PassSpan, ...] = ()
    removed: Ids = field(default_factory=no_positions)

    def __post_init__(self) -> None:
        self.is_uniform = len(self.spans) < 2
        self._latest: Latest[Order] = Latest(_CACHED_PASSES)

    @property
    def woven(self) -> int:
        """Into how many lanes each order is woven."""
        return getattr(self.orders, "woven", self.lanes)

    @cached_property
    def length(self) -> int:
        """The number of samples in the first pass."""
        return self.spans[0].length if self.spans else len(self.order(0))

    @cached_property
    def _all_spans(self) -> tuple[PassSpan, ...]:
        return self.spans or (PassSpan(0, 0, self.length, no_positions()),)

    @property
    def recipe(self) -> tuple[object, ...]:
        return self.orders, self.lanes, self.removed, *(value for span in self.spans for value in span)

    def order(self, number: int) -> Order:
        """Returns the order of a pass; the last 64 are cached."""
        return self._latest.get(number, lambda: self._checked(number))

    def _checked(self, number: int) -> Order:
        order = self.orders(number)
        if not (number or self.spans):
            return order  # it defines the length of the others
        span = self._span_of_pass(number)
        if span.ids.size:
            order = WithoutIds(order, span.ids, self.woven)
        if len(order) != span.length:
            problem = f"yields another number of samples in pass {number} than in the first, {span.length}"
            hint = "a source of a mixture must have one length for all passes"
            raise DatasetError(self.name, problem, len(order), hint=hint)
        return order

    def _span_of_pass(self, number: int) -> PassSpan:
        return [span for span in self._all_spans if span.first <= number][-1]

    def _span_at(self, position: int) -> PassSpan:
        return [span for span in self._all_spans if span.begin <= position][-1]

    def without(self, ids: Ids, drawn: DrawnPositions) -> Passes:
        """Returns the stream without some ids, from the positions on that were not drawn yet.

        Passes that had begun keep their length: in them, the positions of the ids become `removed`. Later
        passes are without the ids, and so shorter.

        Args:
            ids: distinct.
            drawn: the positions of this stream that were drawn.

        Raises:
            NotSupportedError: no ids would remain.
        """
        current = self._span_at(max(0, drawn.high - 1))
        started = max(0, -((current.begin - drawn.high) // current.length))
        first, begin = current.first + started, current.begin + started * current.length
        _, positions = self.locate(ids, drawn.low, begin)
        excluded = np.union1d(self._all_spans[-1].ids, ids)
        remaining = len(WithoutIds(self.orders(first), excluded, self.woven))
        if not remaining:
            hint = "give it the weight 0 at the same position"
            raise NotSupportedError(self.name, "would have no samples left", hint=hint)
        before = tuple(span for span in self._all_spans if span.first < first)
        removed = np.union1d(self.removed, positions[~drawn.has(positions)])
        spans = (*before, PassSpan(first, begin, remaining, excluded))
        return Passes(self.orders, self.lanes, self.name, spans, removed)

    def pieces(self, positions: Ids) -> Iterator[Piece]:
        if self.is_uniform:
            yield from self._pieces_of(self._all_spans[0], np.arange(positions.size), positions)
            return
        bounds = np.array([*(span.begin for span in self._all_spans), LARGEST + 1], dtype=np.int64)
        for number, at in groups(interval_of(bounds, positions)):
            span = self._all_spans[number]
            yield from self._pieces_of(span, at, positions[at] - span.begin)

    def _pieces_of(self, span: PassSpan, at: Ids, places: Ids) -> Iterator[Piece]:
        """Yields the pieces of a span.

        Args:
            span: the passes.
            at: the indices of the places among the requested positions.
            places: positions from the beginning of the span.
        """
        length = span.length
        # Mostly all are in one pass, and need no sorting.
        index = int(places.min()) // length if places.size else 0
        if places.size and int(places.max()) < (index + 1) * length:
            number = span.first + index
            yield Piece(at, self.order(number), places - index * length, 0, number)
            return
        numbers, inside = np.divmod(places, length)
        for index, part in groups(numbers):
            number = span.first + index
            yield Piece(at[part], self.order(number), inside[part], 0, number)

    def locate(self, ids: Ids, begin: int, end: int) -> Located:
        matches = [(ids[:0],) * 2]
        ends = [*(span.begin for span in self._all_spans[1:]), end]
        for span, bound in zip(self._all_spans, ends, strict=True):
            low, high = max(begin, span.begin), min(end, bound)
            first, last = (low - span.begin) // span.length, -((span.begin - high) // span.length)
            if last - first > MAX_PASSES:
                problem = f"looks at each pass over a source, limited to {MAX_PASSES} passes"
                hint = "ask about a shorter num_samples"
                raise InverseTooLargeError("positions_of", problem, last - first, hint=hint)
            for index in range(first, last):
                which, places = self.order(span.first + index).locate(ids)
                places = places + span.begin + index * span.length
                inside = (places >= low) & (places < high)
                matches.append((which[inside], places[inside]))
        return np.concatenate([which for which, _ in matches]), np.concatenate([p for _, p in matches])

    def pass_begin(self, number: int) -> int:
        """Returns the position at which a pass begins; 2^61 if it begins later."""
        span = self._span_of_pass(number)
        return min(span.begin + (number - span.first) * span.length, LARGEST // 2)

    def passes_in(self, count: int) -> float:
        """Returns how many passes the first `count` positions are; 2.5 is half of the third one."""
        span = self._span_at(count)
        return span.first + (count - span.begin) / span.length

    def num_passes(self, end: int) -> int:
        span = self._span_at(max(0, end - 1))
        started = -((span.begin - end) // max(1, span.length))
        return (span.first + started) * self.order(span.first).num_passes


_AHEAD = 32_768
"""The most ids that are computed ahead."""

_NEAR = 16
"""Requests that may be missing between two of a sequence, since other workers got them."""


class ReadAhead(NamedTuple):
    """The ids at positions start, start + step, start + 2 * step, ..., which were computed ahead."""

    start: int
    step: int
    ids: Ids


class Part(Order):
    """The positions [begin, begin + length) of a stream: an epoch of it.

    A call for few positions costs as much as one for many. So where successive calls continue a sequence, as
    those of a rank or a worker do, ids are computed ahead, more and more of them.

    Args:
        stream: what it is a part of.
        begin: its first position there.
        length: the number of positions.
        runs_on: whether the stream continues from epoch to epoch; otherwise it is of this epoch alone.
    """

    def __init__(self, stream: Stream, begin: int, length: int, *, runs_on: bool = True) -> None:
        self.stream: Final = stream
        self.begin: Final = begin
        self._length = length
        self.runs_on: Final = runs_on
        self._ahead: ReadAhead | None = None

    @property
    def recipe(self) -> tuple[object, ...]:
        return self.stream, self.begin, self._length

    def __len__(self) -> int:
        return self._length

    def ids_at(self, positions: Ids) -> Ids:
        ahead, self._ahead = self._ahead, None
        if positions.size < 2 or positions.size > _AHEAD // 2:
            return self.stream.ids_at(positions + self.begin)
        start, step = int(positions[0]), int(positions[1] - positions[0])
        if step < 1 or not (positions == start + np.arange(positions.size) * step).all():
            return self.stream.ids_at(positions + self.begin)
        count = positions.size
        if ahead is not None and ahead.step == step and (start - ahead.start) % step == 0:
            place = (start - ahead.start) // step
            if 0 <= place <= ahead.ids.size - positions.size:
                self._ahead = ahead
                return ahead.ids[place : place + positions.size].copy()
            if 0 <= place < ahead.ids.size + _NEAR * positions.size:
                count = min(_AHEAD, max(8 * ahead.ids.size, count), -(-(self._length - start) // step))
        ids = self.stream.ids_at(self.begin + start + np.arange(count) * step)
        self._ahead = ReadAhead(start, step, ids)
        return ids[: positions.size].copy()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_ahead": None}

    @cached_property
    def num_passes(self) -> int:
        return self.stream.num_passes(self.begin + self._length)

    def passes_at(self, positions: Ids) -> Ids:
        return self.stream.passes_at(positions + self.begin)

    def epochs_at(self, epoch: int, positions: Ids) -> Ids:
        if not self.runs_on:
            return super().epochs_at(epoch, positions)
        return self.stream.epochs_at(positions + self.begin)

    def locate(self, ids: Ids) -> Located:
        which, positions = self.stream.locate(ids, self.begin, self.begin + self._length)
        return which, positions - self.begin
